/**
 * Remembers namespaces that were deleted through this server a short time ago. Admission reads these namespaces from the
 * registry, because the informer may still show them.
 */
import type { Clock } from '../../../api/machinery/clock.ts';

const JUST_DELETED_MS = 30_000;

/** The names of deleted namespaces. Each use drops expired ones, so that it holds at most the deletions of half a minute. */
export class RecentDeletions {
  readonly #clock: Clock;
  /** The times until which deletions are remembered, the oldest first. */
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

  /** Whether the namespace was deleted a moment ago. */
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
