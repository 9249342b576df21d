/** Validation of the containers of a pod: ordinary, init and ephemeral ones. */
import { duplicate, forbidden, FieldError, invalid, required, unsupportedValue } from '../meta/field-error.ts';
import {
  configKeyErrors,
  dnsLabelErrors,
  portNameErrors,
  qualifiedNameErrors,
  relaxedEnvironmentNameErrors,
} from '../meta/names.ts';
import type {
  Container,
  ContainerPort,
  EnvironmentVariable,
  EphemeralContainer,
  PodSpec,
  VolumeMount,
} from './pod-types.ts';
import { lifecycleErrors, livenessErrors, readinessErrors } from './probe-validation.ts';
import { resourceRequirementErrors } from './resource-validation.ts';
import { containerSecurityErrors } from './security-context-validation.ts';
import { each, inRange, isBlank } from './validation-rules.ts';
import type { VolumeKinds } from './volume-validation.ts';

export interface ContainerContext {
  readonly spec: PodSpec;
  readonly volumes: VolumeKinds;
  /** Names of `spec.resourceClaims`. */
  readonly claims: ReadonlySet<string>;
}

const PULL_POLICIES = ['Always', 'IfNotPresent', 'Never'];
const MESSAGE_POLICIES = ['File', 'FallbackToLogsOnError'];
const RESTART_POLICIES = ['Always', 'Never', 'OnFailure'];

function commonErrors(
  container: Container | EphemeralContainer,
  path: string,
  context: ContainerContext,
): FieldError[] {
  const errors: FieldError[] = [];
  if (isBlank(container.name)) errors.push(required(`${path}.name`));
  else errors.push(...each(`${path}.name`, container.name, dnsLabelErrors(container.name)));
  // White space around an image is refused for pods only: templates may have it.
  if (isBlank(container.image)) errors.push(required(`${path}.image`));
  const { terminationMessagePolicy: messages, imagePullPolicy: pull } = container;
  if (!isBlank(messages) && !MESSAGE_POLICIES.includes(messages)) {
    errors.push(unsupportedValue(`${path}.terminationMessagePolicy`, messages, MESSAGE_POLICIES));
  } else if (isBlank(messages)) errors.push(required(`${path}.terminationMessagePolicy`));
  const mounts = mountPathsOf(container);
  const devices = new Set((container.volumeDevices ?? []).map(({ name = '' }) => name));
  errors.push(
    ...portErrors(container.ports ?? [], `${path}.ports`),
    ...environmentErrors(container.env ?? [], `${path}.env`, context),
    ...environmentSourceErrors(container.envFrom ?? [], `${path}.envFrom`),
    ...volumeMountErrors(container.volumeMounts ?? [], devices, context, container, `${path}.volumeMounts`),
    ...volumeDeviceErrors(container.volumeDevices ?? [], mounts, context, `${path}.volumeDevices`),
  );
  if (isBlank(pull)) errors.push(required(`${path}.imagePullPolicy`));
  else if (!PULL_POLICIES.includes(pull)) errors.push(unsupportedValue(`${path}.imagePullPolicy`, pull, PULL_POLICIES));
  errors.push(
    ...resourceRequirementErrors(container.resources, `${path}.resources`, { claims: context.claims }),
    ...resizePolicyErrors(container, path),
    ...containerSecurityErrors(container.securityContext, `${path}.securityContext`, context.spec.hostUsers !== false),
  );
  return errors;
}

function mountPathsOf(container: Container | EphemeralContainer): { names: Set<string>; paths: Set<string> } {
  const mounts = container.volumeMounts ?? [];
  return {
    names: new Set(mounts.map(({ name = '' }) => name)),
    paths: new Set(mounts.map(({ mountPath = '' }) => mountPath)),
  };
}

const RESIZE_RESOURCES = ['cpu', 'memory'];
const RESIZE_POLICIES = ['NotRequired', 'RestartContainer'];

