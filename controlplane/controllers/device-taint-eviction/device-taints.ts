/**
 * Computes when pods must leave devices with a `NoExecute` taint. The rules are those of the device taint eviction controller
 * of kube-controller-manager 1.36.
 */
import type { Pod, ResourceClaim, ResourceSlice } from '../../../api/kinds/kinds.ts';
import { controllerOf } from '../owner-references.ts';
import { isPodFinished } from '../pod-state.ts';

type Allocation = NonNullable<NonNullable<ResourceClaim['status']>['allocation']>;
/** A device of an allocation, with the tolerations of the request it was allocated for. */
export type AllocatedDevice = NonNullable<NonNullable<Allocation['devices']>['results']>[number];
type DeviceToleration = NonNullable<AllocatedDevice['tolerations']>[number];
type Device = NonNullable<NonNullable<ResourceSlice['spec']>['devices']>[number];
export type DeviceTaint = NonNullable<Device['taints']>[number];

/** What the decision about a pod needs to know of the cluster. */
interface DeviceView {
  claim(namespace: string, name: string): ResourceClaim | undefined;
  /** The taints of the device in the newest generation of its pool. */
  taints(device: AllocatedDevice): readonly DeviceTaint[];
}

/**
 * Returns the time at which the pod is evicted, in ms since the epoch; `undefined` for never. Only the claims in the pod's spec
 * count, and only if they are reserved for the pod; a claim for extended resources is not among them.
 */
export function podEvictionTime(pod: Pod, view: DeviceView): number | undefined {
  if ((pod.spec?.nodeName ?? '') === '' || isPodFinished(pod)) return undefined;
  const times = claimsInUse(pod, view).flatMap(({ status }) =>
    (status?.allocation?.devices?.results ?? []).map((device) =>
      deviceEvictionTime(view.taints(device), device.tolerations),
    ),
  );
  return earliest(times);
}

/** Returns the claims of the pod that exist and are reserved for it. The claim of a template must belong to the pod. */
function claimsInUse(pod: Pod, view: DeviceView): ResourceClaim[] {
  const { namespace = '', uid } = pod.metadata;
  return (pod.spec?.resourceClaims ?? []).flatMap(({ name, resourceClaimName }) => {
    const created = pod.status?.resourceClaimStatuses?.find((status) => status.name === name)?.resourceClaimName;
    const claimName = resourceClaimName ?? created;
    const claim = claimName === undefined ? undefined : view.claim(namespace, claimName);
    if (claim === undefined) return [];
    const isOfPod = resourceClaimName !== undefined || controllerOf(claim)?.uid === uid;
    return isOfPod && (claim.status?.reservedFor ?? []).some((consumer) => consumer.uid === uid) ? [claim] : [];
  });
}

/**
 * Returns the time at which users of the device are evicted, in ms since the epoch; `undefined` for never. A taint counts from
 * its `timeAdded`, which the API server sets. The shortest of several tolerations of a taint counts, unless one has no limit.
 */
export function deviceEvictionTime(
  taints: readonly DeviceTaint[],
  tolerations: readonly DeviceToleration[] = [],
): number | undefined {
  return earliest(
    taints.filter(isNoExecute).map((taint) => {
      const limits = tolerations
        .filter((toleration) => toleratesEviction(toleration, taint))
        .map(({ tolerationSeconds = Number.POSITIVE_INFINITY }) => Math.max(0, tolerationSeconds));
      if (limits.includes(Number.POSITIVE_INFINITY)) return undefined;
      return Date.parse(taint.timeAdded ?? '') + (limits.length === 0 ? 0 : Math.min(...limits)) * 1000;
    }),
  );
}

/** Whether the taint evicts pods that use the device. */
export const isNoExecute = ({ effect }: DeviceTaint): boolean => effect === 'NoExecute';

/** Whether the toleration prevents the eviction. One without effect only lets the scheduler allocate the device. */
function toleratesEviction(
  { key = '', operator = '', value = '', effect }: DeviceToleration,
  taint: DeviceTaint,
): boolean {
  if (effect !== 'NoExecute' || (key !== '' && key !== taint.key)) return false;
  return operator === 'Exists' || ((operator === '' || operator === 'Equal') && value === (taint.value ?? ''));
}

/**
 * Returns the earliest of the times, or `undefined`. Times that are NaN are ignored: they belong to taints without a time,
 * which evict nobody.
 */
function earliest(times: readonly (number | undefined)[]): number | undefined {
  const finite = times.filter((time) => time !== undefined).filter(Number.isFinite);
  return finite.length === 0 ? undefined : Math.min(...finite);
}
