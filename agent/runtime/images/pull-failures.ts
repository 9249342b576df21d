/**
 * Remembers the failed pulls of each pod and image with their back-off. `collect` drops those that have not failed for ten
 * minutes, so that pods that are gone leave nothing.
 */
import type { Clock } from '../../../api/machinery/clock.ts';
import { BackOff } from '../kuberuntime/back-off.ts';

interface Failure {
  readonly text: string;
  readonly atMs: number;
}

/** A key stands for one image of one pod. */
export class PullFailures {
  readonly #clock: Clock;
  readonly #backOff: BackOff;
  readonly #last = new Map<string, Failure>();

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#backOff = new BackOff(clock);
  }

  /** The number of keys of which the last error is remembered. */
  get size(): number {
    return this.#last.size;
  }

  /** Returns the last error while its back-off lasts, or `undefined` if a pull may begin. */
  inBackOff(key: string): string | undefined {
    const last = this.#last.get(key);
    return last === undefined || this.#backOff.remainingMs(key, last.atMs) === 0 ? undefined : last.text;
  }

  /** Counts a failed pull, whose error is `text`. */
  failed(key: string, text: string): void {
    const atMs = this.#clock.now();
    this.#last.set(key, { text, atMs });
    this.#backOff.next(key, atMs);
  }

  /** Forgets the failures of a key, because a pull succeeded. */
  succeeded(key: string): void {
    this.#backOff.forget(key);
    this.#last.delete(key);
  }

  /** Forgets the keys that have not failed for ten minutes. */
  collect(): void {
    this.#backOff.collect();
    for (const key of this.#last.keys()) if (this.#backOff.delayMs(key) === 0) this.#last.delete(key);
  }
}
