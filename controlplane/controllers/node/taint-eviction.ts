/** Deletes pods that do not tolerate a `NoExecute` taint of their node, or tolerate it only for a time that is over. */
import { deleteDisrupted } from '../pod-disruption.ts';
import { stringifyJson } from '../../../api/codec/json.ts';
import { tolerates } from '../../../api/kinds/node-selection.ts';
import type { Pod } from '../../../api/kinds/kinds.ts';
import { nodes, pods } from '../../../api/client/resources.ts';
import { ReconcileLoop, splitKey, type RunController } from '../controller.ts';
import { indexByNode, podsOn } from './node-lifecycle.ts';
import type { Taint } from './node-health.ts';

/**
 * Returns the time at which the pod is evicted, in ms since the epoch: 0 if it does not tolerate one of the taints, and
 * `undefined` for never. Otherwise the shortest toleration decides.
 */
function evictionTime(pod: Pod, taints: readonly Taint[], taintedAtMs: number): number | undefined {
  let shortest = Number.POSITIVE_INFINITY;
  for (const taint of taints) {
    const matching = (pod.spec?.tolerations ?? []).filter((toleration) => tolerates(toleration, taint));
    if (matching.length === 0) return 0;
    for (const { tolerationSeconds } of matching)
      shortest = Math.min(
        shortest,
        tolerationSeconds === undefined ? Number.POSITIVE_INFINITY : Math.max(0, tolerationSeconds) * 1000,
      );
  }
  return Number.isFinite(shortest) ? taintedAtMs + shortest : undefined;
}

const noExecuteTaints = (node: { readonly spec?: { readonly taints?: readonly Taint[] } } | undefined) =>
  (node?.spec?.taints ?? []).filter(({ effect }) => effect === 'NoExecute');

const sameTaints = (a: Parameters<typeof noExecuteTaints>[0], b: Parameters<typeof noExecuteTaints>[0]): boolean =>
  stringifyJson(noExecuteTaints(a)) === stringifyJson(noExecuteTaints(b));

/** Deletes pods that do not, or no longer, tolerate the `NoExecute` taints of their nodes. */
export const runTaintEviction: RunController = (environment, signal) => {
  const { clock, informers, recorder } = environment;
  // Records an event about the pod. As in kube-controller-manager, it refers to the pod by its name only.
  const report = (key: string, action: string): void => {
    const pod = { apiVersion: 'v1', kind: 'Pod', ...splitKey(key) };
    recorder.event(pod, 'Normal', 'TaintManagerEviction', `${action} Pod ${key}`);
  };
  const nodeCache = informers.for(nodes);
  const podCache = informers.for(pods);
  indexByNode(podCache);
  /**
   * Keys of pods that will be deleted unless the taint is removed, with the time from which their tolerations count: taints of
   * users have no `timeAdded`.
   */
  const planned = new Map<string, number>();
  const loop = new ReconcileLoop(environment, {
    workers: 8,
    maxDelayMs: 10_000,
    reconcile: async (key) => {
      const { namespace, name } = splitKey(key);
      const pod = podCache.get(namespace, name);
      const taints = noExecuteTaints(nodeCache.get('', pod?.spec?.nodeName ?? ''));
      if (pod === undefined || pod.metadata.deletionTimestamp !== undefined || taints.length === 0) {
        if (planned.delete(key) && pod !== undefined && pod.metadata.deletionTimestamp === undefined) {
          report(key, 'Cancelling deletion of');
        }
        return;
      }
      const times = taints.map(({ timeAdded }) => Date.parse(timeAdded ?? '')).filter(Number.isFinite);
      const since = times.length === 0 ? (planned.get(key) ?? clock.now()) : Math.min(...times);
      const at = evictionTime(pod, taints, since);
      if (at === undefined) {
        planned.delete(key);
        return;
      }
      if (at > clock.now()) {
        planned.set(key, since);
        return loop.queue.addAfter(key, at - clock.now());
      }
      planned.delete(key);
      report(key, 'Marking for deletion');
      await deleteDisrupted(environment, pod, {
        reason: 'DeletionByTaintManager',
        message: 'Taint manager: deleting due to NoExecute taint',
        observedGeneration: pod.metadata.generation,
      });
    },
  });
  nodeCache.addHandler({
    add: (node) => {
      if (noExecuteTaints(node).length > 0)
        for (const pod of podsOn(podCache, node.metadata.name ?? '')) loop.enqueue(pod);
    },
    update: (previous, node) => {
      if (!sameTaints(previous, node)) for (const pod of podsOn(podCache, node.metadata.name ?? '')) loop.enqueue(pod);
    },
  });
  podCache.addHandler({
    add: loop.enqueue,
    update: (previous, pod) => {
      const moved = previous.spec?.nodeName !== pod.spec?.nodeName;
      if (moved || stringifyJson(previous.spec?.tolerations) !== stringifyJson(pod.spec?.tolerations))
        loop.enqueue(pod);
    },
    delete: (pod) => {
      planned.delete(`${pod.metadata.namespace}/${pod.metadata.name}`);
    },
  });
  return loop.run(signal, nodeCache, podCache);
};
