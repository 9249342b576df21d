/**
 * Slices of evaluations by their cost: whoever evaluates one expression after the other gives the event loop back when a slice is
 * spent. Promises alone do not: expressions that wait for nothing run in one chain of them.
 */
import { setImmediate } from 'node:timers/promises';

/** Takes some milliseconds. */
export const SLICE_COST = 100_000;

export class CostSlice {
  #spent = 0;

  spend(cost: number): void {
    this.#spent += cost;
  }

  get isSpent(): boolean {
    return this.#spent >= SLICE_COST;
  }

  /** Resolves at the beginning of the next slice. */
  async pause(): Promise<void> {
    await setImmediate();
    this.#spent = 0;
  }
}
