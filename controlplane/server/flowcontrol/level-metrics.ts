/** Records the metrics of priority levels: limits and demand when metrics are read, and utilization when it is sampled. */
import type { MetricsRegistry } from '../../../api/component/metrics.ts';
import type { FlowControl } from './flow-control.ts';
import type { PriorityLevel } from './priority-level.ts';

const RATIOS = [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1];
const DEMAND_RATIOS = [0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.4, 1.7, 2, 2.8, 4, 6];

/** The name, help and value of each gauge by level. */
const GAUGES: readonly (readonly [string, string, (level: PriorityLevel) => number])[] = [
  ['nominal_limit_seats', 'Seats of the level by its shares.', ({ bounds }) => bounds.nominal],
  ['lower_limit_seats', 'Seats that the level keeps when it lends all it may.', ({ bounds }) => bounds.lower],
  ['upper_limit_seats', 'Seats that the level may have by borrowing.', ({ bounds }) => bounds.upper],
  ['current_limit_seats', 'Seats of the level after lending and borrowing.', ({ current }) => current],
  ['current_r', 'Virtual time of the fair queuing of the level.', ({ set }) => set.virtualTime / 1000],
  ['dispatch_r', 'Virtual time of the last dispatch.', ({ set }) => set.lastDispatch / 1000],
  ['demand_seats_average', 'Average demand in the last period.', ({ demand }) => demand.average],
  ['demand_seats_stdev', 'Standard deviation of the demand in the last period.', ({ demand }) => demand.deviation],
  ['demand_seats_high_watermark', 'Highest demand in the last period.', ({ demand }) => demand.highWatermark],
  ['demand_seats_smoothed', 'Smoothed demand.', ({ smoothedDemand }) => smoothedDemand],
  ['target_seats', 'Seats that the last adjustment aimed at.', ({ target }) => target],
];

/** Registers the metrics. Returns the function that records a sample. */
export function installLevelMetrics(registry: MetricsRegistry, control: FlowControl): () => void {
  const gauges = GAUGES.map(([name, help, value]) => ({
    family: registry.gauge({ name: `apiserver_flowcontrol_${name}`, help, labels: ['priority_level'] }),
    value,
  }));
  const fairness = registry.gauge({
    name: 'apiserver_flowcontrol_seat_fair_frac',
    help: 'Proportion of its target that each priority level gets within its bounds.',
  });
  const inFlight = registry.gauge({
    name: 'apiserver_current_inflight_requests',
    help: 'Requests that are executed, by kind.',
    labels: ['request_kind'],
  });
  const inQueue = registry.gauge({
    name: 'apiserver_current_inqueue_requests',
    help: 'Requests that wait in queues, by kind.',
    labels: ['request_kind'],
  });
  let shownLevels = new Set<string>();
  registry.collect(() => {
    fairness.with().set(control.fairProportion);
    for (const name of shownLevels) if (!control.levels.has(name)) for (const { family } of gauges) family.delete(name);
    shownLevels = new Set(control.levels.keys());
    for (const level of control.levels.values())
      for (const { family, value } of gauges) family.with(level.name).set(value(level));
    for (const kind of ['readOnly', 'mutating'] as const) {
      inFlight.with(kind).set(control.executing[kind]);
      inQueue.with(kind).set(control.waiting[kind]);
    }
  });
  return sampler(registry, control);
}

function sampler(registry: MetricsRegistry, control: FlowControl): () => void {
  const histogram = (name: string, help: string, labels: readonly string[], buckets: readonly number[]) =>
    registry.histogram({ name: `apiserver_flowcontrol_${name}`, help, labels, buckets });
  const requests = histogram(
    'priority_level_request_utilization',
    'Waiting requests divided by the room in the queues, or executing requests divided by the seats of the level.',
    ['phase', 'priority_level'],
    RATIOS,
  );
  const seats = histogram(
    'priority_level_seat_utilization',
    'Seats in use divided by the seats of the level.',
    ['phase', 'priority_level'],
    RATIOS,
  );
  const demand = histogram(
    'demand_seats',
    'Demand for seats divided by the nominal seats of the level.',
    ['priority_level'],
    DEMAND_RATIOS,
  );
  const kinds = histogram(
    'read_vs_write_current_requests',
    'Waiting or executing requests of a kind divided by the seats of the server.',
    ['phase', 'request_kind'],
    RATIOS,
  );
  return () => {
    for (const { name, set, bounds, current, waitingRoom } of control.levels.values()) {
      const limit = Math.max(1, current);
      requests.with('executing', name).observe(set.executing / limit);
      requests.with('waiting', name).observe(set.waiting / Math.max(1, waitingRoom));
      seats.with('executing', name).observe(set.seatsInUse / limit);
      demand.with(name).observe(set.demand.value / Math.max(1, bounds.nominal));
    }
    for (const kind of ['readOnly', 'mutating'] as const) {
      kinds.with('executing', kind).observe(control.executing[kind] / control.totalSeats);
      kinds.with('waiting', kind).observe(control.waiting[kind] / control.totalSeats);
    }
  };
}
