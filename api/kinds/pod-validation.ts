/** Validates the spec of pods and pod templates, with errors in kube-apiserver's order. */
import {
  duplicate,
  type FieldError,
  forbidden,
  invalid,
  required,
  tooLong,
  unsupportedValue,
} from '../meta/field-error.ts';
import {
  dnsLabelErrors,
  dnsSubdomainErrors,
  dnsSubdomainWithUnderscoreErrors,
  qualifiedNameErrors,
} from '../meta/names.ts';
import { ipErrors } from '../meta/ip-addresses.ts';
import { ownMember } from '../meta/own-member.ts';
import {
  addQuantities,
  compareQuantities,
  formatQuantity,
  newQuantity,
  parseQuantity,
  type Quantity,
} from '../meta/quantity.ts';
import { validateLabels } from '../meta/selector.ts';
import { validateAnnotations } from '../meta/validation.ts';
import {
  containerListErrors,
  ephemeralContainerErrors,
  imageSpaceErrors,
  initContainerErrors,
} from './container-validation.ts';
import type { ContainerContext } from './container-context.ts';
import { MAX_NAMESERVERS, MAX_SEARCHES, MAX_SEARCH_CHARACTERS } from './dns-limits.ts';
import { fileVolumeErrors } from './environment-validation.ts';
import { hostProcessErrors, operatingSystemErrors } from './operating-system-validation.ts';
import { confinementErrors, podAnnotationErrors } from './pod-annotation-validation.ts';
import { initAndMainContainers } from './pod-containers.ts';
import type { Pod, PodSpec, PodTemplate, Quantities } from './pod-types.ts';
import { resourceRequirementErrors } from './resource-validation.ts';
import { affinityErrors, spreadErrors, tolerationErrors } from './scheduling-validation.ts';
import { podSecurityErrors } from './security-context-validation.ts';
import { invalidFor, inRange, isBlank } from './validation-rules.ts';
import { checkVolumes } from './volume-validation.ts';
import { INT32_MAX } from '../meta/integers.ts';

/** Validates a new pod. The caller validates the metadata, except the annotations that concern the spec. */
export function validatePod(pod: Pod): FieldError[] {
  const spec = pod.spec ?? {};
  const errors = [
    ...podAnnotationErrors(pod.metadata.annotations, spec, 'metadata.annotations'),
    ...podSpecErrors(spec, 'spec', pod.metadata.name),
    ...podOnlyErrors(spec),
  ];
  if ((spec.ephemeralContainers ?? []).length > 0)
    errors.push(forbidden('spec.ephemeralContainers', 'cannot be set on create'));
  if (!isBlank(spec.nodeName) && (spec.schedulingGates ?? []).length > 0) {
    errors.push(forbidden('spec.nodeName', 'cannot be set until all schedulingGates have been cleared'));
  }
  errors.push(...confinementErrors(pod.metadata.annotations, spec, 'spec'));
  return errors;
}

/** Validates the rules that apply to pods and not to templates. */
export function podOnlyErrors(spec: PodSpec): FieldError[] {
  const errors: FieldError[] = [];
  if (isBlank(spec.serviceAccountName)) {
    for (const [index, volume] of (spec.volumes ?? []).entries()) {
      for (const [at, source] of (volume.projected?.sources ?? []).entries()) {
        if (source.serviceAccountToken === undefined) continue;
        const path = `spec.volumes[${index}].projected.sources[${at}].serviceAccountToken`;
        errors.push(forbidden(path, 'must not be specified when serviceAccountName is not set'));
      }
    }
  }
  errors.push(
    ...imageSpaceErrors(spec.containers ?? [], 'spec.containers'),
    ...imageSpaceErrors(spec.initContainers ?? [], 'spec.initContainers'),
  );
  return errors;
}

/** Validates the labels and annotations of a pod template. */
export function podTemplateMetadataErrors(template: PodTemplate | undefined, path: string): FieldError[] {
  const { metadata: meta, spec = {} } = template ?? {};
  return [
    ...validateLabels(meta?.labels, `${path}.labels`),
    ...validateAnnotations(meta?.annotations, `${path}.annotations`),
    ...podAnnotationErrors(meta?.annotations, spec, `${path}.annotations`),
  ];
}

/** Returns the errors of a pod template. `path` is its path, such as `spec.template`. */
export function podTemplateErrors(template: PodTemplate | undefined, path: string): FieldError[] {
  const meta = template?.metadata;
  const spec = template?.spec ?? {};
  const errors = [
    ...podTemplateMetadataErrors(template, path),
    ...podSpecErrors(spec, `${path}.spec`),
    ...confinementErrors(meta?.annotations, spec, `${path}.spec`),
  ];
  if ((spec.ephemeralContainers ?? []).length > 0) {
    errors.push(forbidden(`${path}.spec.ephemeralContainers`, 'ephemeral containers not allowed in pod template'));
  }
  return errors;
}

