/**
 * Divides computations into cooperative slices. Code that processes many units checks after each of them whether its slice is
 * spent. If so, it yields to the event loop until everything else that is ready has run. Values that it read before a pause may
 * have changed.
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
