/** Validates the containers of a pod: ordinary, init and ephemeral containers. */
import {
  duplicate,
  FieldError,
  forbidden,
  invalid,
  notFound,
  required,
  tooMany,
  unsupportedValue,
} from '../meta/field-error.ts';
import { dnsLabelErrors, portNameErrors } from '../meta/names.ts';
import type { ContainerContext } from './container-context.ts';
import { environmentErrors, environmentSourceErrors } from './environment-validation.ts';
import { devicePathsOf, mountPathsOf, volumeDeviceErrors, volumeMountErrors } from './mount-validation.ts';
import type { Container, ContainerPort, EphemeralContainer } from './pod-types.ts';
import { lifecycleErrors, livenessErrors, readinessErrors } from './probe-validation.ts';
import { resourceRequirementErrors } from './resource-validation.ts';
import { containerSecurityErrors } from './security-context-validation.ts';
import { invalidFor, inRange, isBlank } from './validation-rules.ts';

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
  else errors.push(...invalidFor(`${path}.name`, container.name, dnsLabelErrors(container.name)));
  // White space around an image is only invalid in pods. Templates may have it.
  if (isBlank(container.image)) errors.push(required(`${path}.image`));
  const { terminationMessagePolicy: messages, imagePullPolicy: pull } = container;
  if (!isBlank(messages) && !MESSAGE_POLICIES.includes(messages)) {
    errors.push(unsupportedValue(`${path}.terminationMessagePolicy`, messages, MESSAGE_POLICIES));
  } else if (isBlank(messages)) errors.push(required(`${path}.terminationMessagePolicy`));
  const mounts = mountPathsOf(container);
  const devices = devicePathsOf(container);
  errors.push(
    ...portErrors(container.ports ?? [], `${path}.ports`),
    ...environmentErrors(container.env ?? [], `${path}.env`),
    ...environmentSourceErrors(container.envFrom ?? [], `${path}.envFrom`),
    ...volumeMountErrors(container, `${path}.volumeMounts`, context, devices),
    ...volumeDeviceErrors(container.volumeDevices ?? [], mounts, context, `${path}.volumeDevices`),
  );
  if (isBlank(pull)) errors.push(required(`${path}.imagePullPolicy`));
  else if (!PULL_POLICIES.includes(pull)) errors.push(unsupportedValue(`${path}.imagePullPolicy`, pull, PULL_POLICIES));
  errors.push(
    ...resourceRequirementErrors(container.resources, `${path}.resources`, { claims: context.claims }),
    ...resizePolicyErrors(container, path, context.spec.restartPolicy),
    ...containerSecurityErrors(container.securityContext, `${path}.securityContext`, context.spec.hostUsers !== false),
  );
  return errors;
}

const RESIZE_RESOURCES = ['cpu', 'memory'];
const RESIZE_POLICIES = ['NotRequired', 'RestartContainer'];

