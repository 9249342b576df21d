/**
 * Names of namespaces that were deleted through this server a short time ago. The lister may still show them as they were, so
 * that admission reads them live.
 */
import type { Clock } from '../../api/machinery/clock.ts';

const JUST_DELETED_MS = 30_000;

/** Every use drops the names whose time is over, so that it holds no more than half a minute of deletions. */
export class RecentDeletions {
  readonly #clock: Clock;
  /** The oldest first. */
  readonly #untilMs = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get size(): number {
    return this.#untilMs.size;
  }

  add(name: string): void {
    this.#drop();
    this.#untilMs.delete(name);
    this.#untilMs.set(name, this.#clock.monotonic() + JUST_DELETED_MS);
  }

  has(name: string): boolean {
    if (this.#untilMs.size === 0) return false;
    this.#drop();
    return this.#untilMs.has(name);
  }

  #drop(): void {
    for (const [name, untilMs] of this.#untilMs) {
      if (untilMs >= this.#clock.monotonic()) return;
      this.#untilMs.delete(name);
    }
  }
}
