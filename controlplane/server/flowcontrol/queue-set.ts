/**
 * Manages the seats of one priority level and the queues of requests that wait for them.
 *
 * Requests are dispatched by fair queuing. Virtual time advances by the seat-milliseconds to which each active queue is
 * entitled. The queue whose next request would finish first in virtual time is served first. The duration of a request is
 * estimated at its dispatch and corrected when it ends.
 */
import type { Clock, Timer } from '../../../api/machinery/clock.ts';
import type { ApiRequest } from '../request.ts';
import { SeatDemand } from './seat-demand.ts';

interface QueuingConfig {
  /** 0 means that nothing waits, and requests without a free seat are refused. */
  readonly queues: number;
  readonly queueLengthLimit: number;
}

/** How the waiting of a request ended. */
export type Grant = 'execute' | 'time-out' | 'cancelled';

interface SeatRequest {
  /** The number of seats that the request takes. */
  readonly width: number;
  /** The indexes of the queues in which it may wait. */
  readonly hand: readonly number[];
  readonly waitLimitMs: number;
  /** The description of the request in dumps. */
  readonly subject: ApiRequest;
  readonly flow: { readonly distinguisher: string; readonly schema: { readonly name: string } };
}

/** One queue, with the requests that wait in it. */
export interface Queue {
  readonly index: number;
  readonly waiting: Set<Ticket>;
  seatsWaiting: number;
  executing: number;
  seatsInUse: number;
  /** The virtual time at which its next request is due. */
  nextDispatch: number;
}

/** The estimated duration of a request until it has ended. */
const ESTIMATED_MS = 3;
/** The number of queues up to which those without requests are shown. */
const MAX_SHOWN = 10_000;

const emptyQueue = (index: number): Queue => ({
  ...{ index, waiting: new Set(), seatsWaiting: 0, executing: 0, seatsInUse: 0, nextDispatch: 0 },
});

/** The claim of a request on seats. It is waiting, executing or finished. */
export class Ticket {
  readonly width: number;
  readonly subject: ApiRequest;
  readonly flow: SeatRequest['flow'];
  readonly arrivedMs: number;
  /** The virtual time of the arrival. */
  readonly arrivedAt: number;
  readonly queue: Queue | undefined;
  readonly #set: QueueSet;
  state: 'waiting' | 'executing' | 'done' = 'executing';
  startedMs = 0;
  endedMs = 0;
  wait: { readonly grant: PromiseWithResolvers<Grant>; readonly timer: Timer } | undefined;

  constructor(set: QueueSet, queue: Queue | undefined, request: SeatRequest, at: { ms: number; virtual: number }) {
    this.#set = set;
    this.queue = queue;
    this.width = request.width;
    this.subject = request.subject;
    this.flow = request.flow;
    this.arrivedMs = at.ms;
    this.arrivedAt = at.virtual;
  }

  /** Returns the seats. Idempotent. */
  release(): void {
    if (this.state === 'executing') this.#set.finish(this);
  }

  /** Leaves the queue if it is still waiting. */
  cancel(): void {
    if (this.state === 'waiting') this.#set.giveUp(this, 'cancelled');
  }
}

/** The queues and seats of a priority level. The limit of seats may change at any time; requests that execute keep theirs. */
export class QueueSet {
  readonly #clock: Clock;
  readonly demand: SeatDemand;
  #config: QueuingConfig = { queues: 0, queueLengthLimit: 0 };
  #limit = 0;
  /** The queues with requests, by index: a level may have ten million queues, of which few have any. */
  readonly #queues = new Map<number, Queue>();
  #virtual = 0;
  #lastMs: number;
  /** The index of the queue that was chosen last. */
  #lastServed = 0;
  /** The virtual time at which the last dispatched request was due. */
  lastDispatch = 0;
  /** The requests that have seats. */
  readonly running = new Set<Ticket>();
  seatsInUse = 0;
  seatsWaiting = 0;
  waiting = 0;
  /** The number of requests that got their seats, since the start. */
  dispatched = 0;
  /** The number of requests that got none. */
  rejected = 0;
  /** The number of requests that left a queue without seats. */
  cancelled = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#lastMs = clock.monotonic();
    this.demand = new SeatDemand(this.#lastMs);
  }

