/**
 * Tracks the bodies of one priority level that are being received or wait for a seat. Receiving a body takes no seat, so that a
 * slow client holds none. It takes memory instead, which this limits.
 *
 * When the budget is used up, the user with the largest share loses the newest body. So a user may use all of an idle level,
 * and yields to others as soon as they need it.
 */

/** The cost of a request before any byte of its body has arrived. */
const OVERHEAD_BYTES = 16 * 1024;

const NOTHING = (): void => undefined;

interface Holder {
  bytes: number;
  readonly receiving: Set<Reception>;
}

/** A body that is being received. */
export class Reception {
  readonly #intake: BodyIntake;
  readonly user: string;
  /**
   * Ends the request. It is called at most once, and possibly while the reception is opened. The reception forgets it at the
   * end, because V8 keeps members that a set has had until a full collection, and the request with them.
   */
  refuse: () => void;
  bytes = 0;
  isClosed = false;

  constructor(intake: BodyIntake, user: string, refuse: () => void) {
    this.#intake = intake;
    this.user = user;
    this.refuse = refuse;
  }

  /** Counts received bytes. */
  add(bytes: number): void {
    if (!this.isClosed) this.#intake.grow(this, bytes);
  }

  /** The whole body has arrived. It still counts, but is no longer refused. */
  complete(): void {
    this.#intake.settle(this);
    this.refuse = NOTHING;
  }

  /** The body no longer counts. Idempotent. */
  close(): void {
    if (!this.isClosed) this.#intake.drop(this);
    this.refuse = NOTHING;
  }
}

/** The bodies of a priority level, by user. Everything in it is synchronous. Sizes are in bytes. */
export class BodyIntake {
  readonly #budgetBytes: number;
  readonly #holders = new Map<string, Holder>();
  #bytes = 0;

  constructor(budgetBytes: number) {
    this.#budgetBytes = budgetBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  open(user: string, refuse: () => void): Reception {
    const reception = new Reception(this, user, refuse);
    this.#holder(user).receiving.add(reception);
    this.grow(reception, OVERHEAD_BYTES);
    return reception;
  }

  grow(reception: Reception, bytes: number): void {
    reception.bytes += bytes;
    this.#holder(reception.user).bytes += bytes;
    this.#bytes += bytes;
    while (this.#bytes > this.#budgetBytes) {
      const victim = this.#victim();
      if (victim === undefined) return;
      this.drop(victim);
      victim.refuse();
    }
  }

  settle(reception: Reception): void {
    this.#holders.get(reception.user)?.receiving.delete(reception);
  }

  drop(reception: Reception): void {
    reception.isClosed = true;
    const holder = this.#holder(reception.user);
    holder.receiving.delete(reception);
    holder.bytes -= reception.bytes;
    this.#bytes -= reception.bytes;
    if (holder.bytes === 0 && holder.receiving.size === 0) this.#holders.delete(reception.user);
  }

  #holder(user: string): Holder {
    const known = this.#holders.get(user);
    if (known !== undefined) return known;
    const fresh: Holder = { bytes: 0, receiving: new Set() };
    this.#holders.set(user, fresh);
    return fresh;
  }

  /** Returns the newest body of the user with the largest share, among users who are still sending one. */
  #victim(): Reception | undefined {
    let most: Holder | undefined;
    for (const holder of this.#holders.values())
      if (holder.receiving.size > 0 && (most === undefined || holder.bytes > most.bytes)) most = holder;
    return [...(most?.receiving ?? [])].at(-1);
  }
}