function resizePolicyErrors(container: Container | EphemeralContainer, path: string): FieldError[] {
  const errors: FieldError[] = [];
  const seen = new Set<string>();
  for (const { resourceName = '', restartPolicy = '' } of container.resizePolicy ?? []) {
    const field = `${path}.resizePolicy`;
    if (seen.has(resourceName)) errors.push(duplicate(field, resourceName));
    seen.add(resourceName);
    if (resourceName === '') errors.push(required(field));
    else if (!RESIZE_RESOURCES.includes(resourceName))
      errors.push(unsupportedValue(field, resourceName, RESIZE_RESOURCES));
    if (restartPolicy === '') errors.push(required(field));
    else if (!RESIZE_POLICIES.includes(restartPolicy))
      errors.push(unsupportedValue(field, restartPolicy, RESIZE_POLICIES));
  }
  return errors;
}

const PROTOCOLS = ['SCTP', 'TCP', 'UDP'];

function portErrors(ports: readonly ContainerPort[], path: string): FieldError[] {
  const errors: FieldError[] = [];
  const names = new Set<string>();
  for (const [index, port] of ports.entries()) {
    const at = `${path}[${index}]`;
    if (!isBlank(port.name)) {
      const texts = portNameErrors(port.name);
      if (texts.length > 0) errors.push(...each(`${at}.name`, port.name, texts));
      else if (names.has(port.name)) errors.push(duplicate(`${at}.name`, port.name));
      else names.add(port.name);
    }
    if ((port.containerPort ?? 0) === 0) errors.push(required(`${at}.containerPort`));
    else errors.push(...inRange(`${at}.containerPort`, port.containerPort, 1, 65535));
    if ((port.hostPort ?? 0) !== 0) errors.push(...inRange(`${at}.hostPort`, port.hostPort, 1, 65535));
    if (isBlank(port.protocol)) errors.push(required(`${at}.protocol`));
    else if (!PROTOCOLS.includes(port.protocol))
      errors.push(unsupportedValue(`${at}.protocol`, port.protocol, PROTOCOLS));
  }
  return errors;
}

const FIELD_PATHS = [
  'metadata.name',
  'metadata.namespace',
  'metadata.uid',
  'spec.nodeName',
  'spec.serviceAccountName',
  'status.hostIP',
  'status.hostIPs',
  'status.podIP',
  'status.podIPs',
];
const CONTAINER_RESOURCES = [
  'limits.cpu',
  'limits.ephemeral-storage',
  'limits.memory',
  'requests.cpu',
  'requests.ephemeral-storage',
  'requests.memory',
];

function environmentErrors(
  variables: readonly EnvironmentVariable[],
  path: string,
  context: ContainerContext,
): FieldError[] {
  const errors: FieldError[] = [];
  for (const [index, variable] of variables.entries()) {
    const at = `${path}[${index}]`;
    if (isBlank(variable.name)) errors.push(required(`${at}.name`));
    else errors.push(...each(`${at}.name`, variable.name, relaxedEnvironmentNameErrors(variable.name)));
    errors.push(...valueFromErrors(variable, `${at}.valueFrom`, context));
  }
  return errors;
}

function valueFromErrors(variable: EnvironmentVariable, path: string, context: ContainerContext): FieldError[] {
  const source = variable.valueFrom;
  if (source === undefined) return [];
  const errors: FieldError[] = [];
  let count = 0;
  const { fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef, fileKeyRef } = source;
  if (fieldRef !== undefined) {
    count++;
    errors.push(...fieldRefErrors(fieldRef, FIELD_PATHS, `${path}.fieldRef`, true));
  }
  if (resourceFieldRef !== undefined) {
    count++;
    errors.push(...resourceFieldErrors(resourceFieldRef, `${path}.resourceFieldRef`, { inVolume: false }));
  }
  if (configMapKeyRef !== undefined) {
    count++;
    errors.push(...keyReferenceErrors(configMapKeyRef, `${path}.configMapKeyRef`));
  }
  if (secretKeyRef !== undefined) {
    count++;
    errors.push(...keyReferenceErrors(secretKeyRef, `${path}.secretKeyRef`));
  }
  if (fileKeyRef !== undefined) {
    count++;
    errors.push(...fileKeyErrors(fileKeyRef, `${path}.fileKeyRef`, context));
  }
  if (count === 0)
    errors.push(
      invalid(
        path,
        '',
        'must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`',
      ),
    );
  else if (!isBlank(variable.value)) errors.push(invalid(path, '', 'may not be specified when `value` is not empty'));
  else if (count > 1) errors.push(invalid(path, '', 'may not have more than one field specified at a time'));
  return errors;
}

