/**
 * Removes pods that nobody else will: of nodes that are gone, finished ones beyond a number, and those that were deleted before they
 * had a node. Each is noticed by an event; a node must have been gone for a while, in case it only comes back.
 */
import { isNotFound } from '../../../api/meta/status-error.ts';
import { formatTime } from '../../../api/machinery/clock.ts';
import type { Pod } from '../../../api/machinery/kinds.ts';
import { nodes, pods } from '../../../api/machinery/resources.ts';
import { ReconcileLoop, type RunController } from '../controller.ts';
import { indexByNode, podsOn } from '../node/node-lifecycle.ts';
import { isPodFinished, isPodTerminating } from '../pod-state.ts';

const QUARANTINE_MS = 40_000;
/** Finished pods are counted when some finish, at most this often. */
const COUNT_EVERY_MS = 20_000;
const FINISHED = 'finished';

const isLost = (pod: Pod): boolean => isPodTerminating(pod) && (pod.spec?.nodeName ?? '') === '';

/** The oldest finished pods beyond the threshold; evicted ones first. Pure. */
export function surplusFinished(all: readonly Pod[], threshold: number): Pod[] {
  const finished = all.filter((pod) => isPodFinished(pod) && !isPodTerminating(pod));
  const surplus = finished.length - threshold;
  if (threshold <= 0 || surplus <= 0) return [];
  const evicted = (pod: Pod): number => (pod.status?.reason === 'Evicted' ? 0 : 1);
  const created = (pod: Pod): number => Date.parse(pod.metadata.creationTimestamp ?? '') || 0;
  return finished.toSorted((a, b) => evicted(a) - evicted(b) || created(a) - created(b)).slice(0, surplus);
}

export const runPodGarbageCollector: RunController = (environment, signal) => {
  const { client, clock, informers, options } = environment;
  const podCache = informers.for(pods);
  const nodeCache = informers.for(nodes);
  indexByNode(podCache);

  const forceDelete = async (pod: Pod, why: string | undefined): Promise<void> => {
    const { namespace = '', name = '', uid } = pod.metadata;
    try {
      if (!isPodFinished(pod)) {
        const conditions =
          why === undefined
            ? []
            : [
                {
                  type: 'DisruptionTarget',
                  status: 'True',
                  reason: 'DeletionByPodGC',
                  message: why,
                  lastTransitionTime: formatTime(clock.now()),
                },
              ];
        await client.patch(
          pods,
          namespace,
          name,
          'strategic',
          { metadata: { uid }, status: { phase: 'Failed', ...(conditions.length === 0 ? {} : { conditions }) } },
          { subresource: 'status' },
        );
      }
      await client.delete(pods, namespace, name, {
        gracePeriodSeconds: 0,
        ...(uid === undefined ? {} : { preconditions: { uid } }),
      });
    } catch (error) {
      if (!isNotFound(error)) throw error;
    }
  };

  const loop = new ReconcileLoop(environment, {
    maxDelayMs: 60_000,
    reconcile: async (key) => {
      if (key === FINISHED) {
        for (const pod of surplusFinished(podCache.list(), options.terminatedPodGcThreshold))
          await forceDelete(pod, undefined);
        for (const pod of podCache.list()) if (isLost(pod)) await forceDelete(pod, undefined);
        return;
      }
      const node = key.slice('node/'.length);
      if (nodeCache.get('', node) !== undefined) return;
      // the cache may be behind
      try {
        await client.get(nodes, '', node);
        return;
      } catch (error) {
        if (!isNotFound(error)) throw error;
      }
      for (const pod of podsOn(podCache, node)) await forceDelete(pod, 'PodGC: node no longer exists');
    },
  });
  const look = (pod: Pod): void => {
    if (isLost(pod)) loop.queue.add(FINISHED);
    else if (isPodFinished(pod) && podCache.size > options.terminatedPodGcThreshold)
      loop.queue.addAfter(FINISHED, COUNT_EVERY_MS);
    const node = pod.spec?.nodeName ?? '';
    if (node !== '' && nodeCache.hasSynced && nodeCache.get('', node) === undefined)
      loop.queue.addAfter(`node/${node}`, QUARANTINE_MS);
  };
  podCache.addHandler({ add: look, update: (_, pod) => look(pod) });
  nodeCache.addHandler({ delete: (node) => loop.queue.addAfter(`node/${node.metadata.name}`, QUARANTINE_MS) });
  // pods that were there before the nodes were known
  nodeCache.synced(signal).then(
    () => podCache.list().forEach(look),
    () => undefined,
  );
  return loop.run(signal, podCache, nodeCache);
};
