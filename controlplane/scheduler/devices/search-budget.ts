/**
 * Limits the cost of a search for devices. Users write claims and expressions, and drivers publish devices, so a search may
 * have more possibilities than can be tried, and it blocks the event loop. One unit is one comparison of two devices.
 */

/** The error of a search that has used up its budget. */
export class SearchExhausted extends Error {}

/** The budget for one node, about a twentieth of a second. */
const MAX_ON_NODE = 50_000;
/** The budget for all nodes and one pod, so that its claims do not keep the scheduler from other pods. */
const MAX_FOR_POD = 2_000_000;

/** The units that one scheduling decision may spend. */
export class SearchBudget {
  #left: number;

  constructor(left = MAX_FOR_POD) {
    this.#left = left;
  }

  /** Takes units of work from the budget. Throws `SearchExhausted` when it is used up. */
  spend(work: number): void {
    this.#left -= work;
    if (this.#left < 0) throw new SearchExhausted();
  }

  /** Runs a search on one node with its share of the remaining budget. The unused part remains for other nodes. */
  onNode<T>(search: (share: SearchBudget) => T): T {
    const share = new SearchBudget(Math.min(MAX_ON_NODE, Math.max(0, this.#left)));
    const before = share.#left;
    try {
      return search(share);
    } finally {
      this.#left -= before - share.#left;
    }
  }
}
