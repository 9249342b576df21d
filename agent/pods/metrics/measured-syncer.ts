/** Measures the agent's own loops: the duration of pod syncs and of PLEG relists. */
import type { MetricsRegistry } from '../../../api/component/metrics.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { isEnded, type PodSyncer } from '../workers/pod-workers.ts';
import type { Pod, PodStatus } from '../../base/model/pod.ts';
import { type PodStartups, STARTUP_BUCKETS } from './pod-startup.ts';

interface MeasuredSyncerOptions {
  readonly metrics: MetricsRegistry;
  readonly clock: Clock;
  /** Returns the last status that the status manager has of the pod. */
  readonly status: (uid: string) => PodStatus | undefined;
  readonly startups: Pick<PodStartups, 'workerStarted'>;
}

/** Wraps a syncer to measure its steps. */
export function measuredSyncer(
  syncer: PodSyncer,
  { metrics, clock, status, startups }: MeasuredSyncerOptions,
): PodSyncer {
  const durations = metrics.histogram({
    name: 'kubelet_pod_worker_duration_seconds',
    help: 'Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync',
    labels: ['operation_type'],
  });
  const starts = metrics
    .histogram({
      name: 'kubelet_pod_start_duration_seconds',
      help: 'Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run',
      buckets: STARTUP_BUCKETS,
    })
    .with();
  const sizes = metrics
    .histogram({
      name: 'kubelet_containers_per_pod_count',
      help: 'The number of containers per pod.',
      buckets: [1, 2, 4, 8, 16],
    })
    .with();
  const synced = new Set<string>();
  /** The times at which pods that do not run yet were first synced, by pod uid. */
  const starting = new Map<string, number>();
  const started = (uid: string): void => {
    const fromMs = starting.get(uid);
    if (fromMs === undefined || status(uid)?.phase !== 'Running') return;
    starts.observe((clock.monotonic() - fromMs) / 1000);
    starting.delete(uid);
  };
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
    if (synced.has(uid) || isEnded(pod.status)) return 'sync';
    synced.add(uid);
    startups.workerStarted(uid);
    sizes.observe(pod.spec.containers.length);
    if (pod.status?.phase !== 'Running') starting.set(uid, clock.monotonic());
    return 'create';
  };
  return {
    sync: async (pod, signal) => {
      const outcome = await measured(operationOf(pod), () => syncer.sync(pod, signal));
      started(pod.metadata.uid);
      return outcome;
    },
    terminate: (pod, ending, signal) => measured('kill', () => syncer.terminate(pod, ending, signal)),
    cleanUp: async (pod, signal) => {
      await measured('terminated', () => syncer.cleanUp(pod, signal));
      synced.delete(pod.metadata.uid);
      starting.delete(pod.metadata.uid);
    },
  };
}

/** Registers the metrics of the PLEG. The returned functions are called after each relist and each reading of a pod. */
export function relistMetrics(
  metrics: MetricsRegistry,
  clock: Clock,
): { readonly onRelist: (tookMs: number) => void; readonly onPodRead: (tookMs: number) => void } {
  const ofPods = metrics
    .histogram({
      name: 'kubelet_pleg_pod_relist_duration_seconds',
      help: 'Duration in seconds of the readings of single pods by the PLEG.',
    })
    .with();
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
  return {
    onRelist(tookMs) {
      const nowMs = clock.monotonic();
      durations.observe(tookMs / 1000);
      if (lastMs !== undefined) intervals.observe((nowMs - lastMs) / 1000);
      lastMs = nowMs;
      lastSeen.set(clock.now() / 1000);
    },
    onPodRead: (tookMs) => ofPods.observe(tookMs / 1000),
  };
}
