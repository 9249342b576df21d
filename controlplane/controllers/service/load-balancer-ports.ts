/**
 * Decides which service has a port of the nodes: the first that requested it, until it no longer needs it. A service gets all
 * its ports or none.
 */

/** Keeps the ports in memory. After a start, the controller takes them again for each service. */
export class LoadBalancerPorts {
  readonly #holders = new Map<string, string>();
  readonly #held = new Map<string, readonly string[]>();
  /** The services that wait for a port. */
  readonly #waiting = new Map<string, Set<string>>();

  /**
   * Takes the ports for the service, and frees those that it had before and no longer wants. If another service holds one of
   * the ports, the service gets none of them and waits for this port, and the port is returned with its holder. `freed` is
   * called with each service that waited for a freed port.
   */
  take(
    service: string,
    ports: readonly string[],
    freed: (waiting: string) => void,
  ): { readonly port: string; readonly holder: string } | undefined {
    const conflict = ports.find((port) => (this.#holders.get(port) ?? service) !== service);
    const wanted = conflict === undefined ? ports : [];
    const before = this.#held.get(service) ?? [];
    for (const port of wanted) this.#holders.set(port, service);
    if (wanted.length === 0) this.#held.delete(service);
    else this.#held.set(service, wanted);
    for (const port of before) if (!wanted.includes(port)) this.#free(port, freed);
    if (conflict === undefined) return undefined;
    const waiting = this.#waiting.get(conflict) ?? new Set();
    this.#waiting.set(conflict, waiting.add(service));
    return { port: conflict, holder: this.#holders.get(conflict) ?? '' };
  }

  #free(port: string, freed: (waiting: string) => void): void {
    this.#holders.delete(port);
    const waiting = this.#waiting.get(port);
    this.#waiting.delete(port);
    for (const service of waiting ?? []) freed(service);
  }
}
