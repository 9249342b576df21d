/**
 * Evaluates the resource claims of a pod: which of them are allocated, and which devices of a node the unallocated ones can
 * get.
 */
import { randomUUID } from 'node:crypto';
import { MAX_CONSUMERS } from '../../../api/kinds/device-limits.ts';
import { matchesNodeSelector, type NodeSelector } from '../../../api/kinds/node-selection.ts';
import type { ResourceClaim } from '../../../api/kinds/kinds.ts';
import type { DeviceLookup } from '../cluster-state.ts';
import type { NodeInfo } from '../node-info.ts';
import type { PodInfo } from '../pod-info.ts';
import type { DevicesInUse } from './allocated-devices.ts';
import { allocateDevices, type AllocationOutcome } from './device-allocator.ts';
import { type DeviceAllocation, requestsOf } from './device-requests.ts';
import { backedResources, extendedClaimOn, type RequestMapping } from './extended-resources.ts';
import { SearchBudget } from './search-budget.ts';

/** The claims of a pod by what the scheduler has to do. */
interface PodDevices {
  readonly allocated: readonly ResourceClaim[];
  /** The claims that the scheduler allocates. */
  readonly open: readonly ResourceClaim[];
  /** Whether a device class backs extended resources that the pod requests. */
  readonly hasExtended: boolean;
  /** The claim for extended resources that was created for an earlier attempt whose binding failed. */
  readonly stale: ResourceClaim | undefined;
}

/** A claim that is reserved for the pod on its node. */
export interface ReservedClaim {
  readonly claim: ResourceClaim;
  /** The allocation of the claim. Absent if it is already allocated. */
  readonly allocation: DeviceAllocation | undefined;
  /** The mappings of a claim for extended resources in the status of the pod. The claim has no name until it is created. */
  readonly mappings?: readonly RequestMapping[] | undefined;
}

/** Returns the claims that the pod refers to, or a text that says why it may not be scheduled yet. */
export function claimsOfPod(pod: PodInfo, lookup: DeviceLookup): readonly ResourceClaim[] | string {
  const claims: ResourceClaim[] = [];
  const { resourceClaims = [] } = pod.pod.spec ?? {};
  // A claim that is not known yet may have any device.
  if (resourceClaims.length > 0 && !lookup.knowsDevices()) return 'waiting for the resource claims of the cluster';
  for (const reference of resourceClaims) {
    const found = claimName(pod, reference);
    if (found === undefined) return `pod claim ${reference.name}: resource claim not created yet`;
    const { name } = found;
    if (name === undefined) continue;
    const claim = lookup.deviceClaim(pod.namespace, name);
    if (claim === undefined) return `resourceclaim.resource.k8s.io "${name}" not found`;
    if (claim.metadata.deletionTimestamp !== undefined) return `resourceclaim "${name}" is being deleted`;
    if (reference.resourceClaimName === undefined && !isControlledBy(claim, pod))
      return `ResourceClaim ${pod.namespace}/${name} was not created for the pod`;
    claims.push(claim);
  }
  return claims;
}

const isControlledBy = ({ metadata }: ResourceClaim, { uid }: PodInfo): boolean =>
  metadata.ownerReferences?.some((owner) => owner.controller === true && owner.uid === uid) === true;

/** Returns the claims of the pod by their state, or a text that says why no node suits. */
export function devicesOf(pod: PodInfo, lookup: DeviceLookup): PodDevices | string {
  const claims = claimsOfPod(pod, lookup);
  if (typeof claims === 'string') return claims;
  const allocated: ResourceClaim[] = [];
  const open: ResourceClaim[] = [];
  for (const claim of claims) {
    const problem = problemOf(pod, claim, lookup);
    if (problem !== undefined) return problem;
    (claim.status?.allocation === undefined ? open : allocated).push(claim);
  }
  const hasExtended = backedResources(pod, lookup.extendedResources()).length > 0;
  return { allocated, open, hasExtended, stale: hasExtended ? lookup.extendedClaim(pod) : undefined };
}

/** Returns the claims to allocate on the node. The one for extended resources is the last, and has `mappings`. */
export function claimsOn(
  pod: PodInfo,
  node: NodeInfo,
  { open, hasExtended }: PodDevices,
  lookup: DeviceLookup,
): { readonly claims: readonly ResourceClaim[]; readonly mappings?: readonly RequestMapping[] } {
  const extended = hasExtended ? extendedClaimOn(pod, node, lookup.extendedResources()) : undefined;
  return extended === undefined ? { claims: open } : { claims: [...open, extended.claim], mappings: extended.mappings };
}

