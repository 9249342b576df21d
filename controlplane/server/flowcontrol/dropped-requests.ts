/**
 * Computes the Retry-After seconds for the refused clients of a priority level. The number doubles while many requests are
 * refused (at most once in that many seconds) and decreases by one when few are refused, as in kube-apiserver.
 */
import type { Clock } from '../../../api/machinery/clock.ts';

const MAX_SECONDS = 32;

/** Counts the refusals of one level. */
export class DroppedRequests {
  readonly #clock: Clock;
  /** The refusals by second, oldest first. */
  #history: { readonly second: number; count: number }[] = [];
  #current = { second: 0, count: 0 };
  #raisedAt = 0;
  #retryAfter = 1;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Counts a refusal. Returns the value of its Retry-After header, in seconds. */
  record(): number {
    const second = Math.floor(this.#clock.now() / 1000);
    if (second === this.#current.second) {
      this.#current.count += 1;
      return this.#retryAfter;
    }
    this.#history.push(this.#current);
    this.#history = this.#history.filter((one) => second - one.second <= MAX_SECONDS);
    this.#current = { second, count: 1 };
    this.#adjust(second);
    return this.#retryAfter;
  }

  #adjust(second: number): void {
    const dropped = this.#history
      .filter((one) => second - one.second <= this.#retryAfter)
      .reduce((sum, { count }) => sum + count, 0);
    if (second - this.#raisedAt >= this.#retryAfter && dropped >= 3 * this.#retryAfter) {
      this.#retryAfter = Math.min(2 * this.#retryAfter, MAX_SECONDS);
      this.#raisedAt = second;
    } else if (dropped < this.#retryAfter && this.#retryAfter > 1) this.#retryAfter -= 1;
  }
}
