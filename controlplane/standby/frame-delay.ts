/** Computes when the frames of one connection were sent. */
import type { Clock } from '../../api/machinery/clock.ts';

/**
 * Frames wait in buffers while the receiver is stopped or busy. How long one waited is the difference to the frame that came
 * fastest, because the monotonic clocks of two hosts have nothing in common. The time in which a whole host was suspended is
 * not noticed.
 */
export class FrameDelay {
  readonly #clock: Clock;
  #leastMs = Number.POSITIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Returns the wall-clock time here at which a frame was sent that is processed now. `sentAtMs` is the sender's. */
  sentAtMs(sentAtMs: number): number {
    const delayMs = this.#clock.monotonic() - sentAtMs;
    this.#leastMs = Math.min(this.#leastMs, delayMs);
    return this.#clock.now() - (delayMs - this.#leastMs);
  }
}