function fileKeyErrors(
  reference: { key?: string | undefined; volumeName?: string | undefined; path?: string | undefined },
  path: string,
  context: ContainerContext,
): FieldError[] {
  const errors: FieldError[] = [];
  if (isBlank(reference.key)) errors.push(required(`${path}.key`));
  else errors.push(...each(`${path}.key`, reference.key, relaxedEnvironmentNameErrors(reference.key)));
  if (isBlank(reference.volumeName)) errors.push(required(`${path}.volumeName`));
  else if (!context.volumes.has(reference.volumeName))
    errors.push(new FieldError('FieldValueNotFound', `${path}.volumeName`, reference.volumeName, ''));
  if (isBlank(reference.path)) errors.push(required(`${path}.path`));
  else errors.push(...localPathErrors(reference.path, `${path}.path`));
  return errors;
}

function keyReferenceErrors(
  reference: { name?: string | undefined; key?: string | undefined },
  path: string,
): FieldError[] {
  const errors: FieldError[] = [];
  if (isBlank(reference.key)) errors.push(required(`${path}.key`));
  else errors.push(...each(`${path}.key`, reference.key, configKeyErrors(reference.key)));
  return errors;
}

/** Fields of the pod that environment and downward volumes show. */
export function fieldRefErrors(
  reference: { apiVersion?: string | undefined; fieldPath?: string | undefined },
  supported: readonly string[],
  path: string,
  subscripts: boolean,
): FieldError[] {
  if (isBlank(reference.apiVersion)) return [required(`${path}.apiVersion`)];
  if (isBlank(reference.fieldPath)) return [required(`${path}.fieldPath`)];
  const field = `${path}.fieldPath`;
  const keyed = /^(metadata\.(?:annotations|labels))\['(.*)'\]$/.exec(reference.fieldPath);
  if (keyed !== null && subscripts) {
    const [, base = '', key = ''] = keyed;
    const checked = base === 'metadata.annotations' ? key.toLowerCase() : key;
    return each(field, key, qualifiedNameErrors(checked));
  }
  if (keyed !== null) return [];
  if (reference.apiVersion !== 'v1' || !isPodField(reference.fieldPath)) {
    return [
      invalid(
        field,
        reference.fieldPath,
        `error converting fieldPath: field label not supported: ${reference.fieldPath}`,
      ),
    ];
  }
  return supported.includes(reference.fieldPath) ? [] : [unsupportedValue(field, reference.fieldPath, supported)];
}

const KNOWN_POD_FIELDS: ReadonlySet<string> = new Set([
  ...FIELD_PATHS,
  'metadata.annotations',
  'metadata.labels',
  'spec.restartPolicy',
  'spec.schedulerName',
  'spec.hostNetwork',
  'status.phase',
  'status.nominatedNodeName',
  'spec.host',
]);
const isPodField = (field: string): boolean => KNOWN_POD_FIELDS.has(field);

const ONE_BYTE = [
  '1',
  '1k',
  '1M',
  '1G',
  '1T',
  '1P',
  '1E',
  '1Ki',
  '1Mi',
  '1Gi',
  '1Ti',
  '1Pi',
  '1Ei',
  '1e3',
  '1e6',
  '1e9',
  '1e12',
  '1e15',
  '1e18',
];
const DIVISORS: Readonly<Record<string, readonly string[]>> = {
  cpu: ['1m', '1'],
  memory: ONE_BYTE,
  'ephemeral-storage': ONE_BYTE,
};
const ZERO = '0';

