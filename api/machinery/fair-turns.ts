/**
 * Runs work for many owners, such as the addresses of clients, a bounded number at once. The owner with the fewest running
 * pieces comes first, so that one that floods it does not keep others waiting. What waits is bounded as well: the owner with
 * most waiting pieces loses its newest.
 */

interface FairTurnsOptions {
  readonly mostAtOnce: number;
  readonly mostWaiting: number;
}

/** The rejection of work that did not get its turn. */
export class TooManyWaiting extends Error {
  constructor() {
    super('too many others wait for the same');
  }
}

interface Waiting {
  start(): void;
  refuse(): void;
}

/** Owns the turns. */
export class FairTurns {
  readonly #options: FairTurnsOptions;
  /** The number of running pieces of each owner. */
  readonly #running = new Map<string, number>();
  /** What waits, by owner. Of owners with equally many running pieces, the first one is next. */
  readonly #waiting = new Map<string, Waiting[]>();
  #runningCount = 0;
  #waitingCount = 0;

  constructor(options: FairTurnsOptions) {
    this.#options = options;
  }

  /** Resolves and rejects as the work does. Rejects with `TooManyWaiting` if the work is not run. */
  async run<T>(owner: string, work: () => Promise<T>): Promise<T> {
    if (this.#runningCount >= this.#options.mostAtOnce) await this.#turn(owner);
    else this.#begin(owner);
    try {
      return await work();
    } finally {
      this.#end(owner);
    }
  }

  #turn(owner: string): Promise<void> {
    return new Promise((resolve, reject) => {
      const own = this.#waiting.get(owner) ?? [];
      this.#waiting.set(owner, own);
      own.push({ start: resolve, refuse: () => reject(new TooManyWaiting()) });
      this.#waitingCount += 1;
      if (this.#waitingCount > this.#options.mostWaiting) this.#refuseOne(owner);
    });
  }

  /** Of owners with equally much waiting work, the arriving one loses a piece. */
  #refuseOne(arriving: string): void {
    const sizeOf = (owner: string): number => this.#waiting.get(owner)?.length ?? 0;
    let largest = arriving;
    for (const [owner, { length }] of this.#waiting) if (length > sizeOf(largest)) largest = owner;
    this.#remove(largest, 'newest')?.refuse();
  }

  #remove(owner: string, which: 'oldest' | 'newest'): Waiting | undefined {
    const own = this.#waiting.get(owner) ?? [];
    const found = which === 'oldest' ? own.shift() : own.pop();
    if (own.length === 0) this.#waiting.delete(owner);
    if (found !== undefined) this.#waitingCount -= 1;
    return found;
  }

  #begin(owner: string): void {
    this.#running.set(owner, (this.#running.get(owner) ?? 0) + 1);
    this.#runningCount += 1;
  }

  #end(owner: string): void {
    const left = (this.#running.get(owner) ?? 1) - 1;
    if (left === 0) this.#running.delete(owner);
    else this.#running.set(owner, left);
    this.#runningCount -= 1;
    const next = this.#next();
    if (next === undefined) return;
    const found = this.#remove(next, 'oldest');
    // The owner is behind others with as many running pieces from now on.
    const own = this.#waiting.get(next);
    if (own !== undefined) {
      this.#waiting.delete(next);
      this.#waiting.set(next, own);
    }
    // The turn is taken before the work begins, so that nobody who arrives meanwhile gets it.
    this.#begin(next);
    found?.start();
  }

  #next(): string | undefined {
    let next: string | undefined;
    const runningOf = (owner: string): number => this.#running.get(owner) ?? 0;
    for (const owner of this.#waiting.keys())
      if (next === undefined || runningOf(owner) < runningOf(next)) next = owner;
    return next;
  }
}
