/** Decides which requests quotas are charged for, and computes the usage of an object and whether a quota matches it. */
import { CLASS_RESOURCE_PREFIX } from '../../../api/kinds/device-claims.ts';
import type { PersistentVolumeClaim, Pod, ResourceClaim, ResourceQuota, Service } from '../../../api/kinds/kinds.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import {
  addQuantities,
  compareQuantities,
  newQuantity,
  parseQuantity,
  type Quantity,
  subtractQuantities,
} from '../../../api/meta/quantity.ts';
import { isExtendedResource } from '../../../api/kinds/resource-validation.ts';
import { type ClaimLookup, podOfClaim } from './claim-owners.ts';
import { podTotal, quantities } from './pod-resources.ts';
import type { AdmissionAttributes } from './admission.ts';
import type { PodSpec } from './pod-attributes.ts';
import { BETA_STORAGE_CLASS_ANNOTATION } from '../../../api/meta/well-known-labels.ts';
import { resourceClaims } from '../../../api/client/resources.ts';
import { groupResourceName, isResource } from '../../../api/meta/group-resource.ts';

/** Amounts by the name of a quota's resource, such as `requests.cpu` or `count/jobs.batch`. */
export type Usage = ReadonlyMap<string, Quantity>;

const ONE = newQuantity(1);
const NOTHING = newQuantity(0);
/** Matches the amounts of a quota that the containers of pods must specify. */
export const COMPUTE_AMOUNT = /^(?:cpu|memory|(?:requests|limits)\.(?:cpu|memory))$/;
/** Resources that are counted under their plain name as well as under `count/…`. */
export const PLAIN_COUNTS: ReadonlySet<string> = new Set([
  'pods',
  'services',
  'replicationcontrollers',
  'resourcequotas',
  'secrets',
  'configmaps',
  'persistentvolumeclaims',
]);
/** Resources that are counted under their own name as well as under `requests.…`. */
const BARE_REQUESTS = new Set(['cpu', 'memory', 'ephemeral-storage']);
const STORAGE_CLASS = '.storageclass.storage.k8s.io/';

/** The resources that are charged for updates as well as for creates. */
const UPDATED = new Set(['services', 'persistentvolumeclaims', 'resourceclaims.resource.k8s.io']);
/**
 * The resources that quotas do not count. Reviews and bindings are not stored, and a quota for events would cause further
 * events. A custom resource of the same name in another group is stored and counted.
 */
const UNCOUNTED = new Set([
  'subjectaccessreviews.authorization.k8s.io',
  'selfsubjectaccessreviews.authorization.k8s.io',
  'localsubjectaccessreviews.authorization.k8s.io',
  'selfsubjectrulesreviews.authorization.k8s.io',
  'tokenreviews.authentication.k8s.io',
  'selfsubjectreviews.authentication.k8s.io',
  'events',
  'events.events.k8s.io',
  'bindings',
]);

/**
 * Whether quotas are charged for a create or an update, as in kube-apiserver. `activeDeadlineSeconds` counts, because it
 * decides between the scopes Terminating and NotTerminating.
 */
export function isCharged({ operation, resource, subresource, object, oldObject }: AdmissionAttributes): boolean {
  const name = groupResourceName(resource);
  if (UNCOUNTED.has(name)) return false;
  if (name === 'pods') {
    if (subresource !== '') return subresource === 'resize' && operation === 'UPDATE';
    return operation === 'CREATE' || hasDeadline(object as Pod) !== hasDeadline(oldObject as Pod);
  }
  if (subresource !== '') return false;
  return operation === 'CREATE' || UPDATED.has(name);
}

/**
 * Returns what an object is charged for: its count, and for pods, services, claims and resource claims what they request. With
 * a lookup, the devices of resource claims also count as the extended resources that their classes back.
 */
export function usageOf(group: string, resource: string, object: KubeObject, lookup?: ClaimLookup): Usage {
  const usage = new Map<string, Quantity>([[`count/${groupResourceName({ group, resource })}`, ONE]]);
  if (isResource({ group, resource }, resourceClaims)) addDevices(usage, object as ResourceClaim, lookup);
  if (group !== '') return usage;
  if (PLAIN_COUNTS.has(resource)) usage.set(resource, ONE);
  if (resource === 'pods') addPod(usage, object as Pod);
  else if (resource === 'services') addService(usage, object as Service);
  else if (resource === 'persistentvolumeclaims') addClaim(usage, object as PersistentVolumeClaim);
  return usage;
}