export function resourceFieldErrors(
  reference: { containerName?: string | undefined; resource?: string | undefined; divisor?: string | undefined },
  path: string,
  { inVolume }: { readonly inVolume: boolean },
): FieldError[] {
  const { resource = '', containerName, divisor } = reference;
  if (inVolume && isBlank(containerName)) return [required(`${path}.containerName`)];
  if (resource === '') return [required(`${path}.resource`)];
  const huge = /^(?:limits|requests)\.hugepages-/.test(resource);
  if (!CONTAINER_RESOURCES.includes(resource) && !huge)
    return [unsupportedValue(`${path}.resource`, resource, CONTAINER_RESOURCES)];
  if (isBlank(divisor) || divisor === ZERO) return [];
  const name = resource.slice(resource.indexOf('.') + 1);
  const allowed = huge ? ONE_BYTE : (DIVISORS[name] ?? []);
  if (allowed.includes(divisor)) return [];
  const text =
    name === 'cpu'
      ? "only divisor's values 1m and 1 are supported with the cpu resource"
      : `only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the ${huge ? 'hugepages' : name === 'memory' ? 'memory' : 'local ephemeral storage'} resource`;
  return [invalid(`${path}.divisor`, divisor, text)];
}

function environmentSourceErrors(
  sources: readonly NonNullable<Container['envFrom']>[number][],
  path: string,
): FieldError[] {
  const errors: FieldError[] = [];
  for (const [index, source] of sources.entries()) {
    const at = `${path}[${index}]`;
    if (!isBlank(source.prefix))
      errors.push(...each(`${at}.prefix`, source.prefix, relaxedEnvironmentNameErrors(source.prefix)));
    let count = 0;
    for (const name of ['configMapRef', 'secretRef'] as const) {
      const reference = source[name];
      if (reference === undefined) continue;
      count++;
      if (isBlank(reference.name)) errors.push(required(`${at}.${name}.name`));
    }
    if (count === 0) errors.push(invalid(path, '', 'must specify one of: `configMapRef` or `secretRef`'));
    if (count > 1) errors.push(invalid(path, '', 'may not have more than one field specified at a time'));
  }
  return errors;
}

export function localPathErrors(target: string, field: string): FieldError[] {
  const errors: FieldError[] = [];
  if (target.startsWith('/')) errors.push(invalid(field, target, 'must be a relative path'));
  if (target.split('/').includes('..')) errors.push(invalid(field, target, "must not contain '..'"));
  return errors;
}

function volumeMountErrors(
  mounts: readonly VolumeMount[],
  devices: ReadonlySet<string>,
  context: ContainerContext,
  container: Container | EphemeralContainer,
  path: string,
): FieldError[] {
  const errors: FieldError[] = [];
  const points = new Set<string>();
  for (const [index, mount] of mounts.entries()) {
    const at = `${path}[${index}]`;
    const { name = '', mountPath = '' } = mount;
    if (name === '') errors.push(required(`${at}.name`));
    if (!context.volumes.has(name)) errors.push(new FieldError('FieldValueNotFound', `${at}.name`, name, ''));
    if (mountPath === '') errors.push(required(`${at}.mountPath`));
    if (points.has(mountPath)) errors.push(invalid(`${at}.mountPath`, mountPath, 'must be unique'));
    points.add(mountPath);
    if (devices.has(name)) errors.push(invalid(`${at}.name`, name, 'must not already exist in volumeDevices'));
    if (!isBlank(mount.subPath)) errors.push(...localPathErrors(mount.subPath, `${path}.subPath`));
    if (!isBlank(mount.subPathExpr)) {
      if (!isBlank(mount.subPath))
        errors.push(invalid(`${at}.subPathExpr`, mount.subPathExpr, 'subPathExpr and subPath are mutually exclusive'));
      errors.push(...localPathErrors(mount.subPathExpr, `${path}.subPathExpr`));
    }
    errors.push(...propagationErrors(mount, container, at), ...recursiveErrors(mount, at));
  }
  return errors;
}

