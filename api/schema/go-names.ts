/** Names the fields of the built-in types as Go does, for errors that show them. */
import { capitalized } from '../meta/capitalized.ts';
import type { StructType } from './schema.ts';

/** The abbreviations that a Go name begins with in capital letters. */
const ABBREVIATIONS =
  /^(?:api|aws|ca|cel|cidrs?|cpu|csi|dns|fc|fs|gce|gid|gmsa|grpc|http|https|id|ip|ips|iqn|iscsi|json|nfs|os|pd|pid|pkix|qos|rbd|se|ssl|tcp|tls|ttl|tty|uid|uri|url|wwids)(?=$|[A-Z])/;

const PLURALS: ReadonlySet<string> = new Set(['cidrs', 'ips', 'wwids']);

/** The Go names that do not follow the rules. */
const NAMES: ReadonlyMap<string, string> = new Map([
  ['cephfs', 'CephFS'],
  ['storageos', 'StorageOS'],
  ['pdID', 'PdID'],
  ['$ref', 'Ref'],
  ['$schema', 'Schema'],
  ['x-kubernetes-embedded-resource', 'XEmbeddedResource'],
  ['x-kubernetes-int-or-string', 'XIntOrString'],
  ['x-kubernetes-list-map-keys', 'XListMapKeys'],
  ['x-kubernetes-list-type', 'XListType'],
  ['x-kubernetes-map-type', 'XMapType'],
  ['x-kubernetes-preserve-unknown-fields', 'XPreserveUnknownFields'],
  ['x-kubernetes-validations', 'XValidations'],
  ['chapAuthDiscovery', 'DiscoveryCHAPAuth'],
  ['chapAuthSession', 'SessionCHAPAuth'],
]);

const RBD = { monitors: 'CephMonitors', image: 'RBDImage', pool: 'RBDPool', user: 'RadosUser' };
const GLUSTERFS = { endpoints: 'EndpointsName' };
const ATTRIBUTE = {
  ...{ bool: 'BoolValue', bools: 'BoolValues', int: 'IntValue', ints: 'IntValues' },
  ...{ string: 'StringValue', strings: 'StringValues', version: 'VersionValue', versions: 'VersionValues' },
};

/** The Go names of fields that do not follow from the JSON name, by type. */
const RENAMED: ReadonlyMap<string, Readonly<Record<string, string>>> = new Map<
  string,
  Readonly<Record<string, string>>
>([
  ['io.k8s.api.admission.v1.AdmissionResponse', { status: 'Result' }],
  ['io.k8s.api.core.v1.AzureDiskVolumeSource', { diskURI: 'DataDiskURI' }],
  ['io.k8s.api.core.v1.ContainerStatus', { lastState: 'LastTerminationState' }],
  ['io.k8s.api.core.v1.Event', { reportingComponent: 'ReportingController' }],
  ['io.k8s.api.core.v1.GlusterfsVolumeSource', GLUSTERFS],
  ['io.k8s.api.core.v1.GlusterfsPersistentVolumeSource', GLUSTERFS],
  ['io.k8s.api.core.v1.NodeSpec', { externalID: 'DoNotUseExternalID' }],
  ['io.k8s.api.core.v1.PodSpec', { serviceAccount: 'DeprecatedServiceAccount' }],
  ['io.k8s.api.core.v1.RBDVolumeSource', RBD],
  ['io.k8s.api.core.v1.RBDPersistentVolumeSource', RBD],
  ...['v1', 'v1beta1', 'v1beta2'].map(
    (version) => [`io.k8s.api.resource.${version}.DeviceAttribute`, ATTRIBUTE] as const,
  ),
  ['io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList', { resources: 'APIResources' }],
  ['io.k8s.apimachinery.pkg.apis.meta.v1.StatusCause', { reason: 'Type' }],
]);

/** Returns the Go name of a field of a type. */
export function goNameOfField(struct: StructType, name: string): string {
  return RENAMED.get(struct.name)?.[name] ?? goFieldName(name);
}

/** Returns the Go name of a field of any type: `APIGroup` for `apiGroup`, `HostPath` for `hostPath`. */
export function goFieldName(name: string): string {
  const irregular = NAMES.get(name);
  if (irregular !== undefined) return irregular;
  const abbreviation = ABBREVIATIONS.exec(name)?.[0];
  if (abbreviation === undefined) return capitalized(name);
  const capitals = PLURALS.has(abbreviation)
    ? `${abbreviation.slice(0, -1).toUpperCase()}s`
    : abbreviation.toUpperCase();
  return capitals + name.slice(abbreviation.length);
}