function addPod(usage: Map<string, Quantity>, pod: Pod): void {
  // A finished pod uses no resources; the object itself still counts.
  if (pod.status?.phase === 'Succeeded' || pod.status?.phase === 'Failed') {
    usage.delete('pods');
    return;
  }
  const { spec } = pod;
  if (spec === undefined) return;
  const overhead = quantities(spec.overhead);
  const total = (field: 'requests' | 'limits'): Map<string, Quantity> => {
    const amounts = podTotal(spec, field);
    for (const [name, amount] of overhead) {
      const before = amounts.get(name);
      if (before !== undefined) amounts.set(name, addQuantities(before, amount));
      else if (field === 'requests') amounts.set(name, amount);
    }
    return amounts;
  };
  for (const [name, amount] of total('requests')) {
    usage.set(`requests.${name}`, amount);
    if (BARE_REQUESTS.has(name) || name.startsWith('hugepages-')) usage.set(name, amount);
  }
  for (const [name, amount] of total('limits')) usage.set(`limits.${name}`, amount);
}

function addService(usage: Map<string, Quantity>, service: Service): void {
  const ports = service.spec?.ports?.length ?? 0;
  if (service.spec?.type === 'NodePort') usage.set('services.nodeports', newQuantity(ports));
  if (service.spec?.type !== 'LoadBalancer') return;
  usage.set('services.loadbalancers', ONE);
  const isAllocated = service.spec.allocateLoadBalancerNodePorts !== false;
  const withNodePort = (service.spec.ports ?? []).filter((port) => (port.nodePort ?? 0) !== 0).length;
  usage.set('services.nodeports', newQuantity(isAllocated ? ports : withNodePort));
}

function addClaim(usage: Map<string, Quantity>, claim: PersistentVolumeClaim): void {
  const className = claim.metadata.annotations?.[BETA_STORAGE_CLASS_ANNOTATION] ?? claim.spec?.storageClassName ?? '';
  if (className !== '') usage.set(`${className}${STORAGE_CLASS}persistentvolumeclaims`, ONE);
  const text = claim.spec?.resources?.requests?.['storage'];
  if (text === undefined) return;
  const storage = parseQuantity(text);
  usage.set('requests.storage', storage);
  if (className !== '') usage.set(`${className}${STORAGE_CLASS}requests.storage`, storage);
}

type DeviceRequest = NonNullable<NonNullable<ResourceClaim['spec']['devices']>['requests']>[number];
const DEVICE_CLASS = '.deviceclass.resource.k8s.io/devices';
/** The maximum number of devices of a claim, which a request for all devices counts as. */
const ALL_DEVICES = 32;

/** Counts devices by class; of alternatives, the one with the most devices of a class counts. */
function addDevices(usage: Map<string, Quantity>, claim: ResourceClaim, lookup: ClaimLookup | undefined): void {
  const { spec } = claim;
  const byClass = new Map<string, number>();
  const countOf = (one: { readonly allocationMode?: string; readonly count?: number }): number =>
    one.allocationMode === 'All' ? ALL_DEVICES : (one.count ?? 1);
  for (const { exactly, firstAvailable } of spec.devices?.requests ?? ([] as DeviceRequest[])) {
    const maxCounts = new Map<string, number>();
    for (const one of exactly === undefined ? (firstAvailable ?? []) : [exactly])
      maxCounts.set(one.deviceClassName, Math.max(maxCounts.get(one.deviceClassName) ?? 0, countOf(one)));
    for (const [name, count] of maxCounts) byClass.set(name, (byClass.get(name) ?? 0) + count);
  }
  for (const [name, count] of byClass) usage.set(`${name}${DEVICE_CLASS}`, newQuantity(count));
  if (lookup !== undefined) addExtendedResources(usage, claim, byClass, lookup);
}

/** Counts devices as extended resources, without those for which the pod of the claim is charged. */
function addExtendedResources(
  usage: Map<string, Quantity>,
  claim: ResourceClaim,
  byClass: ReadonlyMap<string, number>,
  lookup: ClaimLookup,
): void {
  const extended = new Map<string, Quantity>();
  for (const [name, count] of byClass) {
    const resource = lookup.deviceClass(name)?.spec?.extendedResourceName;
    if (resource === undefined) continue;
    for (const key of [`requests.${resource}`, `${REQUESTS_OF_CLASS}${name}`])
      extended.set(key, addQuantities(extended.get(key) ?? NOTHING, newQuantity(count)));
  }
  const pod = extended.size === 0 ? undefined : podOfClaim(claim, lookup);
  const ofPod = pod === undefined ? new Map<string, Quantity>() : usageOf('', 'pods', pod);
  for (const [key, amount] of extended) {
    const beyondPod = subtractQuantities(amount, ofPod.get(key) ?? NOTHING);
    if (compareQuantities(beyondPod, NOTHING) > 0) usage.set(key, beyondPod);
  }
}

const REQUESTS_OF_CLASS = `requests.${CLASS_RESOURCE_PREFIX}`;

/** Whether devices of claims may count for this name of a quota, besides the requests of pods. */
export function isExtendedRequest(name: string): boolean {
  return (
    name.startsWith(REQUESTS_OF_CLASS) ||
    (name.startsWith('requests.') && isExtendedResource(name.slice('requests.'.length)))
  );
}

