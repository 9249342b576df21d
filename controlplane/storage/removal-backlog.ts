/**
 * Holds the records that the backend must remove after compactions, in order. A failed removal stays first in the backlog and
 * is retried. So the compaction mark never passes a record that is not removed yet, and the record of a deletion is removed
 * only after the values that it hides. Otherwise a restart would show deleted objects again.
 */
import type { Clock, Timer } from '../../api/machinery/clock.ts';

interface Removal {
  readonly compactedRevision: number;
  readonly revisions: readonly number[];
}

interface RemovalBacklogOptions {
  readonly clock: Clock;
  /** Removes the records of one step in one transaction. */
  readonly remove: (compactedRevision: number, revisions: readonly number[]) => Promise<void>;
  /** Called for each failure. Returns whether the backlog retries later. */
  readonly onFailure: (error: unknown) => boolean;
}

/** The number of records that one transaction removes. */
const STEP_RECORDS = 1000;
const RETRY_MS = 15_000;

/** Removes records from the backend, with at most one removal at a time. */
export class RemovalBacklog {
  readonly #options: RemovalBacklogOptions;
  #waiting: Removal[] = [];
  #running: Promise<void> | undefined;
  #retry: Timer | undefined;
  #closed = false;
  readonly #holds = new Set<object>();

  constructor(options: RemovalBacklogOptions) {
    this.#options = options;
  }

  /** The number of records that wait for their removal. */
  get size(): number {
    return this.#waiting.reduce((sum, { revisions }) => sum + revisions.length, 0);
  }

  get isWaiting(): boolean {
    return this.#waiting.length > 0;
  }

  /** Adds records after the waiting ones. `drain` removes them. */
  push(compactedRevision: number, revisions: readonly number[]): void {
    // Even without records, the mark must move.
    for (let from = 0; from === 0 || from < revisions.length; from += STEP_RECORDS)
      this.#waiting.push({ compactedRevision, revisions: revisions.slice(from, from + STEP_RECORDS) });
  }

  /** Keeps all records until the returned function is called, or until `releaseHolds`. */
  hold(): () => void {
    const hold = {};
    this.#holds.add(hold);
    return () => {
      if (this.#holds.delete(hold)) this.#released();
    };
  }

  /** Ends all holds, because removals make room on a full disk. */
  releaseHolds(): void {
    if (this.#holds.size === 0) return;
    this.#holds.clear();
    this.#released();
  }

  #released(): void {
    if (this.#holds.size > 0 || this.#closed) return;
    // A failure is reported by `onFailure`.
    this.drain().catch(() => undefined);
  }

  /**
   * Resolves when all waiting records are removed, or as soon as they are held. Rejects with the first failure, and the
   * remaining records keep waiting.
   */
  async drain(): Promise<void> {
    this.#retry?.cancel();
    this.#retry = undefined;
    // Repeats for records that were added after the running removal had found the backlog empty.
    while (this.#waiting.length > 0 && this.#holds.size === 0) {
      this.#running ??= this.#removeAll().finally(() => {
        this.#running = undefined;
      });
      await this.#running;
    }
  }

  /** Waits for the running removals. Records that remain are found when the storage is opened again. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#retry?.cancel();
    // `onFailure` has reported a failure.
    await this.#running?.catch(() => undefined);
  }

  async #removeAll(): Promise<void> {
    try {
      for (let next = this.#waiting[0]; next !== undefined && this.#holds.size === 0; next = this.#waiting[0]) {
        await this.#options.remove(next.compactedRevision, next.revisions);
        this.#waiting.shift();
      }
    } catch (error) {
      if (this.#options.onFailure(error) && !this.#closed) this.#retryLater();
      throw error;
    }
  }

  #retryLater(): void {
    this.#retry ??= this.#options.clock.after(RETRY_MS, () => {
      this.#retry = undefined;
      // The failure was reported by `onFailure`.
      this.drain().catch(() => undefined);
    });
  }
}
