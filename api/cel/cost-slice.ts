/**
 * Divides evaluations into slices by their cost. Code that evaluates one expression after another yields to the event loop when
 * a slice is spent.
 */
import { setImmediate } from 'node:timers/promises';

/** The cost of a slice, which takes some milliseconds. */
const SLICE_COST = 100_000;

/** Counts the cost since the last yield. */
export class CostSlice {
  #spent = 0;

  /** Counts the cost towards the slice. */
  spend(cost: number): void {
    this.#spent += cost;
  }

  /** Whether the cost of the slice is used up, so that the caller must pause. */
  get isSpent(): boolean {
    return this.#spent >= SLICE_COST;
  }

  /** Resolves at the beginning of the next slice. */
  async pause(): Promise<void> {
    await setImmediate();
    this.#spent = 0;
  }
}
