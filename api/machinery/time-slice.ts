/**
 * Cooperative slices of compute: code that works through many units asks after each of them whether its slice is spent, and if
 * so gives the event loop back until everything else that is ready has had a turn. What it read before a pause may have changed.
 */
import { setImmediate } from 'node:timers/promises';
import type { Clock } from './clock.ts';

const SLICE_MS = 10;

export class TimeSlice {
  readonly #clock: Pick<Clock, 'monotonic'>;
  readonly #lengthMs: number;
  #endsAtMs: number;

  constructor(clock: Pick<Clock, 'monotonic'>, lengthMs = SLICE_MS) {
    this.#clock = clock;
    this.#lengthMs = lengthMs;
    this.#endsAtMs = clock.monotonic() + lengthMs;
  }

  get isSpent(): boolean {
    return this.#clock.monotonic() >= this.#endsAtMs;
  }

  /** Resolves at the beginning of the next slice. */
  async pause(): Promise<void> {
    await setImmediate();
    this.#endsAtMs = this.#clock.monotonic() + this.#lengthMs;
  }
}
