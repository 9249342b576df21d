/**
 * Keys that go by themselves at a time (events after an hour): a binary heap by time and one timer. Due keys are handed
 * out together, at most every ten seconds, so that an idle cluster's expiries cost few commits.
 */
import type { Clock, Timer } from '../../api/machinery/clock.ts';

export interface Expiry {
  readonly key: string;
  /** Of the write that set it; a later write of the key makes it void. */
  readonly revision: number;
  readonly atMs: number;
}

const SLACK_MS = 10_000;

export class ExpiryQueue {
  readonly #clock: Clock;
  readonly #onDue: (expiries: readonly Expiry[]) => void;
  readonly #heap: Expiry[] = [];
  #timer: Timer | undefined;
  #timerAtMs = Infinity;
  #closed = false;

  constructor(clock: Clock, onDue: (expiries: readonly Expiry[]) => void) {
    this.#clock = clock;
    this.#onDue = onDue;
  }

  add(expiry: Expiry): void {
    const heap = this.#heap;
    let at = heap.push(expiry) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (this.#time(parent) <= this.#time(at)) break;
      this.#swap(parent, at);
      at = parent;
    }
    this.#arm();
  }

  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
  }

  #arm(): void {
    const first = this.#heap[0];
    if (first === undefined || this.#closed || first.atMs >= this.#timerAtMs) return;
    this.#timer?.cancel();
    this.#timerAtMs = first.atMs;
    this.#timer = this.#clock.after(Math.max(0, first.atMs - this.#clock.now()) + SLACK_MS, () => this.#fire());
  }

  #fire(): void {
    const due: Expiry[] = [];
    const now = this.#clock.now();
    for (let first = this.#heap[0]; first !== undefined && first.atMs <= now; first = this.#heap[0]) {
      due.push(first);
      this.#removeFirst();
    }
    this.#timerAtMs = Infinity;
    this.#timer = undefined;
    if (due.length > 0) this.#onDue(due);
    this.#arm();
  }

  #removeFirst(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return;
    heap[0] = last;
    let at = 0;
    for (;;) {
      const left = 2 * at + 1;
      let least = at;
      if (left < heap.length && this.#time(left) < this.#time(least)) least = left;
      if (left + 1 < heap.length && this.#time(left + 1) < this.#time(least)) least = left + 1;
      if (least === at) return;
      this.#swap(least, at);
      at = least;
    }
  }

  #time(at: number): number {
    return this.#heap[at]?.atMs ?? Infinity;
  }

  #swap(a: number, b: number): void {
    const first = this.#heap[a];
    const second = this.#heap[b];
    if (first === undefined || second === undefined) return;
    this.#heap[a] = second;
    this.#heap[b] = first;
  }
}
