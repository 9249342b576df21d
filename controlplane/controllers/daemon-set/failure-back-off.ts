/**
 * Delays the deletion of failed pods of a daemon set, because a node that rejects pods would reject the next one as well. The
 * delay is 1 s after the first failure and doubles with each further one, to 15 min at most.
 */
import { backoffDelay } from '../../../api/machinery/backoff.ts';
import type { Clock } from '../../../api/machinery/clock.ts';

const RANGE = { firstMs: 1000, longestMs: 900_000 };

interface Entry {
  readonly failures: number;
  readonly atMs: number;
}

/** Keeps the failures by key in memory, each until twice the longest delay has passed since the last one. */
export class FailureBackOff {
  readonly #clock: Clock;
  readonly #entries = new Map<string, Entry>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Returns the milliseconds until the next try of the key; 0 if it may be tried. */
  remainingMs(key: string): number {
    const entry = this.#current(key);
    if (entry === undefined) return 0;
    return Math.max(0, entry.atMs + backoffDelay(entry.failures, RANGE) - this.#clock.monotonic());
  }

  /** Counts another failure of the key. */
  recordFailure(key: string): void {
    const failures = (this.#current(key)?.failures ?? 0) + 1;
    // The oldest entries come first.
    for (const [other, entry] of this.#entries) {
      if (!this.#isOld(entry)) break;
      this.#entries.delete(other);
    }
    this.#entries.delete(key);
    this.#entries.set(key, { failures, atMs: this.#clock.monotonic() });
  }

  #current(key: string): Entry | undefined {
    const entry = this.#entries.get(key);
    return entry === undefined || this.#isOld(entry) ? undefined : entry;
  }

  #isOld({ atMs }: Entry): boolean {
    return this.#clock.monotonic() - atMs > RANGE.longestMs * 2;
  }
}
