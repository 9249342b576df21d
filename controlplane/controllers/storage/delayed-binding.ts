/**
 * Reports why a claim of a class with the mode WaitForFirstConsumer is not bound: it lacks a pod, or its pods lack a node.
 */
import type { Informer } from '../../../api/client/informer.ts';
import type { PersistentVolumeClaim, Pod } from '../../../api/kinds/kinds.ts';
import { isPodFinished } from '../pod-state.ts';
import { claimNames } from './protection.ts';

const BY_CLAIM = 'unscheduled-pods-of-claim';

const waitsForNode = (pod: Pod): boolean => (pod.spec?.nodeName ?? '') === '' && !isPodFinished(pod);

/** Calls `enqueue` for each claim of a pod that has no node when it is added. */
export function followUnscheduledPods(pods: Informer<Pod>, enqueue: (claim: string) => void): void {
  const keysOf = (pod: Pod): string[] =>
    waitsForNode(pod) ? claimNames(pod).map((claim) => `${pod.metadata.namespace}/${claim}`) : [];
  pods.addIndex(BY_CLAIM, keysOf);
  pods.addHandler({ add: (pod) => keysOf(pod).forEach(enqueue) });
}

/** Returns the reason and message of the event, in the words of kube-controller-manager. */
export function delayOf(
  { metadata }: PersistentVolumeClaim,
  pods: Informer<Pod>,
): { readonly reason: string; readonly message: string } {
  const names = pods.byIndex(BY_CLAIM, `${metadata.namespace}/${metadata.name}`).map((pod) => pod.metadata.name ?? '');
  if (names.length === 0) {
    return { reason: 'WaitForFirstConsumer', message: 'waiting for first consumer to be created before binding' };
  }
  const message = `waiting for pod${names.length > 1 ? 's' : ''} ${names.toSorted().join(',')} to be scheduled`;
  return { reason: 'WaitForPodScheduled', message };
}
