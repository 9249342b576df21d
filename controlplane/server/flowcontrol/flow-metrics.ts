/**
 * Records the metrics of API priority and fairness under the names of kube-apiserver. Gauges of levels are set when metrics are
 * read. Distributions over time are sampled by `sample`.
 */
import type { Clock } from '../../../api/machinery/clock.ts';
import type { Counter, Gauge, Histogram, MetricsRegistry } from '../../../api/component/metrics.ts';
import type { CompiledSchema } from './flow-classifier.ts';
import type { FlowControl, LevelFlow } from './flow-control.ts';
import { installLevelMetrics } from './level-metrics.ts';
import type { PriorityLevel } from './priority-level.ts';
import type { Ticket } from './queue-set.ts';

/** The values of the label `reason`: those of kube-apiserver, and `body-intake`. */
export type RefusalReason = 'concurrency-limit' | 'queue-full' | 'time-out' | 'cancelled' | 'body-intake';

interface Series {
  readonly dispatched: Counter;
  readonly executingRequests: Gauge;
  readonly executingSeats: Gauge;
  readonly waitingRequests: Gauge;
  readonly waitingSeats: Gauge;
  readonly queueLength: Histogram;
  readonly estimated: Histogram;
  readonly waitedExecuted: Histogram;
  readonly waitedRefused: Histogram;
  readonly regular: Histogram;
  readonly watch: Histogram;
}

const SECONDS = [0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30];
const LENGTHS = [0, 10, 25, 50, 100, 250, 500, 1000];
const SEATS = [1, 2, 4, 10];
const BY_FLOW = ['priority_level', 'flow_schema'];

/** Durations are in seconds. */
export class FlowMetrics {
  readonly #clock: Clock;
  readonly #create: (level: string, schema: string) => Series;
  readonly #rejected: (level: string, schema: string, reason: string) => Counter;
  readonly #series = new WeakMap<CompiledSchema<PriorityLevel>, Series>();
  /** Samples the current utilization of the levels. */
  readonly sample: () => void;

  constructor(registry: MetricsRegistry, control: FlowControl, clock: Clock) {
    this.#clock = clock;
    this.#create = seriesOf(registry);
    const rejected = registry.counter({
      name: 'apiserver_flowcontrol_rejected_requests_total',
      help: 'Requests that API priority and fairness refused, by reason.',
      labels: [...BY_FLOW, 'reason'],
    });
    this.#rejected = (level, schema, reason) => rejected.with(level, schema, reason);
    this.sample = installLevelMetrics(registry, control);
  }

  /** Records the seats that a request was estimated to need. */
  estimated(flow: LevelFlow, width: number): void {
    this.#of(flow).estimated.observe(width);
  }

  enqueued(flow: LevelFlow, ticket: Ticket): void {
    const series = this.#of(flow);
    series.queueLength.observe(ticket.queue?.waiting.size ?? 0);
    series.waitingRequests.inc();
    series.waitingSeats.inc(ticket.width);
  }

  dequeued(flow: LevelFlow, ticket: Ticket): void {
    const series = this.#of(flow);
    series.waitingRequests.inc(-1);
    series.waitingSeats.inc(-ticket.width);
  }

  started(flow: LevelFlow, ticket: Ticket): void {
    const series = this.#of(flow);
    series.dispatched.inc();
    series.executingRequests.inc();
    series.executingSeats.inc(ticket.width);
    series.waitedExecuted.observe((ticket.startedMs - ticket.arrivedMs) / 1000);
  }

  finished(flow: LevelFlow, ticket: Ticket, isWatch: boolean): void {
    const series = this.#of(flow);
    series.executingRequests.inc(-1);
    series.executingSeats.inc(-ticket.width);
    (isWatch ? series.watch : series.regular).observe((ticket.endedMs - ticket.startedMs) / 1000);
  }

  /** Counts a rejected request. `ticket` is present if it has waited. */
  refused(flow: LevelFlow, reason: RefusalReason, ticket: Ticket | undefined): void {
    const { level, name } = flow.schema;
    this.#rejected(level.name, name, reason).inc();
    const waitedMs = ticket === undefined ? 0 : this.#clock.monotonic() - ticket.arrivedMs;
    this.#of(flow).waitedRefused.observe(waitedMs / 1000);
  }

  #of({ schema }: LevelFlow): Series {
    const cached = this.#series.get(schema);
    if (cached !== undefined) return cached;
    const fresh = this.#create(schema.level.name, schema.name);
    this.#series.set(schema, fresh);
    return fresh;
  }
}

function seriesOf(registry: MetricsRegistry): (level: string, schema: string) => Series {
  const gauge = (name: string, help: string): ReturnType<MetricsRegistry['gauge']> =>
    registry.gauge({ name: `apiserver_flowcontrol_${name}`, help, labels: BY_FLOW });
  const histogram = (
    name: string,
    help: string,
    buckets: readonly number[],
    more: string[] = [],
  ): ReturnType<MetricsRegistry['histogram']> =>
    registry.histogram({ name: `apiserver_flowcontrol_${name}`, help, labels: [...BY_FLOW, ...more], buckets });
  const dispatched = registry.counter({
    name: 'apiserver_flowcontrol_dispatched_requests_total',
    help: 'Requests that got seats.',
    labels: BY_FLOW,
  });
  const executingRequests = gauge('current_executing_requests', 'Requests that hold seats.');
  const executingSeats = gauge('current_executing_seats', 'Seats that are held.');
  const waitingRequests = gauge('current_inqueue_requests', 'Requests that wait in queues.');
  const waitingSeats = gauge('current_inqueue_seats', 'Seats that requests in queues wait for.');
  const length = histogram('request_queue_length_after_enqueue', 'Length of a queue as a request joins it.', LENGTHS);
  const estimated = histogram('work_estimated_seats', 'Seats that a request takes.', SEATS);
  const waited = histogram('request_wait_duration_seconds', 'Time that requests waited for seats.', SECONDS, [
    'execute',
  ]);
  const executed = histogram('request_execution_seconds', 'Time that requests held seats.', SECONDS, ['type']);
  return (level, schema) => ({
    dispatched: dispatched.with(level, schema),
    executingRequests: executingRequests.with(level, schema),
    executingSeats: executingSeats.with(level, schema),
    waitingRequests: waitingRequests.with(level, schema),
    waitingSeats: waitingSeats.with(level, schema),
    queueLength: length.with(level, schema),
    estimated: estimated.with(level, schema),
    waitedExecuted: waited.with(level, schema, 'true'),
    waitedRefused: waited.with(level, schema, 'false'),
    regular: executed.with(level, schema, 'regular'),
    watch: executed.with(level, schema, 'watch'),
  });
}
