/**
 * The records that the backend still has to remove after compactions, in order. A removal that fails stays first in the
 * backlog and is tried again: the compaction mark never passes a record that is still to be removed, and the record of a
 * deletion goes only after the values that it hides. Otherwise a restart would show deleted objects again. Owned by the
 * revision log.
 */
import type { Clock, Timer } from '../../api/machinery/clock.ts';

interface Removal {
  readonly compactedRevision: number;
  readonly revisions: readonly number[];
}

export interface RemovalBacklogOptions {
  readonly clock: Clock;
  /** Removes the records of one step in one transaction. */
  readonly remove: (compactedRevision: number, revisions: readonly number[]) => Promise<void>;
  /** Called for each failure. Returns whether the backlog tries again later. */
  readonly onFailure: (error: unknown) => boolean;
}

const STEP_RECORDS = 1000;
const RETRY_MS = 15_000;

export class RemovalBacklog {
  readonly #options: RemovalBacklogOptions;
  #waiting: Removal[] = [];
  #running: Promise<void> | undefined;
  #retry: Timer | undefined;
  #closed = false;

  constructor(options: RemovalBacklogOptions) {
    this.#options = options;
  }

  /** Records that wait for their removal. */
  get size(): number {
    return this.#waiting.reduce((sum, { revisions }) => sum + revisions.length, 0);
  }

  get isWaiting(): boolean {
    return this.#waiting.length > 0;
  }

  /** Adds records behind those that wait; `drain` removes them. */
  push(compactedRevision: number, revisions: readonly number[]): void {
    // Without records there is still the mark to move.
    for (let from = 0; from === 0 || from < revisions.length; from += STEP_RECORDS)
      this.#waiting.push({ compactedRevision, revisions: revisions.slice(from, from + STEP_RECORDS) });
  }

  /** Resolves when everything that waits is removed; rejects with the first failure, after which the rest waits on. */
  async drain(): Promise<void> {
    this.#retry?.cancel();
    this.#retry = undefined;
    // Again for what was added after the removals under way had seen that nothing waits.
    while (this.#waiting.length > 0) {
      this.#running ??= this.#removeAll().finally(() => {
        this.#running = undefined;
      });
      await this.#running;
    }
  }

  /** Waits for the removals under way; what fails is found again when the storage is opened. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#retry?.cancel();
    // `onFailure` has reported a failure.
    await this.#running?.catch(() => undefined);
  }

  async #removeAll(): Promise<void> {
    try {
      for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
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
