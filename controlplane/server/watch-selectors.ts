/**
 * Bounds what the selectors of open watches cost: every event is compared with each of them in one turn of the event loop.
 * Watches with short selectors, as clients have them, are free. A user may hold no more than what is still free, so
 * that one user never has much more than half.
 */
import type { WatchOptions } from '../model/rest.ts';
import { TooManyRequests } from './flowcontrol/too-many-requests.ts';

/** The maximum cost of all counted selectors together. To compare an event with them then takes a few milliseconds. */
const MAX_COST = 100_000;
/** A selector that costs no more is not counted. */
const FREE_COST = 8;
/** The number of values that count as much as a requirement. Values are kept in sets: they take memory, and no time. */
const VALUES_PER_REQUIREMENT = 8;
const RETRY_AFTER_S = 30;

/** Counts the selectors of all watches of the server by user. */
export class WatchSelectors {
  readonly #maxCost: number;
  readonly #byUser = new Map<string, number>();
  #total = 0;

  constructor(maxCost = MAX_COST) {
    this.#maxCost = maxCost;
  }

  /** Counts a watch, and returns the function that ends its count. Throws `TooManyRequests` if the user holds too much. */
  take(user: string, options: Pick<WatchOptions, 'labelSelector' | 'fieldSelector'>): () => void {
    const cost = costOf(options);
    if (cost === 0) return () => undefined;
    const held = this.#byUser.get(user) ?? 0;
    if (held + cost > this.#maxCost - this.#total) throw new TooManyRequests(RETRY_AFTER_S);
    this.#change(user, cost);
    let isTaken = true;
    return () => {
      if (isTaken) this.#change(user, -cost);
      isTaken = false;
    };
  }

  #change(user: string, by: number): void {
    const held = (this.#byUser.get(user) ?? 0) + by;
    this.#total += by;
    if (held === 0) this.#byUser.delete(user);
    else this.#byUser.set(user, held);
  }
}

function costOf({ labelSelector, fieldSelector }: Pick<WatchOptions, 'labelSelector' | 'fieldSelector'>): number {
  const labels = labelSelector.requirements;
  const count = labels.length + fieldSelector.requirements.length;
  const values = labels.reduce((sum, { values: labelValues }) => sum + labelValues.length, 0);
  const cost = count + Math.floor(values / VALUES_PER_REQUIREMENT);
  return cost > FREE_COST ? cost : 0;
}
