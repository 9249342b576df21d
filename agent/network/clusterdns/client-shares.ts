/**
 * Limits concurrent work of the name server, in total and for each client address, so that one pod cannot take the whole
 * limit.
 */
export class ClientShares {
  readonly #heldByClient = new Map<string, number>();
  readonly #maxTotal: number;
  readonly #maxPerClient: number;
  #total = 0;

  constructor(limits: { readonly maxTotal: number; readonly maxPerClient: number }) {
    this.#maxTotal = limits.maxTotal;
    this.#maxPerClient = limits.maxPerClient;
  }

  /** Counts one more piece of work of a client. Returns false, and counts nothing, at the total limit or the client's. */
  take(client: string): boolean {
    const count = this.#heldByClient.get(client) ?? 0;
    if (this.#total >= this.#maxTotal || count >= this.#maxPerClient) return false;
    this.#heldByClient.set(client, count + 1);
    this.#total += 1;
    return true;
  }

  /** Ends a piece of work that `take` has counted. */
  release(client: string): void {
    const count = this.#heldByClient.get(client) ?? 0;
    if (count <= 1) this.#heldByClient.delete(client);
    else this.#heldByClient.set(client, count - 1);
    this.#total -= 1;
  }
}
