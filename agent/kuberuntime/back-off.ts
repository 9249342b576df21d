/**
 * Waiting longer and longer between attempts at one thing: 10 s doubling to 5 min, forgotten after twice the longest wait
 * without a failure. For restarts of containers and for image pulls.
 */
import type { Clock } from '../../api/machinery/clock.ts';

interface Entry {
  delayMs: number;
  updatedAtMs: number;
}

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

  /** The current wait of the key, 0 where there is none. */
  delayMs(key: string): number {
    return this.#entries.get(key)?.delayMs ?? 0;
  }

  /** Milliseconds until the key may be tried again, counted from `since` (when it last ended). */
  remainingMs(key: string, sinceMs: number): number {
    const entry = this.#entries.get(key);
    if (entry === undefined || this.#expired(entry, sinceMs)) return 0;
    // Clocks jump: nobody waits longer than the wait is.
    return Math.min(Math.max(0, sinceMs + entry.delayMs - this.#clock.now()), entry.delayMs);
  }

  /** One more attempt: the next wait is longer. */
  next(key: string, sinceMs: number): void {
    const entry = this.#entries.get(key);
    if (entry === undefined || this.#expired(entry, sinceMs)) {
      this.#entries.set(key, { delayMs: this.#initialMs, updatedAtMs: this.#clock.now() });
      return;
    }
    entry.delayMs = Math.min(entry.delayMs * 2, this.#maxMs);
    entry.updatedAtMs = this.#clock.now();
  }

  forget(key: string): void {
    this.#entries.delete(key);
  }

  collect(): void {
    for (const [key, entry] of this.#entries) if (this.#expired(entry, this.#clock.now())) this.#entries.delete(key);
  }

  #expired(entry: Entry, atMs: number): boolean {
    return atMs - entry.updatedAtMs > this.#maxMs * 2;
  }
}
