/**
 * Removes pods that no other part removes: pods of deleted nodes, terminating pods of nodes that are out of service, finished
 * pods beyond a threshold, and pods that were deleted before they were scheduled.
 */
import { isNotFound } from '../../../api/meta/status-error.ts';
import { formatTime } from '../../../api/machinery/clock.ts';
import type { Node, Pod } from '../../../api/kinds/kinds.ts';
import { nodes, pods } from '../../../api/client/resources.ts';
import { ReconcileLoop, type ControllerEnvironment, type RunController } from '../controller.ts';
import { indexByNode, podsOn } from '../node/node-lifecycle.ts';
import { isPodFinished, isPodTerminating } from '../pod-state.ts';
import { OUT_OF_SERVICE_TAINT } from '../../../api/meta/well-known-labels.ts';

/** How long a node must be absent before its pods are removed, as in kube-controller-manager (`quarantineTime`). */
const QUARANTINE_MS = 40_000;
/** How long after a pod has finished the finished pods are counted, so that several are counted together. */
const COUNT_AFTER_MS = 20_000;
const FINISHED = 'finished';
const NODE = 'node/';
const OUT_OF_SERVICE = 'out-of-service/';

/** Whether an administrator has declared the node out of service by a taint, and the node does not respond. */
const isOutOfService = (node: Node | undefined): boolean =>
  node !== undefined &&
  (node.spec?.taints ?? []).some(({ key }) => key === OUT_OF_SERVICE_TAINT) &&
  !(node.status?.conditions ?? []).some(({ type, status }) => type === 'Ready' && status === 'True');

const isLost = (pod: Pod): boolean => isPodTerminating(pod) && (pod.spec?.nodeName ?? '') === '';

/** Returns the oldest finished pods beyond the threshold, evicted ones first; none without a positive threshold. Pure. */
export function surplusFinished(all: readonly Pod[], threshold: number): Pod[] {
  const finished = all.filter((pod) => isPodFinished(pod) && !isPodTerminating(pod));
  const surplus = finished.length - threshold;
  if (threshold <= 0 || surplus <= 0) return [];
  const evicted = (pod: Pod): number => (pod.status?.reason === 'Evicted' ? 0 : 1);
  const created = (pod: Pod): number => Date.parse(pod.metadata.creationTimestamp ?? '') || 0;
  return finished.toSorted((a, b) => evicted(a) - evicted(b) || created(a) - created(b)).slice(0, surplus);
}

/**
 * Marks an unfinished pod as failed, with the condition DisruptionTarget if there is a `message`, and deletes the pod without a
 * grace period. A pod that is gone is no error.
 */
async function forceDelete(
  { client, clock }: ControllerEnvironment,
  pod: Pod,
  message: string | undefined,
): Promise<void> {
  const { namespace = '', name = '', uid } = pod.metadata;
  const condition = {
    type: 'DisruptionTarget',
    status: 'True',
    reason: 'DeletionByPodGC',
    message,
    observedGeneration: pod.metadata.generation,
    lastTransitionTime: formatTime(clock.now()),
  };
  const status = { phase: 'Failed', ...(message === undefined ? {} : { conditions: [condition] }) };
  try {
    if (!isPodFinished(pod)) {
      const patch = { metadata: { uid }, status };
      await client.patch(pods, namespace, name, { type: 'strategic', body: patch, subresource: 'status' });
    }
    await client.delete(pods, namespace, name, {
      gracePeriodSeconds: 0,
      ...(uid === undefined ? {} : { preconditions: { uid } }),
    });
  } catch (error) {
    if (!isNotFound(error)) throw error;
  }
}

/** Deletes finished pods beyond `terminatedPodGcThreshold`, and other pods that no other part removes. */
export const runPodGarbageCollector: RunController = (environment, signal) => {
  const { client, informers, options } = environment;
  const podCache = informers.for(pods);
  const nodeCache = informers.for(nodes);
  indexByNode(podCache);

  const loop = new ReconcileLoop(environment, {
    maxDelayMs: 60_000,
    reconcile: async (key) => {
      if (key === FINISHED) {
        for (const pod of surplusFinished(podCache.list(), options.terminatedPodGcThreshold))
          await forceDelete(environment, pod, undefined);
        for (const pod of podCache.list()) if (isLost(pod)) await forceDelete(environment, pod, undefined);
        return;
      }
      if (key.startsWith(OUT_OF_SERVICE)) {
        const node = key.slice(OUT_OF_SERVICE.length);
        if (!isOutOfService(nodeCache.get('', node))) return;
        for (const pod of podsOn(podCache, node))
          if (isPodTerminating(pod)) await forceDelete(environment, pod, undefined);
        return;
      }
      const node = key.slice(NODE.length);
      if (nodeCache.get('', node) !== undefined) return;
      // The informer may lag behind: the API decides whether the node exists.
      try {
        await client.get(nodes, '', node);
        return;
      } catch (error) {
        if (!isNotFound(error)) throw error;
      }
      for (const pod of podsOn(podCache, node)) await forceDelete(environment, pod, 'PodGC: node no longer exists');
    },
  });
  const check = (pod: Pod): void => {
    if (isLost(pod)) loop.queue.add(FINISHED);
    else if (isPodFinished(pod) && podCache.size > options.terminatedPodGcThreshold)
      loop.queue.addAfter(FINISHED, COUNT_AFTER_MS);
    const node = pod.spec?.nodeName ?? '';
    if (node !== '' && nodeCache.hasSynced && nodeCache.get('', node) === undefined)
      loop.queue.addAfter(`${NODE}${node}`, QUARANTINE_MS);
    if (isPodTerminating(pod) && isOutOfService(nodeCache.get('', node))) loop.queue.add(`${OUT_OF_SERVICE}${node}`);
  };
  const nodeChanged = (node: Node): void => {
    if (isOutOfService(node)) loop.queue.add(`${OUT_OF_SERVICE}${node.metadata.name}`);
  };
  podCache.addHandler({ add: check, update: (_, pod) => check(pod) });
  nodeCache.addHandler({
    add: nodeChanged,
    update: (_, node) => nodeChanged(node),
    delete: (node) => loop.queue.addAfter(`${NODE}${node.metadata.name}`, QUARANTINE_MS),
  });
  // Pods that arrived before the nodes did are checked once the nodes are known.
  nodeCache.synced(signal).then(
    () => podCache.list().forEach(check),
    () => undefined,
  );
  return loop.run(signal, podCache, nodeCache);
};
