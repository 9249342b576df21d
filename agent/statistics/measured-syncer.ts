/** Figures of the agent's own loops: how long the steps of pods take, and the looks at everything that runs. */
import type { MetricsRegistry } from '../../api/component/metrics.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { isEnded, type PodSyncer } from '../podworkers/pod-workers.ts';
import type { Pod } from '../core-types.ts';

/** `create` is a pod's first sync, `kill` its end. */
export function measuredSyncer(syncer: PodSyncer, metrics: MetricsRegistry, clock: Clock): PodSyncer {
  const durations = metrics.histogram({
    name: 'kubelet_pod_worker_duration_seconds',
    help: 'Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync',
    labels: ['operation_type'],
  });
  const seen = new Set<string>();
  const measured = async <T>(operation: string, work: () => Promise<T>): Promise<T> => {
    const fromMs = clock.monotonic();
    try {
      return await work();
    } finally {
      durations.with(operation).observe((clock.monotonic() - fromMs) / 1000);
    }
  };
  const operationOf = (pod: Pod): string => {
    const { uid } = pod.metadata;
    if (seen.has(uid) || isEnded(pod.status)) return 'sync';
    seen.add(uid);
    return 'create';
  };
  return {
    sync: (pod, signal) => measured(operationOf(pod), () => syncer.sync(pod, signal)),
    terminate: (pod, ending) => measured('kill', () => syncer.terminate(pod, ending)),
    cleanUp: async (pod, signal) => {
      await syncer.cleanUp(pod, signal);
      seen.delete(pod.metadata.uid);
    },
  };
}

export function relistMetrics(metrics: MetricsRegistry, clock: Clock): (tookMs: number) => void {
  const durations = metrics
    .histogram({
      name: 'kubelet_pleg_relist_duration_seconds',
      help: 'Duration in seconds for relisting pods in PLEG.',
    })
    .with();
  const intervals = metrics
    .histogram({ name: 'kubelet_pleg_relist_interval_seconds', help: 'Interval in seconds between relisting in PLEG.' })
    .with();
  const lastSeen = metrics
    .gauge({ name: 'kubelet_pleg_last_seen_seconds', help: 'Timestamp in seconds when PLEG was last seen active.' })
    .with();
  let lastMs: number | undefined;
  return (tookMs) => {
    const nowMs = clock.monotonic();
    durations.observe(tookMs / 1000);
    if (lastMs !== undefined) intervals.observe((nowMs - lastMs) / 1000);
    lastMs = nowMs;
    lastSeen.set(clock.now() / 1000);
  };
}
