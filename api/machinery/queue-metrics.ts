/** Registers the metrics of work queues under the names of Kubernetes' Go client. Queues of one name share their series. */
import type { Clock } from './clock.ts';
import type { QueueObserver } from './work-queue.ts';
import type { MetricsRegistry } from '../component/metrics.ts';

/**
 * The bounds of the buckets, from 10 ns to 10 s. Each is a product of the one before, as in client-go, because the last digits
 * are in the names of the buckets.
 */
const BUCKETS = Array.from({ length: 9 }).reduce<number[]>((all) => [...all, (all.at(-1) ?? 0) * 10], [10e-9]);

/** Returns a function that creates the observer of one queue with this name. */
export function queueMetrics(metrics: MetricsRegistry, clock: Clock): (name: string) => QueueObserver {
  const labels = ['name'];
  const gauge = (name: string, help: string) => metrics.gauge({ name, help, labels });
  const counter = (name: string, help: string) => metrics.counter({ name, help, labels });
  const histogram = (name: string, help: string) => metrics.histogram({ name, help, labels, buckets: BUCKETS });
  const depth = gauge('workqueue_depth', 'Current depth of workqueue');
  const adds = counter('workqueue_adds_total', 'Total number of adds handled by workqueue');
  const waits = histogram(
    'workqueue_queue_duration_seconds',
    'How long in seconds an item stays in workqueue before being requested.',
  );
  const works = histogram(
    'workqueue_work_duration_seconds',
    'How long in seconds processing an item from workqueue takes.',
  );
  const unfinished = gauge(
    'workqueue_unfinished_work_seconds',
    "How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.",
  );
  const longest = gauge(
    'workqueue_longest_running_processor_seconds',
    'How many seconds has the longest running processor for workqueue been running.',
  );
  const retries = counter('workqueue_retries_total', 'Total number of retries handled by workqueue');
  const queues = new Map<string, Set<QueueTimes>>();
  metrics.collect(() => {
    for (const [name, members] of queues) {
      const running = [...members].flatMap((times) => times.runningMs());
      depth.with(name).set([...members].reduce((sum, times) => sum + times.waiting, 0));
      unfinished.with(name).set(running.reduce((sum, ms) => sum + ms, 0) / 1000);
      longest.with(name).set(Math.max(0, ...running) / 1000);
    }
  });
  return (name) => {
    const times = new QueueTimes(clock, {
      added: () => adds.with(name).inc(),
      waited: (ms) => waits.with(name).observe(ms / 1000),
      worked: (ms) => works.with(name).observe(ms / 1000),
      retried: () => retries.with(name).inc(),
      stopped: () => void queues.get(name)?.delete(times),
    });
    queues.set(name, (queues.get(name) ?? new Set()).add(times));
    return times;
  };
}

interface Series {
  readonly added: () => void;
  readonly waited: (ms: number) => void;
  readonly worked: (ms: number) => void;
  readonly retried: () => void;
  readonly stopped: () => void;
}

/** Records when the keys of one queue were added and taken. It has an entry for each key that waits or is handled. */
class QueueTimes implements QueueObserver {
  readonly #clock: Clock;
  readonly #series: Series;
  readonly #added = new Map<string, number>();
  readonly #taken = new Map<string, number>();

  constructor(clock: Clock, series: Series) {
    this.#clock = clock;
    this.#series = series;
  }

  get waiting(): number {
    return this.#added.size;
  }

  runningMs(): readonly number[] {
    const nowMs = this.#clock.monotonic();
    return [...this.#taken.values()].map((fromMs) => nowMs - fromMs);
  }

  added(key: string): void {
    this.#series.added();
    this.#added.set(key, this.#clock.monotonic());
  }

  taken(key: string): void {
    const nowMs = this.#clock.monotonic();
    this.#series.waited(nowMs - (this.#added.get(key) ?? nowMs));
    this.#added.delete(key);
    this.#taken.set(key, nowMs);
  }

  done(key: string): void {
    const nowMs = this.#clock.monotonic();
    this.#series.worked(nowMs - (this.#taken.get(key) ?? nowMs));
    this.#taken.delete(key);
  }

  retried(): void {
    this.#series.retried();
  }

  stopped(): void {
    this.#added.clear();
    this.#series.stopped();
  }
}
