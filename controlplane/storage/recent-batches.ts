/**
 * Keeps the newest batches of a group for members that are behind. They share each batch and its encoded bytes, while what they
 * get from the history is computed and encoded for each.
 */
import type { Batch } from './event-batches.ts';

/** The size of the objects from which on a group keeps the least number of batches. The history deflates old objects. */
const MAX_BYTES = 4 * 1024 * 1024;
/** The numbers of batches that a group keeps, if their objects are large and if they are small. */
const LEAST = 128;
const MOST = 4096;
/** The number of batches that all groups of a cache keep, as far as each has no more than the least number. */
const OF_ALL_GROUPS = 65_536;

/** All batches after a revision, in order. */
export class RecentBatches {
  #batches: Batch[] = [];
  #bytes = 0;
  #from: number;

  constructor(revision: number) {
    this.#from = revision;
  }

  /** The revision after which all batches are kept. */
  get from(): number {
    return this.#from;
  }

  /** The newest revision that a batch covers; 0 without batches. */
  get newest(): number {
    return this.#batches.at(-1)?.revision ?? 0;
  }

  /** Adds batches, and drops half of all when there are too many. `groups` is the number of groups of the cache. */
  add(batches: readonly Batch[], groups: number): void {
    const most = Math.min(Math.max(Math.floor(OF_ALL_GROUPS / groups), LEAST), MOST);
    for (const batch of batches) {
      this.#batches.push(batch);
      this.#bytes += batch.bytes;
    }
    while (this.#batches.length > (this.#bytes > MAX_BYTES ? LEAST : most)) this.#drop(this.#batches.length >> 1);
  }

  /** Drops the batches up to a revision. */
  compacted(revision: number): void {
    if ((this.#batches[0]?.revision ?? Infinity) > revision) return;
    this.#drop(this.#indexAfter(revision));
    this.#from = Math.max(this.#from, revision);
  }

  /** Returns the batches that have changes after a revision. */
  after(revision: number): readonly Batch[] {
    return this.#batches.slice(this.#indexAfter(revision));
  }

  #drop(count: number): void {
    for (const { bytes, revision } of this.#batches.splice(0, count)) {
      this.#bytes -= bytes;
      this.#from = revision;
    }
  }

  #indexAfter(revision: number): number {
    let [low, high] = [0, this.#batches.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#batches[middle]?.revision ?? 0) <= revision) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
