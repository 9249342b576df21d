/** Defines predicates and an order of pods that several controllers use. Pure. */
import type { Pod } from '../../api/kinds/kinds.ts';

type PodCondition = NonNullable<NonNullable<Pod['status']>['conditions']>[number];

/** Returns the condition of that type, or undefined. */
export function podCondition(pod: Pod, type: string): PodCondition | undefined {
  return pod.status?.conditions?.find((condition) => condition.type === type);
}

/** Whether the condition Ready is True. */
export function isPodReady(pod: Pod): boolean {
  return podCondition(pod, 'Ready')?.status === 'True';
}

/** Whether the pod has been ready for `minReadySeconds`. */
export function isPodAvailable(pod: Pod, minReadySeconds: number, nowMs: number): boolean {
  const ready = podCondition(pod, 'Ready');
  if (ready?.status !== 'True') return false;
  if (minReadySeconds === 0) return true;
  const since = Date.parse(ready.lastTransitionTime ?? '');
  return Number.isFinite(since) && since + minReadySeconds * 1000 <= nowMs;
}

/** Whether the phase of the pod is final. */
export function isPodFinished(pod: Pod): boolean {
  return pod.status?.phase === 'Succeeded' || pod.status?.phase === 'Failed';
}

/** Whether the pod is being deleted; its containers may still run. */
export function isPodTerminating(pod: Pod): boolean {
  return pod.metadata.deletionTimestamp !== undefined;
}

/** Whether the pod is neither finished nor terminating. */
export function isPodActive(pod: Pod): boolean {
  return !isPodFinished(pod) && !isPodTerminating(pod);
}

/** Returns the highest number of restarts of a container, and of a sidecar. */
function restarts(pod: Pod): { readonly regular: number; readonly sidecars: number } {
  const sidecars = new Set(
    (pod.spec?.initContainers ?? [])
      .filter(({ restartPolicy }) => restartPolicy === 'Always')
      .map((container) => container.name),
  );
  const highest = (statuses: readonly { readonly restartCount: number }[]): number =>
    statuses.reduce((count, { restartCount }) => Math.max(count, restartCount), 0);
  return {
    regular: highest(pod.status?.containerStatuses ?? []),
    sidecars: highest((pod.status?.initContainerStatuses ?? []).filter(({ name }) => sidecars.has(name))),
  };
}

/**
 * Returns the order in which pods are deleted when a set shrinks: unassigned, pending, not ready, of lower deletion cost,
 * crowded on their node, ready for a shorter time, restarted more often, younger. `crowding` is the number of related pods on
 * the pod's node.
 */
export function compareForDeletion(a: Pod, b: Pod, crowding: (pod: Pod) => number, nowMs: number): number {
  const assigned = (pod: Pod): number => ((pod.spec?.nodeName ?? '') === '' ? 0 : 1);
  const phase = (pod: Pod): number => ({ Pending: 0, Unknown: 1, Running: 2 })[pod.status?.phase ?? ''] ?? 0;
  const readySince = (pod: Pod): number => Date.parse(podCondition(pod, 'Ready')?.lastTransitionTime ?? '') || 0;
  const created = (pod: Pod): number => Date.parse(pod.metadata.creationTimestamp ?? '') || 0;
  return (
    assigned(a) - assigned(b) ||
    phase(a) - phase(b) ||
    Number(isPodReady(a)) - Number(isPodReady(b)) ||
    deletionCost(a) - deletionCost(b) ||
    crowding(b) - crowding(a) ||
    (isPodReady(a) && isPodReady(b) ? byAge(a, b, readySince, nowMs) : 0) ||
    restarts(b).regular - restarts(a).regular ||
    restarts(b).sidecars - restarts(a).sidecars ||
    byAge(a, b, created, nowMs) ||
    byUid(a, b)
  );
}

const byUid = (a: Pod, b: Pod): number => ((a.metadata.uid ?? '') < (b.metadata.uid ?? '') ? -1 : 1);

/**
 * Orders pods by age, in steps that double. Pods of one step are ordered by their uids, and pods of exactly the same age are
 * equal.
 */
function byAge(a: Pod, b: Pod, since: (pod: Pod) => number, nowMs: number): number {
  if (since(a) === since(b)) return 0;
  return ageBucket(nowMs, since(a)) - ageBucket(nowMs, since(b)) || byUid(a, b);
}

function deletionCost(pod: Pod): number {
  const cost = pod.metadata.annotations?.['controller.kubernetes.io/pod-deletion-cost'] ?? '0';
  return /^-?[0-9]+$/.test(cost) ? Number(cost) : 0;
}

/** Returns the binary logarithm of an age in nanoseconds, as kube-controller-manager does, and -1 without an age. */
function ageBucket(nowMs: number, sinceMs: number): number {
  const ageMs = nowMs - sinceMs;
  return ageMs <= 0 ? -1 : Math.floor(Math.log2(ageMs * 1e6));
}