const PROPAGATIONS = ['Bidirectional', 'HostToContainer', 'None'];

function propagationErrors(mount: VolumeMount, container: Container | EphemeralContainer, at: string): FieldError[] {
  const { mountPropagation: mode } = mount;
  if (mode === undefined) return [];
  const field = `${at}.mountPropagation`;
  const errors: FieldError[] = [];
  if (!PROPAGATIONS.includes(mode)) errors.push(unsupportedValue(field, mode, PROPAGATIONS));
  if (mode === 'Bidirectional' && container.securityContext?.privileged !== true) {
    errors.push(forbidden(field, 'Bidirectional mount propagation is available only to privileged containers'));
  }
  return errors;
}

const RECURSIVE = ['Disabled', 'Enabled', 'IfPossible'];

function recursiveErrors(mount: VolumeMount, at: string): FieldError[] {
  const { recursiveReadOnly: mode } = mount;
  if (mode === undefined || mode === 'Disabled') return [];
  const field = `${at}.recursiveReadOnly`;
  if (!RECURSIVE.includes(mode)) return [unsupportedValue(field, mode, RECURSIVE)];
  const errors: FieldError[] = [];
  if (mount.readOnly !== true) errors.push(forbidden(field, 'may only be specified when readOnly is true'));
  if (mount.mountPropagation !== undefined && mount.mountPropagation !== 'None') {
    errors.push(forbidden(field, 'may only be specified when mountPropagation is None or not specified'));
  }
  return errors;
}

function volumeDeviceErrors(
  devices: readonly { name?: string | undefined; devicePath?: string | undefined }[],
  mounts: { readonly names: ReadonlySet<string>; readonly paths: ReadonlySet<string> },
  context: ContainerContext,
  path: string,
): FieldError[] {
  const errors: FieldError[] = [];
  const names = new Set<string>();
  const paths = new Set<string>();
  for (const [index, { name = '', devicePath = '' }] of devices.entries()) {
    const at = `${path}[${index}]`;
    if (name === '') errors.push(required(`${at}.name`));
    if (names.has(name)) errors.push(invalid(`${at}.name`, name, 'must be unique'));
    const kind = context.volumes.get(name);
    if (kind !== undefined && kind !== 'persistentVolumeClaim' && kind !== 'ephemeral') {
      errors.push(
        invalid(
          `${at}.name`,
          name,
          'can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode',
        ),
      );
    } else if (kind === undefined) errors.push(new FieldError('FieldValueNotFound', `${at}.name`, name, ''));
    if (devicePath === '') errors.push(required(`${at}.devicePath`));
    if (paths.has(devicePath)) errors.push(invalid(`${at}.devicePath`, devicePath, 'must be unique'));
    if (devicePath !== '' && devicePath.split('/').includes('..'))
      errors.push(invalid(`${at}.devicePath`, devicePath, "can not contain backsteps ('..')"));
    else paths.add(devicePath);
    if (mounts.names.has(name)) errors.push(invalid(`${at}.name`, name, 'must not already exist in volumeMounts'));
    if (mounts.paths.has(devicePath))
      errors.push(invalid(`${at}.devicePath`, devicePath, 'must not already exist as a path in volumeMounts'));
    if (name !== '') names.add(name);
  }
  return errors;
}

function restartPolicyErrors(container: Container, path: string): FieldError[] {
  const errors: FieldError[] = [];
  const { restartPolicy: policy, restartPolicyRules: rules } = container;
  if (policy !== undefined && !RESTART_POLICIES.includes(policy)) {
    errors.push(unsupportedValue(`${path}.restartPolicy`, policy, RESTART_POLICIES));
  }
  if (rules !== undefined && rules.length > 0) {
    if (policy === undefined)
      errors.push(required(`${path}.restartPolicy`, 'must specify restartPolicy when restart rules are used'));
    if (rules.length > 20)
      errors.push(
        new FieldError('FieldValueTooMany', `${path}.restartPolicyRules`, rules.length, 'must have at most 20 items'),
      );
    for (const [index, rule] of rules.entries())
      errors.push(...ruleErrors(rule, `${path}.restartPolicyRules[${index}]`));
  }
  return errors;
}

