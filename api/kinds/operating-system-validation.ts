/** Validates the fields that a pod may set for its operating system, and Windows HostProcess containers. */
import { forbidden, invalid, required, unsupportedValue, type FieldError } from '../meta/field-error.ts';
import { containersOf } from './pod-annotation-validation.ts';
import type { PodSpec } from './pod-types.ts';
import { isBlank } from './validation-rules.ts';

const SYSTEMS = ['linux', 'windows'];
const LINUX_POD_FIRST = ['appArmorProfile', 'seLinuxOptions'] as const;
const LINUX_POD = ['seccompProfile', 'fsGroup', 'fsGroupChangePolicy', 'sysctls'] as const;
const LINUX_POD_LAST = [
  'runAsUser',
  'runAsGroup',
  'supplementalGroups',
  'supplementalGroupsPolicy',
  'seLinuxChangePolicy',
] as const;
const LINUX_CONTAINER = [
  'appArmorProfile',
  'seLinuxOptions',
  'seccompProfile',
  'capabilities',
  'readOnlyRootFilesystem',
  'privileged',
  'allowPrivilegeEscalation',
  'procMount',
  'runAsUser',
  'runAsGroup',
] as const;

/** Refuses unknown systems, and fields that the named system does not have. Without `os`, every field is allowed. */
export function operatingSystemErrors(spec: PodSpec, path: string): FieldError[] {
  const name = spec.os?.name;
  if (spec.os === undefined) return [];
  if (isBlank(name)) return [required(`${path}.os.name`)];
  if (!SYSTEMS.includes(name)) return [unsupportedValue(`${path}.os`, name, SYSTEMS)];
  const errors: FieldError[] = [];
  const containers = containersOf(spec, path);
  if (name === 'linux') {
    const text = 'windows options cannot be set for a linux pod';
    if (spec.securityContext?.windowsOptions !== undefined)
      errors.push(forbidden(`${path}.securityContext.windowsOptions`, text));
    for (const [container, at] of containers) {
      if (container.securityContext?.windowsOptions !== undefined)
        errors.push(forbidden(`${at}.securityContext.windowsOptions`, text));
    }
    return errors;
  }
  const text = 'cannot be set for a windows pod';
  const context = spec.securityContext ?? {};
  const given: readonly (readonly [string, boolean])[] = [
    ...LINUX_POD_FIRST.map((field) => [`securityContext.${field}`, context[field] !== undefined] as const),
    ['hostUsers', spec.hostUsers !== undefined],
    ['hostPID', spec.hostPID === true],
    ['hostIPC', spec.hostIPC === true],
    ...LINUX_POD.map((field) => [`securityContext.${field}`, isGiven(context[field])] as const),
    ['shareProcessNamespace', spec.shareProcessNamespace !== undefined],
    ...LINUX_POD_LAST.map((field) => [`securityContext.${field}`, context[field] !== undefined] as const),
  ];
  if (spec.resources !== undefined) errors.push(forbidden(`${path}.resources`, 'may not be set for a windows pod'));
  for (const [field, there] of given) if (there) errors.push(forbidden(`${path}.${field}`, text));
  for (const [container, at] of containers) {
    for (const field of LINUX_CONTAINER)
      if (container.securityContext?.[field] !== undefined)
        errors.push(forbidden(`${at}.securityContext.${field}`, text));
  }
  return errors;
}

/** Whether a field is set. An empty list counts as not set. */
const isGiven = (value: unknown): boolean => value !== undefined && !(Array.isArray(value) && value.length === 0);

/**
 * Validates HostProcess containers: either all containers of a pod are HostProcess containers or none is, and they need
 * the host's network.
 */
export function hostProcessErrors(spec: PodSpec, path: string): FieldError[] {
  const errors: FieldError[] = [];
  const ofPod = spec.securityContext?.windowsOptions?.hostProcess;
  let total = 0;
  let hosted = 0;
  for (const [container, at] of containersOf(spec, path)) {
    total++;
    const ofContainer = container.securityContext?.windowsOptions?.hostProcess;
    if (ofPod !== undefined && ofContainer !== undefined && ofPod !== ofContainer) {
      const field = `${at}.securityContext.windowsOptions.hostProcess`;
      errors.push(
        invalid(field, ofContainer, `pod hostProcess value must be identical if both are specified, was ${ofPod}`),
      );
    }
    if (ofContainer ?? ofPod ?? false) hosted++;
  }
  if (hosted === 0) return errors;
  if (hosted !== total) {
    const text = 'If pod contains any hostProcess containers then all containers must be HostProcess containers';
    errors.push(invalid(path, '', text));
  }
  if (spec.hostNetwork !== true) {
    const text = 'hostNetwork must be true if pod contains any hostProcess containers';
    errors.push(invalid(`${path}.hostNetwork`, false, text));
  }
  return errors;
}