/**
 * Returns the name of the claim. A claim that the pod does not need has none. Returns `undefined` if the claim is not created
 * yet.
 */
function claimName(
  { pod }: PodInfo,
  { name, resourceClaimName }: { readonly name: string; readonly resourceClaimName?: string | undefined },
): { readonly name: string | undefined } | undefined {
  if (resourceClaimName !== undefined) return { name: resourceClaimName };
  const status = pod.status?.resourceClaimStatuses?.find((entry) => entry.name === name);
  return status === undefined ? undefined : { name: status.resourceClaimName };
}

function problemOf(pod: PodInfo, claim: ResourceClaim, lookup: DeviceLookup): string | undefined {
  const { name = '', namespace = '', uid = '' } = claim.metadata;
  if (claim.status?.allocation !== undefined) {
    const { reservedFor = [] } = claim.status;
    const isFull = reservedFor.length >= MAX_CONSUMERS && !reservedFor.some((consumer) => consumer.uid === pod.uid);
    return isFull ? 'resourceclaim in use' : undefined;
  }
  if (lookup.isBeingAllocated(uid)) return `resource claim ${namespace}/${name} is in the process of being allocated`;
  for (const { alternatives } of requestsOf(claim)) {
    for (const { name: request, deviceClassName } of alternatives)
      if (lookup.deviceClass(deviceClassName) === undefined)
        return `request ${request}: device class ${deviceClassName} does not exist`;
  }
  return undefined;
}

/** Whether the devices of an allocated claim can be used on the node. */
export function isUsableOn({ status }: ResourceClaim, node: NodeInfo): boolean {
  const selector = status?.allocation?.nodeSelector as NodeSelector | undefined;
  return selector === undefined || matchesNodeSelector(selector, node);
}

/**
 * Allocates devices of a node to the open claims of a pod. `allocated` has the devices that claims hold. The budget is for the
 * whole decision.
 */
export function allocateOn(
  node: NodeInfo,
  open: readonly ResourceClaim[],
  lookup: DeviceLookup,
  { allocated, budget }: { readonly allocated: DevicesInUse; readonly budget: SearchBudget },
): AllocationOutcome {
  return budget.onNode((share) =>
    allocateDevices({
      claims: open,
      pools: lookup.devicePools().for(node, allocated),
      allocated,
      deviceClass: (name) => lookup.deviceClass(name),
      selection: lookup.deviceSelection,
      newShareId: randomUUID,
      budget: share,
    }),
  );
}

/**
 * Returns the claims of a pod that is about to run on the node. Returns `undefined` if the pod cannot get its devices there.
 */
export function reserveOn(pod: PodInfo, node: NodeInfo, lookup: DeviceLookup): readonly ReservedClaim[] | undefined {
  const devices = devicesOf(pod, lookup);
  if (typeof devices === 'string') return undefined;
  const reserved = devices.allocated.map((claim) => ({ claim, allocation: undefined }));
  const { claims, mappings } = claimsOn(pod, node, devices, lookup);
  if (claims.length === 0) return reserved;
  const search = { allocated: lookup.allocatedDevices(), budget: new SearchBudget() };
  const outcome = allocateOn(node, claims, lookup, search);
  if (outcome.kind !== 'allocated') return undefined;
  const { allocations } = outcome;
  const opened = claims.map((claim, index) => ({
    claim,
    allocation: allocations[index],
    mappings: index < devices.open.length ? undefined : mappings,
  }));
  return [...reserved, ...opened];
}

/**
 * Returns a claim that keeps the pod from a node: an allocated one that no other pod uses, or one for extended resources that
 * an attempt left behind. `no-claims` means that the pod needs no devices, and `undefined` that no claim is in the way or that
 * one of them cannot be used at all.
 */
export function claimInTheWay(
  pod: PodInfo,
  nodes: readonly NodeInfo[],
  lookup: DeviceLookup,
): ResourceClaim | 'no-claims' | undefined {
  const devices = devicesOf(pod, lookup);
  if (typeof devices === 'string') return undefined;
  const { allocated, open, hasExtended, stale } = devices;
  if (allocated.length + open.length === 0 && !hasExtended) return 'no-claims';
  const unused = allocated.find(
    (claim) =>
      (claim.status?.reservedFor ?? []).every(({ uid }) => uid === pod.uid) &&
      nodes.some((node) => !isUsableOn(claim, node)),
  );
  return unused ?? stale;
}
