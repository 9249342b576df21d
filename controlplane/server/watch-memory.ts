/**
 * Limits the memory of open watches: what each takes as long as it is open, and the events that wait for clients which read
 * nothing. A watch takes no seats of priority and fairness after its beginning, so this limits it instead.
 *
 * Each priority level has a budget of its own, so that watches of tenants never close those of nodes. Of a level, the user who
 * holds most loses the newest watch: it is refused with 429, or its stream is broken off and its client watches again.
 */
import { totalmem } from 'node:os';
import { type Share, Shares, userOf } from './shares.ts';
import type { ApiRequest } from './request.ts';

/** The part of the memory of the host, or of the cgroup, that the watches of a level may take. */
const PART_OF_MEMORY = 1 / 16;
const MIN_BYTES = 128 * 1024 * 1024;
const MAX_BYTES = 1024 * 1024 * 1024;

const NO_LEVEL = {};

/** One instance serves all watches of the server. */
export class WatchMemory {
  readonly #budgetBytes: number;
  readonly #byLevel = new WeakMap<object, Shares>();

  constructor(budgetBytes = budgetOfHost()) {
    this.#budgetBytes = budgetBytes;
  }

  /** Opens the share of a watch. `close` is called if the watch must yield to others, possibly before this returns. */
  open({ flow, user }: Pick<ApiRequest, 'flow' | 'user'>, close: () => void): Share {
    const level = flow?.level ?? NO_LEVEL;
    let shares = this.#byLevel.get(level);
    if (shares === undefined) {
      shares = new Shares(this.#budgetBytes);
      this.#byLevel.set(level, shares);
    }
    return shares.open(userOf(user.name), close);
  }
}

function budgetOfHost(): number {
  const constrained = process.constrainedMemory();
  const memory = constrained > 0 ? Math.min(constrained, totalmem()) : totalmem();
  return Math.min(Math.max(memory * PART_OF_MEMORY, MIN_BYTES), MAX_BYTES);
}
