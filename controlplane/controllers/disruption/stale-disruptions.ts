/**
 * Takes back the condition DisruptionTarget of pods that were to be disrupted and were not: two minutes after the condition,
 * the pod is not terminating.
 */
import { formatTime } from '../../../api/machinery/clock.ts';
import type { Pod } from '../../../api/kinds/kinds.ts';
import { pods } from '../../../api/client/resources.ts';
import { isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import { keyOf, ReconcileLoop, splitKey, type RunController } from '../controller.ts';
import { isPodFinished, isPodTerminating, podCondition } from '../pod-state.ts';

/** The time after which a condition is stale, as in kube-controller-manager (`stalePodDisruptionTimeout`). */
const STALE_AFTER_MS = 120_000;

/** Returns the time at which the condition becomes stale; `undefined` without such a condition. */
function staleAtMs(pod: Pod): number | undefined {
  const condition = podCondition(pod, 'DisruptionTarget');
  if (condition?.status !== 'True' || isPodTerminating(pod) || isPodFinished(pod)) return undefined;
  return (Date.parse(condition.lastTransitionTime ?? '') || 0) + STALE_AFTER_MS;
}

/** Runs the controller that takes back stale conditions. */
export const runStaleDisruptions: RunController = (environment, signal) => {
  const { client, clock, informers } = environment;
  const podCache = informers.for(pods);
  const loop = new ReconcileLoop(environment, {
    reconcile: async (key) => {
      const { namespace, name } = splitKey(key);
      const pod = podCache.get(namespace, name);
      const atMs = pod === undefined ? undefined : staleAtMs(pod);
      if (pod === undefined || atMs === undefined) return;
      const waitMs = atMs - clock.now();
      if (waitMs > 0) {
        loop.queue.addAfter(key, waitMs);
        return;
      }
      const condition = {
        type: 'DisruptionTarget',
        status: 'False',
        observedGeneration: pod.metadata.generation,
        lastTransitionTime: formatTime(clock.now()),
        reason: null,
        message: null,
      };
      const patch = { metadata: { uid: pod.metadata.uid }, status: { conditions: [condition] } };
      await tolerate(
        client.patch(pods, namespace, name, { type: 'strategic', body: patch, subresource: 'status' }),
        isNotFound,
      );
    },
  });
  const podChanged = (pod: Pod): void => {
    const atMs = staleAtMs(pod);
    if (atMs !== undefined) loop.queue.addAfter(keyOf(pod), Math.max(0, atMs - clock.now()));
  };
  podCache.addHandler({ add: podChanged, update: (_, pod) => podChanged(pod) });
  return loop.run(signal, podCache);
};