function ruleErrors(rule: NonNullable<Container['restartPolicyRules']>[number], at: string): FieldError[] {
  const errors: FieldError[] = [];
  const { action = '', exitCodes } = rule;
  const actions = ['Restart', 'RestartAllContainers'];
  if (action === '') errors.push(required(`${at}.action`, 'must be specified'));
  else if (!actions.includes(action)) errors.push(unsupportedValue(`${at}.action`, action, ['Restart']));
  if (exitCodes === undefined) return [...errors, required(`${at}.exitCodes`, 'must be specified')];
  const { operator = '', values = [] } = exitCodes;
  if (operator === '') errors.push(required(`${at}.exitCodes.operator`, 'must be specified'));
  else if (!['In', 'NotIn'].includes(operator))
    errors.push(unsupportedValue(`${at}.exitCodes.operator`, operator, ['In', 'NotIn']));
  if (values.length === 0) errors.push(required(`${at}.exitCodes.values`, 'must specify at least one value'));
  if (values.length > 255)
    errors.push(
      new FieldError('FieldValueTooMany', `${at}.exitCodes.values`, values.length, 'must have at most 255 items'),
    );
  return errors;
}

export function containerListErrors(
  context: ContainerContext,
  path: string,
  graceSeconds: number | undefined,
): FieldError[] {
  const containers = context.spec.containers ?? [];
  if (containers.length === 0) return [required(path)];
  const errors: FieldError[] = [];
  const names = new Set<string>();
  const os = context.spec.os?.name;
  for (const [index, container] of containers.entries()) {
    const at = `${path}[${index}]`;
    errors.push(...commonErrors(container, at, context));
    const { name = '' } = container;
    if (names.has(name)) errors.push(duplicate(`${at}.name`, name));
    else if (name !== '') names.add(name);
    errors.push(
      ...lifecycleErrors(container.lifecycle, graceSeconds, `${at}.lifecycle`, os),
      ...livenessErrors(container.livenessProbe, graceSeconds, `${at}.livenessProbe`),
      ...readinessErrors(container.readinessProbe, graceSeconds, `${at}.readinessProbe`),
      ...startupErrors(container, graceSeconds, at),
      ...restartPolicyErrors(container, at),
    );
  }
  errors.push(...hostPortConflicts(containers, path));
  return errors;
}

function startupErrors(container: Container, graceSeconds: number | undefined, at: string): FieldError[] {
  return livenessErrors(container.startupProbe, graceSeconds, `${at}.startupProbe`);
}

/** One port of the host cannot be two containers'. */
function hostPortConflicts(containers: readonly Container[], path: string): FieldError[] {
  const errors: FieldError[] = [];
  const taken = new Set<string>();
  for (const [index, container] of containers.entries()) {
    for (const [at, port] of (container.ports ?? []).entries()) {
      if ((port.hostPort ?? 0) === 0) continue;
      const key = `${port.protocol ?? ''}/${port.hostIP ?? ''}/${port.hostPort}`;
      if (taken.has(key)) errors.push(duplicate(`${path}[${index}].ports[${at}].hostPort`, key));
      else taken.add(key);
    }
  }
  return errors;
}

