/** Holds the state of one priority level: its queues and seats, the bodies that it receives, its limits, and its counters. */
import type { Clock } from '../../../api/machinery/clock.ts';
import type { PriorityLevelSpec } from '../../registry/kinds/flowcontrol/flowcontrol-types.ts';
import { Shares } from '../shares.ts';
import type { ConcurrencyBounds } from './concurrency-limits.ts';
import { DroppedRequests } from './dropped-requests.ts';
import { QueueSet } from './queue-set.ts';
import type { DemandStatistics } from './seat-demand.ts';

/** The share of the smoothed demand that remains after one period. */
const SMOOTHING = 0.977;

/** Lives as long as requests of it do, also after its object is deleted. */
export class PriorityLevel {
  readonly name: string;
  readonly set: QueueSet;
  readonly intake: Shares;
  readonly dropped: DroppedRequests;
  uid = '';
  isExempt = false;
  queues = 0;
  handSize = 0;
  /** The number of requests that all its queues can hold. */
  waitingRoom = 0;
  bounds: ConcurrencyBounds = { nominal: 0, lower: 0, upper: 0 };
  /** The number of seats after lending and borrowing. */
  current = 0;
  demand: DemandStatistics = { average: 0, deviation: 0, highWatermark: 0 };
  smoothedDemand = 0;
  target = 0;

  constructor(name: string, clock: Clock, intakeBytes: number) {
    this.name = name;
    this.set = new QueueSet(clock);
    this.dropped = new DroppedRequests(clock);
    this.intake = new Shares(intakeBytes);
  }

  configure(uid: string, spec: PriorityLevelSpec, bounds: ConcurrencyBounds): void {
    this.uid = uid;
    this.isExempt = spec.type === 'Exempt';
    const { type, queuing } = spec.limited?.limitResponse ?? {};
    const isQueuing = !this.isExempt && type === 'Queue';
    this.queues = isQueuing ? (queuing?.queues ?? 0) : 0;
    this.handSize = isQueuing ? (queuing?.handSize ?? 0) : 0;
    const queueLengthLimit = isQueuing ? (queuing?.queueLengthLimit ?? 0) : 0;
    this.waitingRoom = this.queues * queueLengthLimit;
    this.set.configure({ queues: this.queues, queueLengthLimit });
    if (
      bounds.nominal !== this.bounds.nominal ||
      bounds.lower !== this.bounds.lower ||
      bounds.upper !== this.bounds.upper
    ) {
      this.bounds = bounds;
      this.limit(Math.max(bounds.lower, Math.min(bounds.upper, this.current === 0 ? bounds.nominal : this.current)));
    }
    if (this.isExempt) this.set.setLimit(Number.POSITIVE_INFINITY);
  }

  /** Sets the number of seats. */
  limit(seats: number): void {
    this.current = seats;
    if (!this.isExempt) this.set.setLimit(seats);
  }

  /** Ends a period of observation. The smoothed demand rises at once to the demand of the period, and falls slowly. */
  observe(nowMs: number): void {
    this.demand = this.set.demand.reset(nowMs);
    const envelope = this.demand.average + this.demand.deviation;
    this.smoothedDemand = Math.max(envelope, SMOOTHING * this.smoothedDemand + (1 - SMOOTHING) * envelope);
  }

  /**
   * The seats that the level keeps in the next period, whatever the demand of other levels: its recent use, within its own
   * seats.
   */
  get floor(): number {
    return Math.max(this.bounds.lower, Math.min(this.bounds.nominal, this.demand.highWatermark));
  }
}
