/** Deletes finished jobs when their `ttlSecondsAfterFinished` has passed. */
import { isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import type { Job } from '../../../api/kinds/kinds.ts';
import { jobs } from '../../../api/client/resources.ts';
import { ReconcileLoop, splitKey, type RunController } from '../controller.ts';

/** Returns the time at which the job is deleted, in ms since the epoch; `undefined` for never. */
function expiryOf(job: Job): number | undefined {
  const ttl = job.spec?.ttlSecondsAfterFinished;
  const finished = job.status?.conditions?.find(
    ({ type, status }) => (type === 'Complete' || type === 'Failed') && status === 'True',
  );
  if (ttl === undefined || finished === undefined) return undefined;
  return Date.parse(finished.lastTransitionTime ?? '') + ttl * 1000;
}

/**
 * Runs the controller that deletes finished jobs after their `ttlSecondsAfterFinished`, `concurrentTtlAfterFinishedSyncs` jobs
 * at a time.
 */
export const runTtlAfterFinished: RunController = (environment, signal) => {
  const { client, clock, informers } = environment;
  const cache = informers.for(jobs);
  const loop = new ReconcileLoop(environment, {
    workers: environment.options.concurrentTtlAfterFinishedSyncs,
    maxDelayMs: 60_000,
    reconcile: async (key) => {
      const { namespace, name } = splitKey(key);
      const job = cache.get(namespace, name);
      const expiry = job === undefined || job.metadata.deletionTimestamp !== undefined ? undefined : expiryOf(job);
      if (job === undefined || expiry === undefined) return;
      if (expiry > clock.now()) return loop.queue.addAfter(key, expiry - clock.now());
      const current = await client.get(jobs, namespace, name);
      if ((expiryOf(current) ?? Number.POSITIVE_INFINITY) > clock.now()) return;
      const { uid } = current.metadata;
      await tolerate(
        client.delete(jobs, namespace, name, {
          propagationPolicy: 'Foreground',
          ...(uid === undefined ? {} : { preconditions: { uid } }),
        }),
        isNotFound,
      );
    },
  });
  const jobChanged = (job: Job): void => {
    if (expiryOf(job) !== undefined) loop.enqueue(job);
  };
  cache.addHandler({ add: jobChanged, update: (_, job) => jobChanged(job) });
  return loop.run(signal, cache);
};
