/**
 * Divides a limited number of places among clients by their address, so that one pod cannot take all of them. `ClusterDns`
 * has one for forwarded queries and one for TCP connections.
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

  /** Returns false if all places, or those of this client, are taken. */
  take(client: string): boolean {
    const held = this.#held.get(client) ?? 0;
    if (this.#total >= this.#most || held >= this.#mostOfOne) return false;
    this.#held.set(client, held + 1);
    this.#total += 1;
    return true;
  }

  release(client: string): void {
    const held = this.#held.get(client) ?? 0;
    if (held <= 1) this.#held.delete(client);
    else this.#held.set(client, held - 1);
    this.#total -= 1;
  }
}