export function initContainerErrors(
  context: ContainerContext,
  path: string,
  graceSeconds: number | undefined,
): FieldError[] {
  const errors: FieldError[] = [];
  const names = new Set((context.spec.containers ?? []).map(({ name = '' }) => name));
  const os = context.spec.os?.name;
  for (const [index, container] of (context.spec.initContainers ?? []).entries()) {
    const at = `${path}[${index}]`;
    errors.push(...commonErrors(container, at, context), ...restartPolicyErrors(container, at));
    const { name = '' } = container;
    if (names.has(name)) errors.push(duplicate(`${at}.name`, name));
    else if (name !== '') names.add(name);
    errors.push(...hostPortConflicts([container], path).map((error) => renumber(error, path, index)));
    if (container.restartPolicy === 'Always') {
      errors.push(
        ...lifecycleErrors(container.lifecycle, graceSeconds, `${at}.lifecycle`, os),
        ...livenessErrors(container.livenessProbe, graceSeconds, `${at}.livenessProbe`),
        ...readinessErrors(container.readinessProbe, graceSeconds, `${at}.readinessProbe`),
        ...startupErrors(container, graceSeconds, at),
      );
      continue;
    }
    const text = 'may not be set for init containers without restartPolicy=Always';
    for (const name of ['lifecycle', 'livenessProbe', 'readinessProbe', 'startupProbe'] as const) {
      if (container[name] !== undefined) errors.push(forbidden(`${at}.${name}`, text));
    }
  }
  return errors;
}

function renumber(error: FieldError, path: string, index: number): FieldError {
  return new FieldError(error.type, error.field.replace(`${path}[0]`, `${path}[${index}]`), error.value, error.detail);
}

const EPHEMERAL_FIELDS: ReadonlySet<string> = new Set([
  'name',
  'image',
  'command',
  'args',
  'workingDir',
  'envFrom',
  'env',
  'resizePolicy',
  'volumeMounts',
  'volumeDevices',
  'terminationMessagePath',
  'terminationMessagePolicy',
  'imagePullPolicy',
  'securityContext',
  'stdin',
  'stdinOnce',
  'tty',
  'targetContainerName',
  'resources',
  'restartPolicy',
  'restartPolicyRules',
]);

export function ephemeralContainerErrors(context: ContainerContext, path: string): FieldError[] {
  const errors: FieldError[] = [];
  const targets = new Set(
    [...(context.spec.containers ?? []), ...(context.spec.initContainers ?? [])].map(({ name = '' }) => name),
  );
  const names = new Set(targets);
  for (const [index, container] of (context.spec.ephemeralContainers ?? []).entries()) {
    const at = `${path}[${index}]`;
    errors.push(...commonErrors(container, at, context));
    const { name = '', targetContainerName = '' } = container;
    if (names.has(name)) errors.push(duplicate(`${at}.name`, name));
    else if (name !== '') names.add(name);
    errors.push(...imageSpaceErrors([container], path).map((error) => renumber(error, path, index)));
    if (targetContainerName !== '' && !targets.has(targetContainerName)) {
      errors.push(new FieldError('FieldValueNotFound', `${at}.targetContainerName`, targetContainerName, ''));
    }
    for (const [field, value] of Object.entries(container)) {
      if (value !== undefined && !EPHEMERAL_FIELDS.has(field))
        errors.push(forbidden(`${at}.${field}`, 'cannot be set for an Ephemeral Container'));
    }
    if (Object.keys(container.resources ?? {}).length > 0)
      errors.push(forbidden(`${at}.resources`, 'cannot be set for an Ephemeral Container'));
    for (const [mount, { subPath, subPathExpr }] of (container.volumeMounts ?? []).entries()) {
      if (!isBlank(subPath))
        errors.push(forbidden(`${at}.volumeMounts[${mount}].subPath`, 'cannot be set for an Ephemeral Container'));
      if (!isBlank(subPathExpr))
        errors.push(forbidden(`${at}.volumeMounts[${mount}].subPathExpr`, 'cannot be set for an Ephemeral Container'));
    }
  }
  return errors;
}

/** Pods, not templates: an image has no white space around it. */
export function imageSpaceErrors(containers: readonly (Container | EphemeralContainer)[], path: string): FieldError[] {
  const errors: FieldError[] = [];
  for (const [index, { image = '' }] of containers.entries()) {
    if (image !== image.trim())
      errors.push(invalid(`${path}[${index}].image`, image, 'must not have leading or trailing whitespace'));
  }
  return errors;
}