const RESTART = ['Always', 'OnFailure', 'Never'];
const DNS_POLICIES = ['ClusterFirstWithHostNet', 'ClusterFirst', 'Default', 'None'];

/** Returns the errors of a pod's spec. `podName` is the name of the pod, and empty for templates. */
export function podSpecErrors(spec: PodSpec, path: string, podName = ''): FieldError[] {
  const graceSeconds = spec.terminationGracePeriodSeconds;
  const claims = new Set((spec.resourceClaims ?? []).map(({ name = '' }) => name).filter((name) => name !== ''));
  const volumes = checkVolumes(spec, `${path}.volumes`, { podName });
  const context: ContainerContext = { spec, volumes: volumes.kinds, claims };
  return [
    ...volumes.errors,
    ...resourceClaimErrors(spec, `${path}.resourceClaims`),
    ...containerListErrors(context, `${path}.containers`, graceSeconds),
    ...initContainerErrors(context, `${path}.initContainers`, graceSeconds),
    ...ephemeralContainerErrors(context, `${path}.ephemeralContainers`),
    ...resourceRequirementErrors(spec.resources, `${path}.resources`, { claims, podLevel: true }),
    ...podLevelErrors(spec, `${path}.resources`),
    ...hostNetworkErrors(spec, path, podName !== ''),
    ...choice(`${path}.restartPolicy`, spec.restartPolicy, RESTART),
    ...choice(`${path}.dnsPolicy`, spec.dnsPolicy, DNS_POLICIES),
    ...validateLabels(spec.nodeSelector as Record<string, string> | undefined, `${path}.nodeSelector`),
    ...podSecurityErrors(spec.securityContext, spec, path),
    ...affinityErrors(spec.affinity, `${path}.affinity`),
    ...dnsConfigErrors(spec, `${path}.dnsConfig`),
    ...gateErrors(spec, path),
    ...spreadErrors(spec, `${path}.topologySpreadConstraints`),
    ...hostProcessErrors(spec, path),
    ...hostUserErrors(spec, path),
    ...hostnameOverrideErrors(spec, path),
    ...nameErrors(spec, path),
    ...tolerationErrors(spec.tolerations ?? [], `${path}.tolerations`),
    ...hostAliasErrors(spec, `${path}.hostAliases`),
    ...classErrors(spec, path),
    ...operatingSystemErrors(spec, path),
    ...fileVolumeErrors(spec, path),
  ];
}

const NOTHING = newQuantity(0);

function choice(field: string, value: string | undefined, supported: readonly string[]): FieldError[] {
  if (isBlank(value)) return [required(field)];
  return supported.includes(value) ? [] : [unsupportedValue(field, value, supported)];
}

function resourceClaimErrors(spec: PodSpec, path: string): FieldError[] {
  const errors: FieldError[] = [];
  const names = new Set<string>();
  for (const [index, claim] of (spec.resourceClaims ?? []).entries()) {
    const at = `${path}[${index}]`;
    const { name = '', resourceClaimName, resourceClaimTemplateName } = claim;
    const shown = {
      Name: name,
      ResourceClaimName: resourceClaimName ?? null,
      ResourceClaimTemplateName: resourceClaimTemplateName ?? null,
    };
    if (name === '') errors.push(required(`${at}.name`));
    else if (names.has(name)) errors.push(duplicate(`${at}.name`, name));
    else {
      errors.push(...invalidFor(`${at}.name`, name, dnsLabelErrors(name)));
      names.add(name);
    }
    if (resourceClaimName !== undefined && resourceClaimTemplateName !== undefined) {
      errors.push(
        invalid(at, shown, 'at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified'),
      );
    }
    if (resourceClaimName === undefined && resourceClaimTemplateName === undefined) {
      errors.push(invalid(at, shown, 'must specify one of: `resourceClaimName`, `resourceClaimTemplateName`'));
    }
    if (resourceClaimName !== undefined)
      errors.push(...invalidFor(`${at}.resourceClaimName`, resourceClaimName, dnsSubdomainErrors(resourceClaimName)));
    if (resourceClaimTemplateName !== undefined) {
      errors.push(
        ...invalidFor(
          `${at}.resourceClaimTemplateName`,
          resourceClaimTemplateName,
          dnsSubdomainErrors(resourceClaimTemplateName),
        ),
      );
    }
  }
  return errors;
}

