/**
 * What a search for devices may cost. Users write claims and expressions, and drivers publish devices, so a search may have more
 * possibilities than can be tried, and nothing else runs meanwhile. One unit is one comparison of two devices, about a
 * microsecond.
 */

/** The search has cost what it may. */
export class SearchExhausted extends Error {}

/** A twentieth of a second, or a little more, on one node. */
const MOST_ON_NODE = 50_000;
/** On all nodes for one pod, so that its claims do not keep the scheduler from other pods. */
const MOST_FOR_POD = 2_000_000;

export class SearchBudget {
  #left: number;

  constructor(left = MOST_FOR_POD) {
    this.#left = left;
  }

  /** Throws `SearchExhausted`. */
  spend(work: number): void {
    this.#left -= work;
    if (this.#left < 0) throw new SearchExhausted();
  }

  /** Runs a search on one node with its share of what is left. The share that is not used is left to other nodes. */
  onNode<T>(search: (share: SearchBudget) => T): T {
    const share = new SearchBudget(Math.min(MOST_ON_NODE, Math.max(0, this.#left)));
    const before = share.#left;
    try {
      return search(share);
    } finally {
      this.#left -= before - share.#left;
    }
  }
}
