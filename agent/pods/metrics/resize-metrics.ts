/** Registers the metrics of resizes of pods in place, under the kubelet's names. */
import type { MetricsRegistry } from '../../../api/component/metrics.ts';
import type { Pod } from '../../base/model/pod.ts';
import type { ResizeObserver } from '../workers/pod-allocation.ts';

const DURATION_BUCKETS_MS = [
  ...[10, 50, 100, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000],
  ...[60_000, 120_000, 300_000, 600_000],
];

/** Registers the counters and the histogram of durations, and returns the observer that fills them. */
export function resizeMetrics(metrics: MetricsRegistry): ResizeObserver {
  const requests = metrics.counter({
    name: 'kubelet_container_requested_resizes_total',
    help: 'Changes to the resources of containers that clients requested, by resource (cpu or memory), requirement (limits or requests) and operation (add, remove, increase, decrease).',
    labels: ['resource', 'requirement', 'operation'],
  });
  const durations = metrics.histogram({
    name: 'kubelet_pod_resize_duration_milliseconds',
    help: 'Duration in milliseconds of the attempts to apply a resize to the cgroup and the containers of a pod.',
    labels: ['success'],
    buckets: DURATION_BUCKETS_MS,
  });
  const infeasible = metrics.counter({
    name: 'kubelet_pod_infeasible_resizes_total',
    help: 'Resizes that this node cannot apply to their pods, by the reason.',
    labels: ['reason_detail'],
  });
  const accepted = metrics.counter({
    name: 'kubelet_pod_deferred_accepted_resizes_total',
    help: 'Resizes that were deferred and fit later, by what triggered the retry.',
    labels: ['retry_trigger'],
  });
  return {
    requested: ({ resource, requirement, operation }) => requests.with(resource, requirement, operation).inc(),
    infeasible: (detail) => infeasible.with(detail).inc(),
    accepted: (trigger) => accepted.with(trigger).inc(),
    actuated: ({ tookMs, isDone }) => durations.with(String(isDone)).observe(tookMs),
  };
}

/** Registers gauges of resizes that wait or are being applied. */
export function followResizes(metrics: MetricsRegistry, pods: () => readonly Pod[]): void {
  const inProgress = metrics
    .gauge({ name: 'kubelet_pod_in_progress_resizes', help: 'Number of in-progress resizes for pods.' })
    .with();
  const pending = metrics.gauge({
    name: 'kubelet_pod_pending_resizes',
    help: 'Pods whose resize waits, by reason: deferred or infeasible.',
    labels: ['reason'],
  });
  metrics.collect(() => {
    // A reason without a pod has no series.
    for (const reason of ['deferred', 'infeasible']) pending.delete(reason);
    let applied = 0;
    for (const { status } of pods()) {
      for (const { type, status: is, reason = '' } of status?.conditions ?? []) {
        if (is !== 'True') continue;
        if (type === 'PodResizeInProgress') applied++;
        if (type === 'PodResizePending') pending.with(reason.toLowerCase()).inc();
      }
    }
    inProgress.set(applied);
  });
}
