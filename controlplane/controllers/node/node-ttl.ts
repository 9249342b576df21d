/**
 * Annotates each node with the time for which its kubelet may cache secrets and config maps. The time grows with the number of
 * nodes.
 */
import type { Node } from '../../../api/kinds/kinds.ts';
import { nodes } from '../../../api/client/resources.ts';
import { isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import { ReconcileLoop, type RunController } from '../controller.ts';

/** The annotation with the time in seconds. */
export const TTL_ANNOTATION = 'node.alpha.kubernetes.io/ttl';

/** The steps overlap, so that a number of nodes near a border does not rewrite all nodes again and again. */
const STEPS = [
  { from: 0, to: 100, seconds: 0 },
  { from: 90, to: 500, seconds: 15 },
  { from: 450, to: 1000, seconds: 30 },
  { from: 900, to: 2000, seconds: 60 },
  { from: 1800, to: 10_000, seconds: 300 },
  { from: 9000, to: Number.MAX_SAFE_INTEGER, seconds: 600 },
] as const;

/** Returns the step for a number of nodes, given the current step. Pure. */
export function nextStep(step: number, count: number): number {
  let next = step;
  while (count > (STEPS[next]?.to ?? 0) && next < STEPS.length - 1) next++;
  while (count < (STEPS[next]?.from ?? 0) && next > 0) next--;
  return next;
}

/** Returns the time of a step of the table, in seconds. */
export const secondsOf = (step: number): number => STEPS[step]?.seconds ?? 0;

/** Runs the controller that annotates nodes with the time of the current step. */
export const runNodeTtl: RunController = (environment, signal) => {
  const { client, informers } = environment;
  const cache = informers.for(nodes);
  let step = 0;
  const loop = new ReconcileLoop(environment, {
    reconcile: async (name) => {
      const node = cache.get('', name);
      const wanted = String(secondsOf(step));
      if (node === undefined || node.metadata.annotations?.[TTL_ANNOTATION] === wanted) return;
      await tolerate(
        client.patch(nodes, '', name, {
          type: 'strategic',
          body: { metadata: { annotations: { [TTL_ANNOTATION]: wanted } } },
        }),
        isNotFound,
      );
    },
  });
  const count = (): void => {
    const next = nextStep(step, cache.size);
    if (next === step) return;
    step = next;
    for (const node of cache.list()) loop.enqueue(node);
  };
  const changed = (node: Node): void => {
    count();
    loop.enqueue(node);
  };
  cache.addHandler({ add: changed, update: (_, node) => loop.enqueue(node), delete: count });
  return loop.run(signal, cache);
};