/** Returns what the containers of a pod request at most at one time. */
function aggregateRequest(spec: PodSpec, name: string): Quantity {
  const requestOf = ({ resources }: { resources?: { requests?: unknown } | undefined }): Quantity => {
    const value = (resources?.requests as Quantities | undefined)?.[name];
    return value === undefined ? NOTHING : parseQuantity(value);
  };
  let sidecars = NOTHING;
  let starting = NOTHING;
  for (const container of spec.initContainers ?? []) {
    const peak = addQuantities(sidecars, requestOf(container));
    if (container.restartPolicy === 'Always') sidecars = peak;
    if (compareQuantities(peak, starting) > 0) starting = peak;
  }
  const running = (spec.containers ?? []).reduce(
    (sum, container) => addQuantities(sum, requestOf(container)),
    sidecars,
  );
  return compareQuantities(running, starting) > 0 ? running : starting;
}

/** Whether a container requests the resource. */
function isRequested(spec: PodSpec, name: string): boolean {
  return initAndMainContainers(spec).some(
    ({ resources }) => ownMember((resources?.requests ?? {}) as Quantities, name) !== undefined,
  );
}

/** Validates pod-level resources against those of the containers. */
function podLevelErrors(spec: PodSpec, path: string): FieldError[] {
  const { resources } = spec;
  if (resources === undefined) return [];
  const errors: FieldError[] = [];
  const requests = (resources.requests ?? {}) as Quantities;
  const limits = (resources.limits ?? {}) as Quantities;
  for (const [name, value] of Object.entries(requests)) {
    if (value === undefined || !isRequested(spec, name)) continue;
    const sum = aggregateRequest(spec, name);
    if (compareQuantities(sum, parseQuantity(value)) > 0) {
      const text = `must be greater than or equal to aggregate container requests of ${formatQuantity(sum)}`;
      errors.push(invalid(`${path}.requests[${name}]`, value, text));
    }
  }
  for (const [index, container] of (spec.containers ?? []).entries()) {
    for (const [name, value] of Object.entries((container.resources?.limits ?? {}) as Quantities)) {
      const limit = ownMember(limits, name);
      if (value === undefined || limit === undefined || parseQuantity(value).nano <= parseQuantity(limit).nano)
        continue;
      const field = `${path}.containers[${index}][${name}].limits`;
      errors.push(invalid(field, value, `must be less than or equal to pod limits of ${limit}`));
    }
  }
  return errors;
}

/**
 * Returns the errors of ports on the host's network, where the host port must equal the container port. A template may omit
 * it.
 */
function hostNetworkErrors(spec: PodSpec, path: string, isPod: boolean): FieldError[] {
  if (spec.hostNetwork !== true) return [];
  const errors: FieldError[] = [];
  for (const [index, container] of (spec.containers ?? []).entries()) {
    for (const [at, { hostPort = 0, containerPort = 0 }] of (container.ports ?? []).entries()) {
      if (hostPort === containerPort || (hostPort === 0 && !isPod)) continue;
      const field = `${path}.containers[${index}].ports[${at}].hostPort`;
      errors.push(invalid(field, hostPort, 'must match `containerPort` when `hostNetwork` is true'));
    }
  }
  return errors;
}

function dnsConfigErrors(spec: PodSpec, path: string): FieldError[] {
  const config = spec.dnsConfig;
  const errors: FieldError[] = [];
  if (spec.dnsPolicy === 'None') {
    if (config === undefined) return [required(path, 'must provide `dnsConfig` when `dnsPolicy` is None')];
    if ((config.nameservers ?? []).length === 0) {
      return [required(`${path}.nameservers`, 'must provide at least one DNS nameserver when `dnsPolicy` is None')];
    }
  }
  if (config === undefined) return errors;
  const { nameservers = [], searches = [], options = [] } = config;
  if (nameservers.length > MAX_NAMESERVERS)
    errors.push(invalid(`${path}.nameservers`, nameservers, `must not have more than ${MAX_NAMESERVERS} nameservers`));
  for (const [index, server] of nameservers.entries()) {
    errors.push(...ipErrors(`${path}.nameservers[${index}]`, server));
  }
  if (searches.length > MAX_SEARCHES)
    errors.push(invalid(`${path}.searches`, searches, `must not have more than ${MAX_SEARCHES} search paths`));
  if (searches.join(' ').length > MAX_SEARCH_CHARACTERS) {
    const text = `must not have more than ${MAX_SEARCH_CHARACTERS} characters (including spaces) in the search list`;
    errors.push(invalid(`${path}.searches`, searches, text));
  }
  for (const [index, search] of searches.entries()) {
    if (search === '.') continue;
    const bare = search.endsWith('.') ? search.slice(0, -1) : search;
    errors.push(...invalidFor(`${path}.searches[${index}]`, bare, dnsSubdomainWithUnderscoreErrors(bare)));
  }
  for (const [index, { name = '' }] of options.entries())
    if (name === '') errors.push(required(`${path}.options[${index}]`, 'must not be empty'));
  return errors;
}

