/**
 * Shares a budget among users, such as memory for bodies or watches.
 *
 * When the budget is used up, the user with the largest share loses the newest of what it holds. So a user may use all of a
 * budget that nobody else needs, and yields to others as soon as they need it.
 */

/** The bytes of a request before any byte of its body has arrived. */
const OVERHEAD_BYTES = 16 * 1024;

const NOTHING = (): void => undefined;

interface Holder {
  amount: number;
  readonly refusable: Set<Share>;
}

/** What one request holds. */
export class Share {
  readonly #shares: Shares;
  readonly user: string;
  /** Ends the request. It is called at most once, and possibly while the share is opened. */
  refuse: () => void;
  amount = 0;
  isClosed = false;

  constructor(shares: Shares, user: string, refuse: () => void) {
    this.#shares = shares;
    this.user = user;
    this.refuse = refuse;
  }

  /** Counts more, or, if the number is negative, less. */
  add(amount: number): void {
    if (!this.isClosed) this.#shares.grow(this, amount);
  }

  /** Keeps the share from being refused. It still counts. */
  complete(): void {
    this.#shares.settle(this);
    this.refuse = NOTHING;
  }

  /** Ends the share: it no longer counts. Idempotent. */
  close(): void {
    if (!this.isClosed) this.#shares.drop(this);
    this.refuse = NOTHING;
  }
}

/** What the users of a budget hold. Everything in it is synchronous. The amounts are bytes, or what the budget counts. */
export class Shares {
  readonly #budget: number;
  readonly #least: number;
  readonly #holders = new Map<string, Holder>();
  #amount = 0;

  /** Each share takes `least` from its beginning. */
  constructor(budget: number, least = OVERHEAD_BYTES) {
    this.#budget = budget;
    this.#least = least;
  }

  /** The sum of all shares, in the unit of the budget. */
  get amount(): number {
    return this.#amount;
  }

  /** Opens a share of the user. `refuse` is called if the share is dropped because the budget is exceeded. */
  open(user: string, refuse: () => void): Share {
    const share = new Share(this, user, refuse);
    this.#holder(user).refusable.add(share);
    this.grow(share, this.#least, share);
    return share;
  }

  /**
   * Adds to the share. While the budget is exceeded, drops and refuses shares, perhaps this one. `newest` is the share that is
   * being opened, if any.
   */
  grow(share: Share, amount: number, newest?: Share): void {
    share.amount += amount;
    this.#holder(share.user).amount += amount;
    this.#amount += amount;
    while (this.#amount > this.#budget) {
      const victim = this.#victim(newest);
      if (victim === undefined) return;
      this.drop(victim);
      victim.refuse();
    }
  }

  /** Keeps the share from being refused. */
  settle(share: Share): void {
    this.#holders.get(share.user)?.refusable.delete(share);
  }

  /** Closes the share and returns its amount to the budget. */
  drop(share: Share): void {
    share.isClosed = true;
    const holder = this.#holder(share.user);
    holder.refusable.delete(share);
    holder.amount -= share.amount;
    this.#amount -= share.amount;
    if (holder.amount === 0 && holder.refusable.size === 0) this.#holders.delete(share.user);
  }

  #holder(user: string): Holder {
    const existing = this.#holders.get(user);
    if (existing !== undefined) return existing;
    const fresh: Holder = { amount: 0, refusable: new Set() };
    this.#holders.set(user, fresh);
    return fresh;
  }

  /** Returns the newest share of the user who holds most, among users with any that can be refused. */
  #victim(newest: Share | undefined): Share | undefined {
    let most: Holder | undefined;
    for (const holder of this.#holders.values())
      if (holder.refusable.size > 0 && (most === undefined || holder.amount > most.amount)) most = holder;
    // A user at the limit opens share after share, and the last one of a set is found by reading all of it.
    if (newest !== undefined && most?.refusable.has(newest) === true) return newest;
    return [...(most?.refusable ?? [])].at(-1);
  }
}

/**
 * Returns the user whose share a request counts for. Whoever may create service accounts in a namespace has as many names as
 * they like, so all of a namespace are one user.
 */
export function userOf(name: string): string {
  return /^system:serviceaccount:[^:]+/.exec(name)?.[0] ?? name;
}
