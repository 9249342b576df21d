/** Predicates of pods that several controllers use. Pure. */
import type { Pod } from '../../api/machinery/kinds.ts';

type PodCondition = NonNullable<NonNullable<Pod['status']>['conditions']>[number];

export function podCondition(pod: Pod, type: string): PodCondition | undefined {
  return pod.status?.conditions?.find((condition) => condition.type === type);
}

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

export function isPodFinished(pod: Pod): boolean {
  return pod.status?.phase === 'Succeeded' || pod.status?.phase === 'Failed';
}

export function isPodTerminating(pod: Pod): boolean {
  return pod.metadata.deletionTimestamp !== undefined;
}

/** Whether the pod is neither finished nor terminating. */
export function isPodActive(pod: Pod): boolean {
  return !isPodFinished(pod) && !isPodTerminating(pod);
}

export function restarts(pod: Pod): number {
  return (pod.status?.containerStatuses ?? []).reduce((most, status) => Math.max(most, status.restartCount), 0);
}

/**
 * The order in which pods are deleted when a set shrinks: unassigned, pending, not ready, of lower deletion cost, crowded on
 * their node, ready for a shorter time, restarted more often, younger. `crowding` is the number of related pods on the pod's
 * node.
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
    (isPodReady(a) && isPodReady(b) ? ageBucket(nowMs, readySince(a)) - ageBucket(nowMs, readySince(b)) : 0) ||
    restarts(b) - restarts(a) ||
    ageBucket(nowMs, created(a)) - ageBucket(nowMs, created(b)) ||
    ((a.metadata.uid ?? '') < (b.metadata.uid ?? '') ? -1 : 1)
  );
}

function deletionCost(pod: Pod): number {
  const cost = pod.metadata.annotations?.['controller.kubernetes.io/pod-deletion-cost'] ?? '0';
  return /^-?[0-9]+$/.test(cost) ? Number(cost) : 0;
}

/** Ages are compared by order of magnitude, so that of pods of about the same age any may be deleted. */
function ageBucket(nowMs: number, sinceMs: number): number {
  const age = nowMs - sinceMs;
  return age <= 0 ? -1 : Math.floor(Math.log2(age * 1e6));
}
