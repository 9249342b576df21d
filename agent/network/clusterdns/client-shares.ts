/**
 * Limits concurrent work of the name server, in total and for each client address, so that one pod cannot take the whole limit.
 * `ClusterDns` has one for forwarded queries and one for TCP connections.
 */
export class ClientShares {
  readonly #held = new Map<string, number>();
  readonly #most: number;
  readonly #mostOfOne: number;
  #total = 0;

  constructor(limits: { readonly most: number; readonly mostOfOne: number }) {
    this.#most = limits.most;
    this.#mostOfOne = limits.mostOfOne;
  }

  /** Counts one more piece of work of a client. Returns false, and counts nothing, at the total limit or the client's. */
  take(client: string): boolean {
    const held = this.#held.get(client) ?? 0;
    if (this.#total >= this.#most || held >= this.#mostOfOne) return false;
    this.#held.set(client, held + 1);
    this.#total += 1;
    return true;
  }

  /** Ends a piece of work that `take` has counted. */
  release(client: string): void {
    const held = this.#held.get(client) ?? 0;
    if (held <= 1) this.#held.delete(client);
    else this.#held.set(client, held - 1);
    this.#total -= 1;
  }
}
