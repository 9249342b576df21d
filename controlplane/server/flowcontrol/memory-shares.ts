/**
 * Shares a budget of memory among users: for the bodies of one priority level that arrive or wait for a seat, and
 * for its watches. Neither takes a seat, so that a slow client holds none. They take memory instead, which this limits.
 *
 * When the budget is used up, the user with the largest share loses the newest of what it holds. So a user may use all of an
 * idle level, and yields to others as soon as they need it.
 */

/** The cost of a request before any byte of its body has arrived. */
const OVERHEAD_BYTES = 16 * 1024;

const NOTHING = (): void => undefined;

interface Holder {
  bytes: number;
  readonly refusable: Set<MemoryShare>;
}

/** What one request holds. */
export class MemoryShare {
  readonly #shares: MemoryShares;
  readonly user: string;
  /**
   * Ends the request. It is called at most once, and possibly while the share is opened. The share forgets it at the
   * end, because V8 keeps members that a set has had until a full collection, and the request with them.
   */
  refuse: () => void;
  bytes = 0;
  isClosed = false;

  constructor(shares: MemoryShares, user: string, refuse: () => void) {
    this.#shares = shares;
    this.user = user;
    this.refuse = refuse;
  }

  /** Counts further bytes, or, if the number is negative, fewer. */
  add(bytes: number): void {
    if (!this.isClosed) this.#shares.grow(this, bytes);
  }

  /** It still counts, but is no longer refused: the whole body has arrived. */
  complete(): void {
    this.#shares.settle(this);
    this.refuse = NOTHING;
  }

  /** It no longer counts. Idempotent. */
  close(): void {
    if (!this.isClosed) this.#shares.drop(this);
    this.refuse = NOTHING;
  }
}

/** What the users of a budget hold. Everything in it is synchronous. Sizes are in bytes. */
export class MemoryShares {
  readonly #budgetBytes: number;
  readonly #holders = new Map<string, Holder>();
  #bytes = 0;

  constructor(budgetBytes: number) {
    this.#budgetBytes = budgetBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  open(user: string, refuse: () => void): MemoryShare {
    const share = new MemoryShare(this, user, refuse);
    this.#holder(user).refusable.add(share);
    this.grow(share, OVERHEAD_BYTES);
    return share;
  }

  grow(share: MemoryShare, bytes: number): void {
    share.bytes += bytes;
    this.#holder(share.user).bytes += bytes;
    this.#bytes += bytes;
    while (this.#bytes > this.#budgetBytes) {
      const victim = this.#victim();
      if (victim === undefined) return;
      this.drop(victim);
      victim.refuse();
    }
  }

  settle(share: MemoryShare): void {
    this.#holders.get(share.user)?.refusable.delete(share);
  }

  drop(share: MemoryShare): void {
    share.isClosed = true;
    const holder = this.#holder(share.user);
    holder.refusable.delete(share);
    holder.bytes -= share.bytes;
    this.#bytes -= share.bytes;
    if (holder.bytes === 0 && holder.refusable.size === 0) this.#holders.delete(share.user);
  }

  #holder(user: string): Holder {
    const known = this.#holders.get(user);
    if (known !== undefined) return known;
    const fresh: Holder = { bytes: 0, refusable: new Set() };
    this.#holders.set(user, fresh);
    return fresh;
  }

  /** Returns the newest share of the user who holds most, among users with any that can be refused. */
  #victim(): MemoryShare | undefined {
    let most: Holder | undefined;
    for (const holder of this.#holders.values())
      if (holder.refusable.size > 0 && (most === undefined || holder.bytes > most.bytes)) most = holder;
    return [...(most?.refusable ?? [])].at(-1);
  }
}
