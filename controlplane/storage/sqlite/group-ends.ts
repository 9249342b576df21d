/**
 * Remembers where the commits of this process ended. A standby gets pages that end there, so that it never has a part of a
 * transaction. Commits of earlier processes are not known.
 */
import { type LogPage, recordsBetween } from '../stored-log.ts';

/** The number of the newest commits that are remembered at least. Pages before them are not trimmed. */
const MAX_ENDS = 65_536;

/** The ends of the newest commits, as revisions in ascending order. */
export class GroupEnds {
  /** The last revision of each commit, in order. */
  #ends: number[] = [];

  /** Adds the last revision of a group of writes. */
  add(revision: number): void {
    this.#ends.push(revision);
    if (this.#ends.length > 2 * MAX_ENDS) this.#ends = this.#ends.slice(-MAX_ENDS);
  }

  /**
   * Returns the page up to the last commit that ends in it, or the whole page if it is older than all known commits. Returns
   * `undefined` if a commit is longer than the page: then a larger page is to be read.
   */
  trimmed(page: LogPage): LogPage | undefined {
    const last = page.records.revisions.at(-1);
    const [first] = this.#ends;
    if (last === undefined || first === undefined || last < first) return page;
    const end = this.#lastThrough(last);
    return (page.records.revisions[0] ?? 0) <= end ? through(end, page) : undefined;
  }

  /** Returns the page up to the first commit that ends in it, or the whole page if none is known. */
  firstOf(page: LogPage): LogPage {
    const first = page.records.revisions[0] ?? 0;
    const end = this.#ends.find((revision) => revision >= first);
    return end === undefined ? page : through(end, page);
  }

  #lastThrough(revision: number): number {
    let [low, high] = [0, this.#ends.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#ends[middle] ?? 0) <= revision) low = middle + 1;
      else high = middle;
    }
    return this.#ends[low - 1] ?? 0;
  }
}

/** Returns the page without what follows a revision. */
function through(revision: number, page: LogPage): LogPage {
  const count = page.records.revisions.findLastIndex((one) => one <= revision) + 1;
  return { ...page, records: recordsBetween(page.records, 0, count) };
}
