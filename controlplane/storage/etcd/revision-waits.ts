/** Lets callers wait until readers see a revision. */
import type { Clock, Timer } from '../../../api/machinery/clock.ts';
import { StorageError } from '../storage.ts';

interface Wait {
  readonly revision: number;
  readonly timer: Timer;
  resolve(): void;
  reject(error: StorageError): void;
}

/** How long a caller waits for the watch of etcd, which may have to be opened again at another member. */
const WAIT_MS = 15_000;

/** Holds the callers that wait for a revision, each for 15 seconds at most. */
export class RevisionWaits {
  readonly #clock: Clock;
  readonly #waits = new Set<Wait>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Resolves when the applied revision is this one or a later one. Rejects with `unavailable` after 15 seconds, and with the
   * error of `fail`.
   */
  reached(revision: number, applied: () => number): Promise<void> {
    if (applied() >= revision) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const late = (): void => {
        this.#waits.delete(wait);
        reject(new StorageError('unavailable', `the watch of etcd has not shown revision ${revision} yet`));
      };
      const wait: Wait = { revision, timer: this.#clock.after(WAIT_MS, late), resolve, reject };
      this.#waits.add(wait);
    });
  }

  /** Resolves the waits for this revision and earlier ones. */
  applied(revision: number): void {
    for (const wait of this.#waits) {
      if (wait.revision > revision) continue;
      this.#waits.delete(wait);
      wait.timer.cancel();
      wait.resolve();
    }
  }

  /** Rejects all callers that wait. */
  fail(error: StorageError): void {
    for (const wait of this.#waits) {
      wait.timer.cancel();
      wait.reject(error);
    }
    this.#waits.clear();
  }
}
