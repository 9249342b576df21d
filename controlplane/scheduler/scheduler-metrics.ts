/**
 * Registers the metrics of kube-scheduler: attempts with their results and durations, the pods that wait, preemptions, and the
 * size of the view of the cluster.
 */
import type { MetricsRegistry } from '../../api/component/metrics.ts';
import type { QueueCounts } from './scheduling-queue.ts';
import { SCHEDULER_NAME } from './cluster-watch.ts';

type AttemptResult = 'scheduled' | 'unschedulable' | 'error';

/** Receives what the scheduler does. Times are in seconds. */
export interface SchedulerMetrics {
  /**
   * Counts one attempt. `seconds` is from the beginning of the decision to the end of the binding, or of a decision without
   * one.
   */
  attempt(result: AttemptResult, seconds: number): void;
  /** Measures a decision that found a node. */
  algorithm(seconds: number): void;
  /** Counts a pod that was bound: its attempts, and the seconds since it entered the queue. */
  scheduled(pod: { readonly attempts: number; readonly seconds: number }): void;
  /** Counts a preemption attempt with its number of victims, which is 0 if nothing was preempted. */
  preemption(victims: number): void;
  /** Sets the gauges to 0 when the scheduler stops. */
  close(): void;
}

/** What the gauges show. */
interface SchedulerView {
  readonly queue: () => QueueCounts;
  readonly cache: () => { readonly nodes: number; readonly pods: number; readonly assumed: number };
}

const doubling = (first: number, count: number): number[] => Array.from({ length: count }, (_, at) => first * 2 ** at);

/** Registers the metrics. `view` is read whenever the metrics are read. */
export function schedulerMetrics(metrics: MetricsRegistry, view: SchedulerView): SchedulerMetrics {
  const attempts = metrics.counter({
    name: 'scheduler_schedule_attempts_total',
    help: "Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be scheduled, while 'error' means an internal scheduler problem.",
    labels: ['result', 'profile'],
  });
  const durations = metrics.histogram({
    name: 'scheduler_scheduling_attempt_duration_seconds',
    help: 'Scheduling attempt latency in seconds (scheduling algorithm + binding)',
    labels: ['result', 'profile'],
    buckets: doubling(0.001, 15),
  });
  const algorithm = metrics
    .histogram({
      name: 'scheduler_scheduling_algorithm_duration_seconds',
      help: 'Scheduling algorithm latency in seconds',
      buckets: doubling(0.001, 15),
    })
    .with();
  const latency = metrics.histogram({
    name: 'scheduler_pod_scheduling_sli_duration_seconds',
    help: 'E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and might involve multiple scheduling attempts.',
    labels: ['attempts'],
    buckets: doubling(0.01, 20),
  });
  const needed = metrics
    .histogram({
      name: 'scheduler_pod_scheduling_attempts',
      help: 'Number of attempts to successfully schedule a pod.',
      buckets: doubling(1, 5),
    })
    .with();
  const preemptions = metrics
    .counter({
      name: 'scheduler_preemption_attempts_total',
      help: 'Total preemption attempts in the cluster till now',
    })
    .with();
  const victims = metrics
    .histogram({
      name: 'scheduler_preemption_victims',
      help: 'Number of selected preemption victims',
      buckets: doubling(1, 7),
    })
    .with();
  const close = showQueue(metrics, view);
  return {
    attempt(result, seconds) {
      attempts.with(result, SCHEDULER_NAME).inc();
      durations.with(result, SCHEDULER_NAME).observe(seconds);
    },
    algorithm: (seconds) => algorithm.observe(seconds),
    scheduled(pod) {
      // More attempts than this share a series, so that their number is bounded.
      latency.with(pod.attempts > 15 ? '16+' : String(pod.attempts)).observe(pod.seconds);
      needed.observe(pod.attempts);
    },
    preemption(count) {
      preemptions.inc();
      if (count > 0) victims.observe(count);
    },
    close,
  };
}

function showQueue(metrics: MetricsRegistry, { queue, cache }: SchedulerView): () => void {
  const pending = metrics.gauge({
    name: 'scheduler_pending_pods',
    help: "Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means number of pods in backoffQ; 'unschedulable' means number of pods in unschedulablePods that the scheduler attempted to schedule and failed; 'gated' is the number of unschedulable pods that the scheduler never attempted to schedule because they are gated.",
    labels: ['queue'],
  });
  const unschedulable = metrics.gauge({
    name: 'scheduler_unschedulable_pods',
    help: 'The number of unschedulable pods broken down by plugin name. A pod will increment the gauge for all plugins that caused it to not schedule and so this metric have meaning only when broken down by plugin.',
    labels: ['plugin', 'profile'],
  });
  const sizes = metrics.gauge({
    name: 'scheduler_cache_size',
    help: 'Number of nodes, pods, and assumed (bound) pods in the scheduler cache.',
    labels: ['type'],
  });
  const shownPlugins = new Set<string>();
  const show = (
    { active, backoff, unschedulable: waiting, byPlugin }: QueueCounts,
    { nodes, pods, assumed }: ReturnType<SchedulerView['cache']>,
  ): void => {
    for (const [name, count] of Object.entries({ active, backoff, unschedulable: waiting }))
      pending.with(name).set(count);
    for (const plugin of byPlugin.keys()) shownPlugins.add(plugin);
    for (const plugin of shownPlugins) unschedulable.with(plugin, SCHEDULER_NAME).set(byPlugin.get(plugin) ?? 0);
    for (const [type, count] of Object.entries({ nodes, pods, assumed_pods: assumed })) sizes.with(type).set(count);
  };
  const remove = metrics.collect(() => show(queue(), cache()));
  return () => {
    remove();
    show({ active: 0, backoff: 0, unschedulable: 0, byPlugin: new Map() }, { nodes: 0, pods: 0, assumed: 0 });
  };
}
