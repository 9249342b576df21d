/**
 * Computes the back-off of restarts of containers and of image pulls by a key: 10 s, doubling to 5 min by default, forgotten
 * after 10 min without a failure, as in the kubelet.
 */
import { backoffDelay } from '../../../api/machinery/backoff.ts';
import type { Clock } from '../../../api/machinery/clock.ts';

/** The time without a failure after which a back-off is forgotten, whatever its longest delay is. */
const EXPIRES_AFTER_MS = 600_000;

interface Entry {
  failures: number;
  updatedAtMs: number;
}

/** Owns the delays. Times are in milliseconds since 1970, because they come from the runtime. */
export class BackOff {
  readonly #clock: Clock;
  readonly #initialMs: number;
  readonly #maxMs: number;
  readonly #entries = new Map<string, Entry>();

  constructor(clock: Clock, initialMs = 10_000, maxMs = 300_000) {
    this.#clock = clock;
    this.#initialMs = initialMs;
    this.#maxMs = maxMs;
  }

  /** Returns the current delay of the key, 0 if there is none. */
  delayMs(key: string): number {
    const entry = this.#entries.get(key);
    return entry === undefined ? 0 : this.#delayOf(entry);
  }

  /** Returns the milliseconds until the next attempt, counted from `sinceMs`, the time of the last failure. */
  remainingMs(key: string, sinceMs: number): number {
    const entry = this.#entries.get(key);
    if (entry === undefined || this.#expired(entry, sinceMs)) return 0;
    // The clock can jump, so the remaining time never exceeds the delay.
    const delayMs = this.#delayOf(entry);
    return Math.min(Math.max(0, sinceMs + delayMs - this.#clock.now()), delayMs);
  }

  /**
   * Counts another attempt, so that the next delay is longer. After ten minutes without one, it starts from the first delay.
   */
  next(key: string, sinceMs: number): void {
    const entry = this.#entries.get(key);
    if (entry === undefined || this.#expired(entry, sinceMs)) {
      this.#entries.set(key, { failures: 1, updatedAtMs: this.#clock.now() });
      return;
    }
    entry.failures++;
    entry.updatedAtMs = this.#clock.now();
  }

  forget(key: string): void {
    this.#entries.delete(key);
  }

  /** Forgets the keys without an attempt in the last ten minutes. */
  collect(): void {
    for (const [key, entry] of this.#entries) if (this.#expired(entry, this.#clock.now())) this.#entries.delete(key);
  }

  #delayOf({ failures }: Entry): number {
    return backoffDelay(failures, { firstMs: this.#initialMs, longestMs: this.#maxMs });
  }

  #expired(entry: Entry, atMs: number): boolean {
    return atMs - entry.updatedAtMs > EXPIRES_AFTER_MS;
  }
}
