/**
 * Runs work for many owners, such as the addresses of clients, a bounded number at once. Anybody may be an owner, and an
 * attacker may be thousands of them, so three rules decide who is next, and who is refused when too many wait:
 *
 * 1. Owners whose work has succeeded before, for example with a right token, and all others are two classes. Each has its own
 *    waiting places, and every other turn while both wait: whoever is new to the server cannot crowd out those who use it.
 * 2. Within a class, the owner with the fewest running pieces is next, and of those the one whose last turn is the longest ago.
 *    If a class has too many waiting pieces, the owner with most loses its newest one; of owners with equally many, the one
 *    that has had a turn most recently.
 * 3. Of owners that have had no turn, one at random loses its piece.
 */

/** The number of owners whose last turn, or success, is remembered. The one that is the longest ago is forgotten first. */
const MAX_REMEMBERED = 4096;

interface FairTurnsOptions {
  readonly mostAtOnce: number;
  /** The maximum number of waiting pieces for each of the two classes. */
  readonly mostWaiting: number;
  /** Returns a number of at least 0 and below 1. */
  readonly random?: () => number;
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

/** What waits in a class, by owner. */
interface WaitingClass {
  readonly owners: Map<string, Waiting[]>;
  count: number;
}

/** Owns the turns. */
export class FairTurns {
  readonly #options: FairTurnsOptions;
  /** The number of running pieces of each owner. */
  readonly #running = new Map<string, number>();
  readonly #proven: WaitingClass = { owners: new Map(), count: 0 };
  readonly #others: WaitingClass = { owners: new Map(), count: 0 };
  /** The class whose turn it is if both wait. */
  #nextClass = this.#proven;
  /** The owners whose work has succeeded, the latest one last. */
  readonly #succeeded = new Map<string, true>();
  /** The number of the last turn of each owner, the latest one last. */
  readonly #lastTurns = new Map<string, number>();
  #turns = 0;
  #runningCount = 0;

  constructor(options: FairTurnsOptions) {
    this.#options = options;
  }

  /**
   * Resolves and rejects as the work does. Rejects with `TooManyWaiting` if the work is not run. `succeeded` decides by the
   * result whether the owner is one whose work has succeeded.
   */
  async run<T>(owner: string, work: () => Promise<T>, succeeded: (result: T) => boolean): Promise<T> {
    if (this.#runningCount >= this.#options.mostAtOnce) await this.#turn(owner);
    else this.#begin(owner);
    try {
      const result = await work();
      if (succeeded(result)) remember(this.#succeeded, owner, true);
      return result;
    } finally {
      this.#end(owner);
    }
  }

  #turn(owner: string): Promise<void> {
    const waitingClass = this.#succeeded.has(owner) ? this.#proven : this.#others;
    return new Promise((resolve, reject) => {
      const pieces = waitingClass.owners.get(owner) ?? [];
      waitingClass.owners.set(owner, pieces);
      pieces.push({ start: resolve, refuse: () => reject(new TooManyWaiting()) });
      waitingClass.count += 1;
      if (waitingClass.count > this.#options.mostWaiting) this.#refuseOne(waitingClass);
    });
  }

  #refuseOne(from: WaitingClass): void {
    let candidates: string[] = [];
    let most = { pieces: 0, lastTurn: 0 };
    for (const [owner, { length: pieces }] of from.owners) {
      const lastTurn = this.#lastTurns.get(owner) ?? 0;
      const difference = pieces - most.pieces || lastTurn - most.lastTurn;
      if (difference < 0) continue;
      if (difference > 0) candidates = [];
      candidates.push(owner);
      most = { pieces, lastTurn };
    }
    const chosen = candidates[Math.floor((this.#options.random ?? Math.random)() * candidates.length)];
    if (chosen !== undefined) remove(from, chosen, 'newest')?.refuse();
  }

  #begin(owner: string): void {
    this.#running.set(owner, (this.#running.get(owner) ?? 0) + 1);
    this.#runningCount += 1;
    this.#turns += 1;
    remember(this.#lastTurns, owner, this.#turns);
  }

  #end(owner: string): void {
    const left = (this.#running.get(owner) ?? 1) - 1;
    if (left === 0) this.#running.delete(owner);
    else this.#running.set(owner, left);
    this.#runningCount -= 1;
    const from = this.#nextClass.count > 0 ? this.#nextClass : this.#otherClass(this.#nextClass);
    const next = this.#nextOwner(from);
    if (next === undefined) return;
    this.#nextClass = this.#otherClass(from);
    const found = remove(from, next, 'oldest');
    // The turn is taken before the work begins, so that nobody who arrives meanwhile gets it.
    this.#begin(next);
    found?.start();
  }

  #otherClass(one: WaitingClass): WaitingClass {
    return one === this.#proven ? this.#others : this.#proven;
  }

  /** Returns the owner whose piece begins next. */
  #nextOwner(from: WaitingClass): string | undefined {
    let next: { readonly owner: string; readonly running: number; readonly lastTurn: number } | undefined;
    for (const owner of from.owners.keys()) {
      const running = this.#running.get(owner) ?? 0;
      const lastTurn = this.#lastTurns.get(owner) ?? 0;
      if (next === undefined || (running - next.running || lastTurn - next.lastTurn) < 0)
        next = { owner, running, lastTurn };
    }
    return next?.owner;
  }
}

function remove(from: WaitingClass, owner: string, which: 'oldest' | 'newest'): Waiting | undefined {
  const pieces = from.owners.get(owner) ?? [];
  const found = which === 'oldest' ? pieces.shift() : pieces.pop();
  if (pieces.length === 0) from.owners.delete(owner);
  if (found !== undefined) from.count -= 1;
  return found;
}

function remember<T>(all: Map<string, T>, owner: string, value: T): void {
  all.delete(owner);
  all.set(owner, value);
  const [oldest] = all.size > MAX_REMEMBERED ? all.keys() : [];
  if (oldest !== undefined) all.delete(oldest);
}
