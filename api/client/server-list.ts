/**
 * Lists the API servers of one cluster, of which a client uses one at a time. All clients of a program share the list: when one
 * of them finds that the server does not respond, all of them move on to the next one.
 */
import type { Clock } from '../machinery/clock.ts';

/** The least time between two changes away from servers that respond but cannot serve: perhaps none of them can. */
const COMPLAINT_MS = 5000;

/** Owns which server is current. */
export class ServerList {
  readonly #clock: Clock;
  readonly #listeners = new Set<() => void>();
  #servers: readonly string[];
  #current: string;
  #leftMs = Number.NEGATIVE_INFINITY;

  /** Takes the URLs, of which the first one is used first. Throws if there is none. */
  constructor(servers: readonly string[], clock: Clock) {
    this.#clock = clock;
    this.#servers = distinct(servers);
    const [first] = this.#servers;
    if (first === undefined) throw new Error('a list of servers must not be empty');
    this.#current = first;
  }

  /** The server that gets the next request. */
  get current(): string {
    return this.#current;
  }

  get all(): readonly string[] {
    return this.#servers;
  }

  /**
   * Replaces the servers. The current one is used further, even if it is not among them, until it fails. Does nothing for an
   * empty list.
   */
  replace(servers: readonly string[]): void {
    if (servers.length > 0) this.#servers = distinct(servers);
  }

  /** Moves on to the next server. Does nothing if another client has moved on already, or if there is no other server. */
  failed(server: string): void {
    if (server !== this.#current) return;
    const next = this.#servers[(this.#servers.indexOf(server) + 1) % this.#servers.length];
    if (next === undefined || next === server) return;
    this.#current = next;
    this.#leftMs = this.#clock.monotonic();
    for (const listener of this.#listeners) listener();
  }

  /** Leaves a server that answers that it cannot serve, as `failed` does, but not soon after the last change. */
  cannotServe(server: string): void {
    if (this.#clock.monotonic() - this.#leftMs >= COMPLAINT_MS) this.failed(server);
  }

  /** Calls the listener after each move, until the returned function is called. */
  onMove(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }
}

function distinct(servers: readonly string[]): readonly string[] {
  return [...new Set(servers)];
}
