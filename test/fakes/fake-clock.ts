/**
 * Implements a clock with virtual time: nothing happens until a test calls `advance`. It fires due timers in order, and lets
 * the promises and ticks that each timer starts settle before the next one fires.
 */
import { sleepOn, type Clock, type Timer } from '../../api/machinery/clock.ts';

interface Pending {
  readonly at: number;
  readonly order: number;
  readonly callback: () => void;
}

/** A clock whose time a test advances. */
export class FakeClock implements Clock {
  #now: number;
  readonly #start: number;
  /** The milliseconds by which the wall clock was set since the start. */
  #setByMs = 0;
  #order = 0;
  readonly #timers = new Set<Pending>();

  constructor(start = Date.UTC(2026, 0, 2, 3, 4, 5)) {
    this.#now = start;
    this.#start = start;
  }

  now(): number {
    return this.#now + this.#setByMs;
  }

  /** Sets the wall clock forward, or back. Timers and the monotonic time do not notice. */
  set(byMs: number): void {
    this.#setByMs += byMs;
  }

  monotonic(): number {
    return this.#now - this.#start;
  }

  after(delayMs: number, callback: () => void): Timer {
    const pending: Pending = { at: this.#now + Math.max(0, delayMs), order: this.#order++, callback };
    this.#timers.add(pending);
    return { cancel: () => void this.#timers.delete(pending) };
  }

  sleep(delayMs: number, signal?: AbortSignal): Promise<void> {
    return sleepOn(this, delayMs, signal);
  }

  /** The number of pending timers. */
  get pendingTimers(): number {
    return this.#timers.size;
  }

  /** The milliseconds until the next timer, or `undefined` without timers. */
  get nextTimerMs(): number | undefined {
    const next = this.#next();
    return next === undefined ? undefined : next.at - this.#now;
  }

  /** Advances the time and fires due timers. */
  async advance(ms: number): Promise<void> {
    const target = this.#now + ms;
    await this.settle();
    for (let next = this.#next(); next !== undefined && next.at <= target; next = this.#next()) {
      this.#now = next.at;
      this.#timers.delete(next);
      next.callback();
      await this.settle();
    }
    this.#now = target;
  }

  /** Runs all pending promises and ticks without advancing the time. */
  async settle(): Promise<void> {
    for (let turn = 0; turn < 3; turn++) await new Promise((resolve) => setImmediate(resolve));
  }

  #next(): Pending | undefined {
    let best: Pending | undefined;
    for (const timer of this.#timers) {
      if (best === undefined || timer.at < best.at || (timer.at === best.at && timer.order < best.order)) best = timer;
    }
    return best;
  }
}