function resizePolicyErrors(
  container: Container | EphemeralContainer,
  path: string,
  podPolicy: string | undefined,
): FieldError[] {
  const errors: FieldError[] = [];
  const seen = new Set<string>();
  for (const [index, { resourceName = '', restartPolicy = '' }] of (container.resizePolicy ?? []).entries()) {
    const field = `${path}.resizePolicy`;
    if (seen.has(resourceName)) errors.push(duplicate(`${field}[${index}]`, resourceName));
    seen.add(resourceName);
    if (resourceName === '') errors.push(required(field));
    else if (!RESIZE_RESOURCES.includes(resourceName))
      errors.push(unsupportedValue(field, resourceName, RESIZE_RESOURCES));
    if (restartPolicy === '') errors.push(required(field));
    else if (!RESIZE_POLICIES.includes(restartPolicy))
      errors.push(unsupportedValue(field, restartPolicy, RESIZE_POLICIES));
    if (podPolicy === 'Never' && restartPolicy !== 'NotRequired')
      errors.push(invalid(field, restartPolicy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'"));
  }
  return errors;
}

/** The protocols of ports, in the order in which errors list them. */
export const PROTOCOLS = ['SCTP', 'TCP', 'UDP'];

function portErrors(ports: readonly ContainerPort[], path: string): FieldError[] {
  const errors: FieldError[] = [];
  const names = new Set<string>();
  for (const [index, port] of ports.entries()) {
    const at = `${path}[${index}]`;
    if (!isBlank(port.name)) {
      const texts = portNameErrors(port.name);
      if (texts.length > 0) errors.push(...invalidFor(`${at}.name`, port.name, texts));
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

const MAX_RESTART_RULES = 20;
const MAX_EXIT_CODES = 255;

function restartPolicyErrors(container: Container, path: string): FieldError[] {
  const errors: FieldError[] = [];
  const { restartPolicy: policy, restartPolicyRules: rules } = container;
  if (policy !== undefined && !RESTART_POLICIES.includes(policy)) {
    errors.push(unsupportedValue(`${path}.restartPolicy`, policy, RESTART_POLICIES));
  }
  if (rules !== undefined && rules.length > 0) {
    if (policy === undefined)
      errors.push(required(`${path}.restartPolicy`, 'must specify restartPolicy when restart rules are used'));
    if (rules.length > MAX_RESTART_RULES)
      errors.push(tooMany(`${path}.restartPolicyRules`, rules.length, MAX_RESTART_RULES));
    for (const [index, rule] of rules.entries())
      errors.push(...ruleErrors(rule, `${path}.restartPolicyRules[${index}]`));
  }
  return errors;
}

/** The rules of an init container without a policy are not validated. */
function initRestartErrors(container: Container, path: string): FieldError[] {
  const { restartPolicy, restartPolicyRules = [] } = container;
  if (restartPolicy !== undefined) return restartPolicyErrors(container, path);
  if (restartPolicyRules.length === 0) return [];
  return [required(`${path}.restartPolicy`, 'must specify restartPolicy when restart rules are used')];
}

function ruleErrors(rule: NonNullable<Container['restartPolicyRules']>[number], at: string): FieldError[] {
  const errors: FieldError[] = [];
  const { action = '', exitCodes } = rule;
  const actions = ['Restart', 'RestartAllContainers'];
  if (!actions.includes(action)) errors.push(unsupportedValue(`${at}.action`, action, actions));
  if (exitCodes === undefined) return [...errors, required(`${at}.exitCodes`, 'must be specified')];
  const { operator = '', values = [] } = exitCodes;
  if (!['In', 'NotIn'].includes(operator))
    errors.push(unsupportedValue(`${at}.exitCodes.operator`, operator, ['In', 'NotIn']));
  if (values.length > MAX_EXIT_CODES) errors.push(tooMany(`${at}.exitCodes.values`, values.length, MAX_EXIT_CODES));
  return errors;
}

/** Validates `containers`. `graceSeconds` is the grace period of the pod, which bounds `sleep` hooks. */
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
    else names.add(name);
    errors.push(
      ...lifecycleErrors(container.lifecycle, graceSeconds, `${at}.lifecycle`, os),
      ...livenessErrors(container.livenessProbe, graceSeconds, `${at}.livenessProbe`),
      ...readinessErrors(container.readinessProbe, graceSeconds, `${at}.readinessProbe`),
      ...livenessErrors(container.startupProbe, graceSeconds, `${at}.startupProbe`),
      ...restartPolicyErrors(container, at),
    );
  }
  errors.push(...hostPortConflicts(containers, path));
  return errors;
}

/** Returns the errors of host ports that the containers use twice. */
function hostPortConflicts(containers: readonly Container[], path: string): FieldError[] {
  const errors: FieldError[] = [];
  const usedPorts = new Set<string>();
  for (const [index, container] of containers.entries()) {
    for (const [at, port] of (container.ports ?? []).entries()) {
      if ((port.hostPort ?? 0) === 0) continue;
      const key = `${port.protocol ?? ''}/${port.hostIP ?? ''}/${port.hostPort}`;
      if (usedPorts.has(key)) errors.push(duplicate(`${path}[${index}].ports[${at}].hostPort`, key));
      else usedPorts.add(key);
    }
  }
  return errors;
}

/** Validates `initContainers`, sidecars among them. */
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
    errors.push(...commonErrors(container, at, context), ...initRestartErrors(container, at));
    const { name = '' } = container;
    if (names.has(name)) errors.push(duplicate(`${at}.name`, name));
    else if (name !== '') names.add(name);
    // Host port conflicts are checked for each init container alone, and the error path has index 0 as in
    // kube-apiserver.
    errors.push(...hostPortConflicts([container], path));
    if (container.restartPolicy === 'Always') {
      errors.push(
        ...lifecycleErrors(container.lifecycle, graceSeconds, `${at}.lifecycle`, os),
        ...livenessErrors(container.livenessProbe, graceSeconds, `${at}.livenessProbe`),
        ...readinessErrors(container.readinessProbe, graceSeconds, `${at}.readinessProbe`),
        ...livenessErrors(container.startupProbe, graceSeconds, `${at}.startupProbe`),
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

/** Returns an error of the item with index 0 as one of the item with this index. */
function renumber(error: FieldError, path: string, index: number): FieldError {
  return new FieldError(error.type, error.field.replace(`${path}[0]`, `${path}[${index}]`), error.value, error.detail);
}

/** The fields that are forbidden for ephemeral containers, in the order of kube-apiserver's errors. */
const NOT_EPHEMERAL = [
  'ports',
  'resources',
  'resizePolicy',
  'restartPolicy',
  'restartPolicyRules',
  'livenessProbe',
  'readinessProbe',
  'startupProbe',
  'lifecycle',
] as const;

/**
 * Validates `ephemeralContainers`, whose names must differ from those of all other containers of the pod, and whose targets
 * must be ordinary or init containers.
 */
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
    errors.push(...imageSpaceErrors([container], path).map((error) => renumber(error, path, index)));
    if (names.has(name)) errors.push(duplicate(`${at}.name`, name));
    else names.add(name);
    if (targetContainerName !== '' && !targets.has(targetContainerName)) {
      errors.push(notFound(`${at}.targetContainerName`, targetContainerName));
    }
    for (const field of NOT_EPHEMERAL) {
      const value = container[field];
      const given = field === 'resources' ? Object.keys(value ?? {}).length > 0 : value !== undefined;
      if (given) errors.push(forbidden(`${at}.${field}`, 'cannot be set for an Ephemeral Container'));
    }
    for (const [mount, { subPath, subPathExpr }] of (container.volumeMounts ?? []).entries()) {
      if (!isBlank(subPath))
        errors.push(forbidden(`${at}.volumeMounts[${mount}].subPath`, 'cannot be set for an Ephemeral Container'));
      if (!isBlank(subPathExpr))
        errors.push(forbidden(`${at}.volumeMounts[${mount}].subPathExpr`, 'cannot be set for an Ephemeral Container'));
    }
  }
  return errors;
}

/** Rejects white space around the images of a pod. Templates are not checked. */
export function imageSpaceErrors(containers: readonly (Container | EphemeralContainer)[], path: string): FieldError[] {
  const errors: FieldError[] = [];
  for (const [index, { image = '' }] of containers.entries()) {
    if (image !== image.trim())
      errors.push(invalid(`${path}[${index}].image`, image, 'must not have leading or trailing whitespace'));
  }
  return errors;
}
