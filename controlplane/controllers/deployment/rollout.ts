/** Computes the next size of each replica set of a deployment. Pure. */
import type { Deployment, ReplicaSet } from '../../../api/kinds/kinds.ts';
import {
  byAge,
  DESIRED_REPLICAS,
  isRollingUpdate,
  MAX_REPLICAS,
  maxUnavailableOf,
  newSetSize,
  revisionOf,
  sizeOf,
  surgeAndUnavailable,
  totalOf,
} from './replica-sets.ts';
import { INT32_MAX } from '../../../api/meta/integers.ts';

/** A replica set with its next number of replicas. */
export interface Resize {
  readonly set: ReplicaSet;
  readonly replicas: number;
}

const available = (set: ReplicaSet): number => set.status?.availableReplicas ?? 0;

/** Whether the deployment was resized since its replica sets were last sized. */
export function isScalingEvent(deployment: Deployment, sets: readonly ReplicaSet[]): boolean {
  return sets.some((set) => {
    const desired = set.metadata.annotations?.[DESIRED_REPLICAS];
    return sizeOf(set) > 0 && desired !== undefined && Number(desired) !== (deployment.spec?.replicas ?? 1);
  });
}

/** Returns the next size of the new replica set, or `undefined` if it has its size or the surge leaves no room to grow. */
export function resizeNew(deployment: Deployment, newSet: ReplicaSet, all: readonly ReplicaSet[]): Resize | undefined {
  const wanted = deployment.spec?.replicas ?? 1;
  const size = sizeOf(newSet);
  if (size === wanted) return undefined;
  if (size > wanted) return { set: newSet, replicas: wanted };
  const replicas = newSetSize(deployment, all, size);
  return replicas === size ? undefined : { set: newSet, replicas };
}

/** Plans to scale old sets down: first by their unhealthy pods, and then by healthy ones as far as availability allows. */
export function resizeOld(
  deployment: Deployment,
  newSet: ReplicaSet | undefined,
  old: readonly ReplicaSet[],
): readonly Resize[] {
  const oldCount = totalOf(old, sizeOf);
  if (oldCount === 0) return [];
  const all = newSet === undefined ? old : [...old, newSet];
  const wanted = deployment.spec?.replicas ?? 1;
  const minAvailable = wanted - maxUnavailableOf(deployment);
  const newUnavailable = newSet === undefined ? 0 : sizeOf(newSet) - available(newSet);
  let removable = totalOf(all, sizeOf) - minAvailable - newUnavailable;
  if (removable <= 0) return [];
  const sizes = new Map(old.map((set) => [set, sizeOf(set)]));
  const oldest = old.toSorted(byAge);
  for (const set of oldest) {
    const size = sizes.get(set) ?? 0;
    const unhealthy = Math.min(removable, size - available(set));
    if (size === 0 || unhealthy <= 0) continue;
    sizes.set(set, size - unhealthy);
    removable -= unhealthy;
  }
  let spare = totalOf(all, available) - minAvailable;
  for (const set of oldest) {
    const size = sizes.get(set) ?? 0;
    const healthy = Math.min(size, spare);
    if (size === 0 || healthy <= 0) continue;
    sizes.set(set, size - healthy);
    spare -= healthy;
  }
  return old.filter((set) => sizes.get(set) !== sizeOf(set)).map((set) => ({ set, replicas: sizes.get(set) ?? 0 }));
}

/**
 * Applies a changed size without rolling out: to the only active set, or, for RollingUpdate, in proportion to the sizes of the
 * sets. If the new set has all its replicas, the old sets are scaled to zero.
 */
export function scaleAll(
  deployment: Deployment,
  newSet: ReplicaSet | undefined,
  old: readonly ReplicaSet[],
): readonly Resize[] {
  const wanted = deployment.spec?.replicas ?? 1;
  const all = newSet === undefined ? [...old] : [...old, newSet];
  const active = all.filter((set) => sizeOf(set) > 0);
  const latest = newSet ?? old.toSorted(byAge).at(-1);
  if (active.length <= 1) {
    const only = active[0] ?? latest;
    return only === undefined || sizeOf(only) === wanted ? [] : [{ set: only, replicas: wanted }];
  }
  if (newSet !== undefined && isSaturated(newSet, wanted)) {
    return old.filter((set) => sizeOf(set) > 0).map((set) => ({ set, replicas: 0 }));
  }
  return isRollingUpdate(deployment) ? shareOut(deployment, active) : [];
}

/** Whether the set was sized for this number of replicas, and has them all available. */
function isSaturated(set: ReplicaSet, wanted: number): boolean {
  const desired = Number(set.metadata.annotations?.[DESIRED_REPLICAS] ?? Number.NaN);
  return sizeOf(set) === wanted && desired === wanted && available(set) === wanted;
}

function shareOut(deployment: Deployment, active: readonly ReplicaSet[]): readonly Resize[] {
  const wanted = deployment.spec?.replicas ?? 1;
  const total = totalOf(active, sizeOf);
  const allowed = wanted > 0 ? wanted + surgeAndUnavailable(deployment).surge : 0;
  const toAdd = allowed - total;
  // Larger sets come first; of sets of the same size, the newer one when growing and the older one when shrinking.
  const order = active.toSorted((a, b) => sizeOf(b) - sizeOf(a) || (toAdd > 0 ? byAge(b, a) : byAge(a, b)));
  const sizes = new Map<ReplicaSet, number>();
  let added = 0;
  for (const set of order) {
    const share = toAdd === 0 ? 0 : proportion(deployment, set, toAdd, added);
    sizes.set(set, sizeOf(set) + share);
    added += share;
  }
  const [first] = order;
  if (first !== undefined && toAdd !== 0) sizes.set(first, Math.max(0, (sizes.get(first) ?? 0) + toAdd - added));
  return order.map((set) => ({ set, replicas: sizes.get(set) ?? 0 }));
}

function proportion(deployment: Deployment, set: ReplicaSet, toAdd: number, added: number): number {
  if (sizeOf(set) === 0 || toAdd === added) return 0;
  const allowed = toAdd - added;
  const size = sizeOf(set);
  const wanted = deployment.spec?.replicas ?? 1;
  // The size at the last scaling is an annotation of the set; without it, the current size of the deployment counts.
  const annotated = Number(set.metadata.annotations?.[MAX_REPLICAS] ?? Number.NaN);
  const before = Number.isFinite(annotated) && annotated > 0 ? annotated : (deployment.status?.replicas ?? size);
  const after = wanted + surgeAndUnavailable(deployment).surge;
  const fraction = wanted === 0 ? -size : Math.round((size * after) / before) - size;
  return toAdd > 0 ? Math.min(fraction, allowed) : Math.max(fraction, allowed);
}

/** Returns the old sets beyond the history limit that are scaled down, oldest first. */
export function outdated(deployment: Deployment, old: readonly ReplicaSet[]): readonly ReplicaSet[] {
  const limit = deployment.spec?.revisionHistoryLimit;
  if (limit === undefined || limit === INT32_MAX) return [];
  const alive = old.filter((set) => set.metadata.deletionTimestamp === undefined);
  return alive
    .toSorted((a, b) => Number(revisionOf(a) - revisionOf(b)) || byAge(a, b))
    .slice(0, Math.max(0, alive.length - limit))
    .filter(
      (set) =>
        (set.status?.replicas ?? 0) === 0 &&
        sizeOf(set) === 0 &&
        (set.metadata.generation ?? 0) <= (set.status?.observedGeneration ?? 0),
    );
}