function gateErrors(spec: PodSpec, path: string): FieldError[] {
  const errors: FieldError[] = [];
  for (const [index, { conditionType = '' }] of (spec.readinessGates ?? []).entries()) {
    errors.push(
      ...invalidFor(
        `${path}.readinessGates[${index}].conditionType`,
        conditionType,
        qualifiedNameErrors(conditionType),
      ),
    );
  }
  const seen = new Set<string>();
  for (const [index, { name = '' }] of (spec.schedulingGates ?? []).entries()) {
    const at = `${path}.schedulingGates[${index}]`;
    errors.push(...invalidFor(at, name, qualifiedNameErrors(name)));
    if (seen.has(name)) errors.push(duplicate(at, name));
    seen.add(name);
  }
  return errors;
}

function hostUserErrors(spec: PodSpec, path: string): FieldError[] {
  if (spec.hostUsers !== false) return [];
  const errors: FieldError[] = [];
  const text = 'when `hostUsers` is false';
  if (spec.hostNetwork === true) errors.push(forbidden(`${path}.hostNetwork`, text));
  if (spec.hostPID === true) errors.push(forbidden(`${path}.HostPID`, text));
  if (spec.hostIPC === true) errors.push(forbidden(`${path}.HostIPC`, text));
  for (const [index, container] of (spec.containers ?? []).entries()) {
    if ((container.volumeDevices ?? []).length > 0)
      errors.push(forbidden(`${path}.containers[${index}].volumeDevices`, text));
  }
  return errors;
}

function nameErrors(spec: PodSpec, path: string): FieldError[] {
  const errors: FieldError[] = [];
  const subdomain = (field: string, value: string | undefined): void => {
    if (!isBlank(value)) errors.push(...invalidFor(`${path}.${field}`, value, dnsSubdomainErrors(value)));
  };
  const label = (field: string, value: string | undefined): void => {
    if (!isBlank(value)) errors.push(...invalidFor(`${path}.${field}`, value, dnsLabelErrors(value)));
  };
  subdomain('serviceAccountName', spec.serviceAccountName);
  subdomain('nodeName', spec.nodeName);
  if (spec.activeDeadlineSeconds !== undefined)
    errors.push(...inRange(`${path}.activeDeadlineSeconds`, spec.activeDeadlineSeconds, 1, INT32_MAX));
  label('hostname', spec.hostname);
  label('subdomain', spec.subdomain);
  return errors;
}

/** The limit of Linux. */
const MAX_HOSTNAME_BYTES = 64;

function hostnameOverrideErrors(spec: PodSpec, path: string): FieldError[] {
  const { hostnameOverride } = spec;
  if (hostnameOverride === undefined) return [];
  const field = `${path}.hostnameOverride`;
  const errors: FieldError[] = [];
  if (spec.setHostnameAsFQDN === true)
    errors.push(forbidden(field, 'may not be specified when setHostnameAsFQDN is true'));
  if (spec.hostNetwork === true) errors.push(forbidden(field, 'may not be specified when hostNetwork is true'));
  if (Buffer.byteLength(hostnameOverride) > MAX_HOSTNAME_BYTES) errors.push(tooLong(field, MAX_HOSTNAME_BYTES));
  errors.push(...invalidFor(field, hostnameOverride, dnsSubdomainErrors(hostnameOverride)));
  return errors;
}

function hostAliasErrors(spec: PodSpec, path: string): FieldError[] {
  const errors: FieldError[] = [];
  for (const [index, { ip = '', hostnames = [] }] of (spec.hostAliases ?? []).entries()) {
    errors.push(...ipErrors(`${path}[${index}].ip`, ip));
    for (const [at, name] of hostnames.entries())
      errors.push(...invalidFor(`${path}[${index}].hostnames[${at}]`, name, dnsSubdomainErrors(name)));
  }
  return errors;
}

/** The values of `preemptionPolicy`, of pods and of priority classes. */
export const PREEMPTION_POLICIES = ['PreemptLowerPriority', 'Never'];

function classErrors(spec: PodSpec, path: string): FieldError[] {
  const errors: FieldError[] = [];
  const { priorityClassName, runtimeClassName, preemptionPolicy, overhead } = spec;
  if (!isBlank(priorityClassName))
    errors.push(...invalidFor(`${path}.priorityClassName`, priorityClassName, dnsSubdomainErrors(priorityClassName)));
  if (runtimeClassName !== undefined)
    errors.push(...invalidFor(`${path}.runtimeClassName`, runtimeClassName, dnsSubdomainErrors(runtimeClassName)));
  if (preemptionPolicy !== undefined)
    errors.push(...choice(`${path}.preemptionPolicy`, preemptionPolicy, PREEMPTION_POLICIES));
  if (overhead !== undefined)
    errors.push(...resourceRequirementErrors({ limits: overhead }, `${path}.overhead`, { claims: new Set() }));
  return errors;
}
