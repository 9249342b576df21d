/**
 * Returns the form in which kube-apiserver shows a struct in an error or in a diff. Its internal Go type has no JSON names, so
 * every field has its Go name, and absent fields have their zero value (`{"Required":{"NodeSelectorTerms":null}}`). The types
 * of apimachinery (label selectors, metadata, quantities) have JSON names and keep their wire form.
 */
import { type Field, type StructType, type TypeNode, zeroOfScalar } from './schema.ts';
import { withoutEmpties } from './empty-values.ts';
import { goNameOfField } from './go-names.ts';
import { loadSchema } from './table.ts';
import type { JsonObject } from '../meta/object.ts';

const words = (text: string): readonly string[] => text.split(' ');

const CONTAINER = words(
  'name image command args workingDir ports envFrom env resources resizePolicy restartPolicy restartPolicyRules ' +
    'volumeMounts volumeDevices livenessProbe readinessProbe startupProbe lifecycle terminationMessagePath ' +
    'terminationMessagePolicy imagePullPolicy securityContext stdin stdinOnce tty',
);

const ISCSI = words(
  'targetPortal iqn lun iscsiInterface fsType readOnly portals chapAuthDiscovery chapAuthSession secretRef initiatorName',
);

const SCHEMA = 'io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps';

/** The field orders of Go types that differ from the order of the protobuf numbers. */
const ORDERS: ReadonlyMap<string, readonly string[]> = new Map([
  [
    'io.k8s.api.core.v1.SecurityContext',
    ['capabilities', 'privileged', 'seLinuxOptions', 'windowsOptions', 'runAsUser', 'runAsGroup'],
  ],
  ['io.k8s.api.core.v1.PersistentVolumeClaimSpec', ['accessModes', 'selector']],
  [
    'io.k8s.api.core.v1.PersistentVolumeSpec',
    words(
      'capacity gcePersistentDisk awsElasticBlockStore hostPath glusterfs nfs rbd quobyte iscsi flexVolume cinder cephfs ' +
        'fc flocker azureFile vsphereVolume azureDisk photonPersistentDisk portworxVolume scaleIO local storageos csi',
    ),
  ],
  ...['ISCSIVolumeSource', 'ISCSIPersistentVolumeSource'].map((name) => [`io.k8s.api.core.v1.${name}`, ISCSI] as const),
  [
    'io.k8s.api.core.v1.PodSpec',
    words(
      'volumes initContainers containers ephemeralContainers restartPolicy terminationGracePeriodSeconds ' +
        'activeDeadlineSeconds dnsPolicy nodeSelector serviceAccountName automountServiceAccountToken nodeName ' +
        'securityContext imagePullSecrets hostname subdomain setHostnameAsFQDN affinity schedulerName tolerations ' +
        'hostAliases priorityClassName priority preemptionPolicy dnsConfig readinessGates runtimeClassName overhead ' +
        'enableServiceLinks topologySpreadConstraints os schedulingGates resourceClaims',
    ),
  ],
  ['io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference', ['apiVersion']],
  ['io.k8s.api.resource.v1.DeviceClaimConfiguration', ['requests']],
  ['io.k8s.api.core.v1.Container', CONTAINER],
  ['io.k8s.api.core.v1.EphemeralContainer', CONTAINER],
  [
    'io.k8s.api.core.v1.Probe',
    words('exec httpGet tcpSocket grpc initialDelaySeconds timeoutSeconds periodSeconds successThreshold'),
  ],
  [SCHEMA, ['id', '$schema', '$ref', 'description', 'type', 'nullable']],
  ['io.k8s.api.core.v1.VolumeMount', words('name readOnly recursiveReadOnly mountPath subPath mountPropagation')],
  [
    'io.k8s.api.core.v1.Volume',
    words(
      'name hostPath emptyDir gcePersistentDisk awsElasticBlockStore gitRepo secret nfs iscsi glusterfs ' +
        'persistentVolumeClaim rbd quobyte flexVolume cinder cephfs flocker downwardAPI fc azureFile configMap ' +
        'vsphereVolume azureDisk photonPersistentDisk projected portworxVolume scaleIO storageos csi ephemeral image',
    ),
  ],
  [
    'io.k8s.api.core.v1.PodSecurityContext',
    words(
      'seLinuxOptions windowsOptions runAsUser runAsGroup runAsNonRoot supplementalGroups supplementalGroupsPolicy ' +
        'fsGroup fsGroupChangePolicy sysctls seccompProfile appArmorProfile seLinuxChangePolicy',
    ),
  ],
]);

