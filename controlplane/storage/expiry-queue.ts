/**
 * Finds the keys whose time has passed (events after an hour). It has a heap by time and one timer. Expired keys are reported
 * together, at most every ten seconds unless many are due, so that the expiries of an idle cluster cost few commits.
 */
import type { Clock, Timer } from '../../api/machinery/clock.ts';
import { Heap } from '../../api/machinery/heap.ts';

/** A key with the wall-clock time at which it expires, in milliseconds since 1970. */
export interface Expiry {
  readonly key: string;
  /** The revision of the write that set the expiry. A later write of the key invalidates the entry. */
  readonly revision: number;
  readonly atMs: number;
}

const SLACK_MS = 10_000;
/**
 * The number of keys that are reported in one step. Many keys may be due at once after the process was down for long, and the
 * steps yield to the event loop.
 */
const STEP_EXPIRIES = 500;
const STEP_PAUSE_MS = 50;

/** Holds keys with their times. `onDue` gets the expired keys. An entry that a later write made invalid is still reported. */
export class ExpiryQueue {
  readonly #clock: Clock;
  readonly #onDue: (expiries: readonly Expiry[]) => void;
  readonly #heap = new Heap<Expiry>((a, b) => a.atMs < b.atMs);
  #timer: Timer | undefined;
  #timerAtMs = Infinity;
  #closed = false;

  constructor(clock: Clock, onDue: (expiries: readonly Expiry[]) => void) {
    this.#clock = clock;
    this.#onDue = onDue;
  }

  add(expiry: Expiry): void {
    this.#heap.push(expiry);
    this.#arm();
  }

  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
  }

  #arm(slackMs = SLACK_MS): void {
    const { first } = this.#heap;
    if (first === undefined || this.#closed || first.atMs >= this.#timerAtMs) return;
    this.#timer?.cancel();
    this.#timerAtMs = first.atMs;
    this.#timer = this.#clock.after(Math.max(0, first.atMs - this.#clock.now()) + slackMs, () => this.#fire());
  }

  #fire(): void {
    const due: Expiry[] = [];
    const now = this.#clock.now();
    for (let first = this.#heap.first; first !== undefined && first.atMs <= now; first = this.#heap.first) {
      if (due.length === STEP_EXPIRIES) break;
      due.push(first);
      this.#heap.pop();
    }
    this.#timerAtMs = Infinity;
    this.#timer = undefined;
    if (due.length > 0) this.#onDue(due);
    this.#arm(due.length === STEP_EXPIRIES ? STEP_PAUSE_MS : SLACK_MS);
  }
}