/** One requirement of a quota's scope selector. */
export interface ScopeRequirement {
  readonly scopeName: string;
  readonly operator: string;
  readonly values?: readonly string[] | null;
}

/** Whether the object is in all scopes of the quota. A quota without scopes matches everything. */
export function quotaMatches(quota: ResourceQuota, resource: string, object: KubeObject): boolean {
  const requirements: ScopeRequirement[] = [
    ...(quota.spec?.scopes ?? []).map((scopeName) => ({ scopeName, operator: 'Exists' })),
    ...(quota.spec?.scopeSelector?.matchExpressions ?? []),
  ];
  return requirements.every((one) => inScope(resource, object, one));
}

/** Whether an object is in one scope. Kinds that have no scopes are in none. */
export function inScope(resource: string, object: KubeObject, requirement: ScopeRequirement): boolean {
  if (resource === 'pods') return podInScope(object as Pod, requirement);
  if (resource === 'persistentvolumeclaims' && requirement.scopeName === 'VolumeAttributesClass') {
    return inSet((object as PersistentVolumeClaim).spec?.volumeAttributesClassName ?? '', requirement);
  }
  return false;
}

function inSet(value: string, { operator, values }: ScopeRequirement): boolean {
  switch (operator) {
    case 'In':
      return values?.includes(value) ?? false;
    case 'NotIn':
      return !(values?.includes(value) ?? false);
    case 'Exists':
      return value !== '';
    default:
      return value === '';
  }
}

/** Whether a pod has an active deadline. Quotas call such a pod `Terminating`. */
const hasDeadline = (pod: Pod | undefined): boolean => (pod?.spec?.activeDeadlineSeconds ?? undefined) !== undefined;

function podInScope(pod: Pod, requirement: ScopeRequirement): boolean {
  const { spec } = pod;
  if (spec === undefined) return false;
  const isTerminating = hasDeadline(pod);
  switch (requirement.scopeName) {
    case 'Terminating':
      return isTerminating;
    case 'NotTerminating':
      return !isTerminating;
    case 'BestEffort':
      return isBestEffort(spec);
    case 'NotBestEffort':
      return !isBestEffort(spec);
    case 'PriorityClass':
      return inSet(spec.priorityClassName ?? '', requirement);
    case 'CrossNamespacePodAffinity':
      return crossesNamespaces(spec);
    default:
      return false;
  }
}

function isBestEffort(spec: PodSpec): boolean {
  const counts = (amounts: Readonly<Record<string, string>> | undefined | null): boolean =>
    [...quantities(amounts)].some(
      ([name, amount]) => (name === 'cpu' || name === 'memory') && compareQuantities(amount, NOTHING) > 0,
    );
  const all = [...spec.containers, ...(spec.initContainers ?? []), { resources: spec.resources }];
  return !all.some(({ resources }) => counts(resources?.requests) || counts(resources?.limits));
}

function crossesNamespaces(spec: PodSpec): boolean {
  const { podAffinity, podAntiAffinity } = spec.affinity ?? {};
  return [podAffinity, podAntiAffinity].some((affinity) => {
    const terms = [
      ...(affinity?.requiredDuringSchedulingIgnoredDuringExecution ?? []),
      ...(affinity?.preferredDuringSchedulingIgnoredDuringExecution ?? []).map((one) => one.podAffinityTerm),
    ];
    return terms.some(
      (term) =>
        (term.namespaces?.length ?? 0) > 0 || (term.namespaceSelector !== undefined && term.namespaceSelector !== null),
    );
  });
}

/**
 * Returns which CPU and memory amounts of a quota the containers of a pod do not specify, such as `must specify limits.memory
 * for: a; requests.cpu for: b`, or `undefined` if all are specified. An amount that the pod specifies as a whole is not
 * required of its containers.
 */
export function missingAmounts(spec: PodSpec, hard: readonly string[]): string | undefined {
  const podLevel = spec.resources;
  const parts = hard
    .filter((name) => COMPUTE_AMOUNT.test(name))
    .sort()
    .flatMap((name) => {
      const isLimit = name.startsWith('limits.');
      const resource = name.replace(/^(?:requests|limits)\./, '');
      const field = isLimit ? 'limits' : 'requests';
      if (podLevel?.[field]?.[resource] !== undefined) return [];
      const missing = [...spec.containers, ...(spec.initContainers ?? [])]
        .filter((container) => container.resources?.[field]?.[resource] === undefined)
        .map((container) => container.name);
      return missing.length === 0 ? [] : [`${name} for: ${[...new Set(missing)].sort().join(',')}`];
    });
  return parts.length === 0 ? undefined : `must specify ${parts.join('; ')}`;
}