/**
 * Returns the form of a value, or null for a value that is no object. `typeName` is the name of a built-in type, for example
 * `io.k8s.api.rbac.v1.RoleRef`. Throws for a name that no type has.
 */
export function internalForm(typeName: string, value: unknown): object | null {
  const struct = loadSchema().struct(typeName);
  if (struct === undefined) throw new Error(`No built-in type has the name ${typeName}`);
  return structForm(struct, value);
}

function structForm(struct: StructType, value: unknown): object | null {
  if (typeof value !== 'object' || value === null) return null;
  const members: Readonly<Record<string, unknown>> = { ...value };
  if (isWireType(struct)) return wireForm(struct, members);
  const form = Object.fromEntries(
    fieldsInOrder(struct).flatMap((field): readonly (readonly [string, unknown])[] => {
      const shown = fieldForm(field, members[field.name]);
      // Go embeds the metadata, so its members stand beside the other fields.
      if (field.name === 'metadata') return Object.entries(shown ?? {});
      return [[goNameOfField(struct, field.name), shown]];
    }),
  );
  return struct.name === 'io.k8s.api.core.v1.PodSpec' ? withHostFields(form) : form;
}

/**
 * Moves the fields about namespaces of the host into the security context of the pod, of which they are part in the internal
 * types.
 */
function withHostFields(form: Readonly<Record<string, unknown>>): object {
  const {
    HostNetwork,
    HostPID,
    HostIPC,
    ShareProcessNamespace,
    HostUsers,
    DeprecatedServiceAccount: _same,
    ...others
  } = form;
  const host = { HostNetwork, HostPID, HostIPC, ShareProcessNamespace, HostUsers };
  const context = others['SecurityContext'] ?? internalForm('io.k8s.api.core.v1.PodSecurityContext', {});
  return { ...others, SecurityContext: { ...host, ...(context as object) } };
}

/** Returns the members that are serialized, in the order of the type. */
function wireForm(struct: StructType, members: Readonly<Record<string, unknown>>): object {
  const serialized = withoutEmpties(struct, members as JsonObject);
  return Object.fromEntries(
    fieldsInOrder(struct).flatMap(({ name, type }) => {
      const value = serialized[name];
      return value === undefined || value === null ? [] : [[name, valueForm(type, value)]];
    }),
  );
}

function fieldForm({ type, presence }: Field, value: unknown): unknown {
  if (value !== undefined && value !== null) return valueForm(type, value);
  return presence === 'keep' || presence === 'null' ? null : zeroOf(type);
}

function valueForm(type: TypeNode, value: unknown): unknown {
  switch (type.kind) {
    case 'struct':
      return structForm(type.struct, value);
    case 'list':
      return Array.isArray(value) ? value.map((item: unknown) => valueForm(type.items, item)) : value;
    case 'map':
      return typeof value === 'object' && value !== null
        ? Object.fromEntries(
            Object.entries(value)
              .sort(([a], [b]) => (a < b ? -1 : 1))
              .map(([key, item]) => [key, valueForm(type.values, item)]),
          )
        : value;
    case 'scalar':
      return type.message === undefined ? value : schemaForm(type.message, value);
  }
}

/** Returns the Go struct with a field for each of the types that the JSON value may have. */
function schemaForm(message: NonNullable<Extract<TypeNode, { kind: 'scalar' }>['message']>, value: unknown): object {
  const schemaOf = (one: unknown): object | null => internalForm(SCHEMA, one);
  const schema = Array.isArray(value) ? null : schemaOf(value);
  switch (message) {
    case 'schemaOrBool':
      return { Allows: value !== false, Schema: schema };
    case 'schemaOrArray':
      return { Schema: schema, JSONSchemas: Array.isArray(value) ? value.map(schemaOf) : null };
    case 'schemaOrStringArray':
      return { Schema: schema, Property: Array.isArray(value) ? value : null };
  }
}

function zeroOf(type: TypeNode): unknown {
  if (type.kind === 'struct') return structForm(type.struct, {});
  if (type.kind !== 'scalar') return null;
  return zeroOfScalar(type.scalar) ?? null;
}

const isWireType = ({ name }: StructType): boolean => name.startsWith('io.k8s.apimachinery.');

/** Returns the fields in the order of the Go type. */
export function fieldsInOrder(struct: StructType): Field[] {
  const order = ORDERS.get(struct.name) ?? [];
  const rank = ({ name, protobufNumber = 0 }: Field): number => {
    const listed = order.indexOf(name);
    return listed < 0 ? order.length + protobufNumber : listed;
  };
  return [...struct.fields.values()].sort((a, b) => rank(a) - rank(b));
}