  /** The number of running requests. */
  get executing(): number {
    return this.running.size;
  }

  /** The number of seats that requests may occupy together. */
  get limit(): number {
    return this.#limit;
  }

  get virtualTime(): number {
    return this.#virtual;
  }

  /**
   * Returns the queues in the order of their indexes, with those that have no requests unless there are more than `MAX_SHOWN`.
   */
  get queues(): readonly Queue[] {
    const { queues } = this.#config;
    const indexes = new Set(queues > MAX_SHOWN ? [] : Array.from({ length: queues }, (_, index) => index));
    for (const index of this.#queues.keys()) indexes.add(index);
    return [...indexes].sort((a, b) => a - b).map((index) => this.#queues.get(index) ?? emptyQueue(index));
  }

  /** Returns the estimated seat-milliseconds of the waiting requests. */
  workOf(queue: Queue): number {
    return queue.seatsWaiting * ESTIMATED_MS;
  }

  /** Applies new settings. Requests stay in queues that are superfluous then. */
  configure(config: QueuingConfig): void {
    this.#advance();
    this.#config = config;
  }

  /** Sets the number of seats, and dispatches what they allow. */
  setLimit(seats: number): void {
    this.#advance();
    this.#limit = seats;
    this.#dispatch();
  }

  /** Returns the ticket of the request, or `undefined` if the request is refused. */
  acquire(request: SeatRequest): Ticket | undefined {
    const nowMs = this.#advance();
    const at = { ms: nowMs, virtual: this.#virtual };
    if (this.#config.queues === 0) {
      if (!this.#fits(request.width)) return this.#reject();
      const ticket = new Ticket(this, undefined, request, at);
      this.#start(ticket, nowMs);
      return ticket;
    }
    const index = this.#shortest(request.hand);
    const existing = this.#queues.get(index);
    const isFree = this.waiting === 0 && this.#fits(request.width);
    if (!isFree && (existing?.waiting.size ?? 0) >= this.#config.queueLengthLimit) return this.#reject();
    const queue = existing ?? this.#activate(index);
    const ticket = new Ticket(this, queue, request, at);
    if (isFree) {
      this.#start(ticket, nowMs);
      return ticket;
    }
    this.#enqueue(ticket, queue, request.waitLimitMs);
    this.#dispatch();
    return ticket;
  }

  /** Ends a request that was executed, and returns its seats. */
  finish(ticket: Ticket): void {
    const nowMs = this.#advance();
    ticket.state = 'done';
    ticket.endedMs = nowMs;
    this.running.delete(ticket);
    this.seatsInUse -= ticket.width;
    const { queue } = ticket;
    if (queue !== undefined) {
      queue.executing -= 1;
      queue.seatsInUse -= ticket.width;
      // The dispatch charged the estimate, and now the queue is charged for the real duration.
      queue.nextDispatch += (nowMs - ticket.startedMs - ESTIMATED_MS) * ticket.width;
      this.#settle(queue);
    }
    this.#dispatch();
    this.#observe();
  }

  /** Ends a request that still waits, with this grant. */
  giveUp(ticket: Ticket, grant: Grant): void {
    this.#advance();
    this.#leaveQueue(ticket);
    ticket.state = 'done';
    this.rejected += 1;
    this.cancelled += 1;
    ticket.wait?.grant.resolve(grant);
    if (ticket.queue !== undefined) this.#settle(ticket.queue);
    this.#dispatch();
    this.#observe();
  }

  #reject(): undefined {
    this.rejected += 1;
    return undefined;
  }

  /** Advances the virtual time to now, and returns the monotonic time. */
  #advance(): number {
    const nowMs = this.#clock.monotonic();
    const elapsedMs = nowMs - this.#lastMs;
    this.#lastMs = nowMs;
    if (elapsedMs > 0 && this.#queues.size > 0) {
      const served = Math.min(this.seatsInUse + this.seatsWaiting, this.#limit);
      this.#virtual += (elapsedMs * served) / this.#queues.size;
    }
    return nowMs;
  }

  /** Whether a request of this width may start now. A request that is wider than the whole level runs alone. */
  #fits(width: number): boolean {
    return this.seatsInUse + width <= this.#limit || (this.seatsInUse === 0 && this.#limit > 0);
  }

  /** Returns the index of the queue of the hand whose requests have the fewest seats. */
  #shortest(hand: readonly number[]): number {
    let best = 0;
    let least = Number.POSITIVE_INFINITY;
    for (let at = 0; at < hand.length; at++) {
      const index = hand[at] ?? 0;
      if (index >= this.#config.queues) continue;
      const queue = this.#queues.get(index);
      const seats = queue === undefined ? 0 : queue.seatsInUse + queue.seatsWaiting;
      if (seats < least) {
        least = seats;
        best = index;
      }
    }
    return best;
  }

  /** Creates the queue for its first request. A queue that was idle has no credit and no debt. */
  #activate(index: number): Queue {
    const queue = { ...emptyQueue(index), nextDispatch: this.#virtual };
    this.#queues.set(index, queue);
    return queue;
  }

  /** Deletes a queue without requests. Another one gets no credit for the time before its oldest request arrived. */
  #settle(queue: Queue): void {
    if (queue.waiting.size === 0 && queue.executing === 0) {
      this.#queues.delete(queue.index);
      return;
    }
    const [oldest] = queue.waiting;
    if (oldest !== undefined && queue.nextDispatch < oldest.arrivedAt) queue.nextDispatch = oldest.arrivedAt;
  }

  #enqueue(ticket: Ticket, queue: Queue, waitLimitMs: number): void {
    ticket.state = 'waiting';
    const timer = this.#clock.after(waitLimitMs, () => {
      if (ticket.state === 'waiting') this.giveUp(ticket, 'time-out');
    });
    ticket.wait = { grant: Promise.withResolvers<Grant>(), timer };
    queue.waiting.add(ticket);
    queue.seatsWaiting += ticket.width;
    this.waiting += 1;
    this.seatsWaiting += ticket.width;
    this.#observe();
  }

  #leaveQueue(ticket: Ticket): void {
    ticket.wait?.timer.cancel();
    const { queue } = ticket;
    if (queue === undefined) return;
    queue.waiting.delete(ticket);
    queue.seatsWaiting -= ticket.width;
    this.waiting -= 1;
    this.seatsWaiting -= ticket.width;
  }

  #start(ticket: Ticket, nowMs: number): void {
    ticket.state = 'executing';
    ticket.startedMs = nowMs;
    this.running.add(ticket);
    this.dispatched += 1;
    this.seatsInUse += ticket.width;
    const { queue } = ticket;
    if (queue !== undefined) {
      queue.executing += 1;
      queue.seatsInUse += ticket.width;
      this.lastDispatch = queue.nextDispatch;
      queue.nextDispatch += ESTIMATED_MS * ticket.width;
    }
    this.#observe();
  }

  #dispatch(): void {
    while (this.waiting > 0) {
      const queue = this.#next();
      const [ticket] = queue?.waiting ?? [];
      if (queue === undefined || ticket === undefined || !this.#fits(ticket.width)) return;
      this.#leaveQueue(ticket);
      this.#start(ticket, this.#lastMs);
      this.#settle(queue);
      ticket.wait?.grant.resolve('execute');
    }
  }

  /** Returns the queue whose oldest request would finish first in virtual time. Equal queues take turns. */
  #next(): Queue | undefined {
    let best: Queue | undefined;
    let earliest = Number.POSITIVE_INFINITY;
    for (const queue of this.#queues.values()) {
      const [oldest] = queue.waiting;
      if (oldest === undefined) continue;
      const finish = queue.nextDispatch + ESTIMATED_MS * oldest.width;
      if (finish > earliest || (finish === earliest && best !== undefined && !this.#isBefore(queue, best))) continue;
      earliest = finish;
      best = queue;
    }
    if (best !== undefined) this.#lastServed = best.index;
    return best;
  }

  /** Whether it is the turn of queue `a` before that of `b`: the indexes after that of the last turn come first. */
  #isBefore({ index: a }: Queue, { index: b }: Queue): boolean {
    const isNext = a > this.#lastServed;
    return isNext === b > this.#lastServed ? a < b : isNext;
  }

  #observe(): void {
    this.demand.set(this.#lastMs, this.seatsInUse + this.seatsWaiting);
  }
}
