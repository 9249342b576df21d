/**
 * Limits the number of connections of a server, so that no client takes the descriptors and the memory of all others. An IPv6
 * client counts by its /64 network.
 *
 * Beyond the limit, the client address with most connections loses one: of those for which no request has been accepted yet
 * the oldest, or else the one whose first request was accepted last.
 */
import { readFileSync } from 'node:fs';
import type { Logger } from '../component/logger.ts';
import type { Clock } from '../machinery/clock.ts';
import { addressKey } from './address-class.ts';

const WARN_EVERY_MS = 60_000;

/** What names a connection while it is open. A TLS socket and the socket below it have the same ends. */
interface Ends {
  readonly remoteAddress?: string | undefined;
  readonly remotePort?: number | undefined;
  readonly localPort?: number | undefined;
}

/** What the limit needs of a socket. */
export interface Connection extends Ends {
  destroy(): unknown;
  once(event: 'close', listener: () => void): unknown;
}

interface ConnectionLimitOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  /** The maximum number of connections. */
  readonly most: number;
}

/** The connections of one client address. */
class ClientConnections {
  /** The connections for which no request has been accepted, oldest first. */
  readonly unproven = new Set<Connection>();
  /** The others, in the order of their first accepted requests. */
  readonly proven = new Set<Connection>();

  get size(): number {
    return this.unproven.size + this.proven.size;
  }
}

/** Counts connections from before their handshake to their end. A warning is logged from time to time, and not for each. */
export class ConnectionLimit {
  readonly #byClient = new Map<string, ClientConnections>();
  readonly #byEnds = new Map<string, Connection>();
  readonly #options: ConnectionLimitOptions;
  #count = 0;
  #nextWarningMs = Number.NEGATIVE_INFINITY;

  constructor(options: ConnectionLimitOptions) {
    this.#options = options;
  }

  /**
   * Counts the connection until it is closed. If there are then too many, it closes one of the client that has the most, which
   * can be this one.
   */
  add(connection: Connection): void {
    const client = clientKey(connection.remoteAddress ?? '');
    const connections = this.#byClient.get(client) ?? new ClientConnections();
    this.#byClient.set(client, connections);
    connections.unproven.add(connection);
    // A socket has no addresses any more once it is closed.
    const ends = endsOf(connection);
    this.#byEnds.set(ends, connection);
    this.#count += 1;
    connection.once('close', () => {
      this.#remove(client, connection);
      if (this.#byEnds.get(ends) === connection) this.#byEnds.delete(ends);
    });
    if (this.#count > this.#options.most) this.#shed(client, connections);
  }

  /** Called when a request of the connection has been accepted, with the socket that was added or the TLS socket above it. */
  proven(ends: Ends): void {
    const connection = this.#byEnds.get(endsOf(ends));
    const connections = this.#byClient.get(clientKey(ends.remoteAddress ?? ''));
    if (connection !== undefined && connections?.unproven.delete(connection) === true)
      connections.proven.add(connection);
  }

  #remove(client: string, connection: Connection): void {
    const connections = this.#byClient.get(client);
    if (
      connections === undefined ||
      !(connections.unproven.delete(connection) || connections.proven.delete(connection))
    )
      return;
    this.#count -= 1;
    if (connections.size === 0) this.#byClient.delete(client);
  }

  #shed(arriving: string, arrived: ClientConnections): void {
    // Among clients with equally many connections, the arriving one loses one, so that no other client loses one to it.
    let largest: readonly [string, ClientConnections] = [arriving, arrived];
    for (const entry of this.#byClient) if (entry[1].size > largest[1].size) largest = entry;
    const [client, connections] = largest;
    const [oldest] = connections.unproven;
    const chosen = oldest ?? [...connections.proven].at(-1);
    if (chosen === undefined) return;
    const { remoteAddress } = chosen;
    this.#remove(client, chosen);
    chosen.destroy();
    const { clock, logger, most } = this.#options;
    if (clock.monotonic() < this.#nextWarningMs) return;
    this.#nextWarningMs = clock.monotonic() + WARN_EVERY_MS;
    logger.warn(
      { client: remoteAddress, connections: connections.size, most },
      'Too many connections: closing those of the client that has the most',
    );
  }
}

/** Returns the address in hexadecimal: 8 digits of IPv4, the first 16 of the 32 of IPv6. */
export const clientKey = (address: string): string => addressKey(address).slice(0, 16);

/** Returns what names a connection while it is open, for the TLS socket and for the socket below it. */
export const endsOf = ({ remoteAddress, remotePort, localPort }: Ends): string =>
  `${remoteAddress ?? ''} ${remotePort ?? ''} ${localPort ?? ''}`;

/**
 * Returns the limit of a server that may use a share of the descriptors of the process: `atMost`, or fewer if the process has
 * few.
 */
export function connectionsWithin({ atMost, share }: { readonly atMost: number; readonly share: number }): number {
  return Math.min(atMost, Math.floor(descriptors() * share));
}

/** Returns the soft limit of open files; infinity if it cannot be read. */
function descriptors(): number {
  try {
    const found = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'));
    return found === null ? Number.POSITIVE_INFINITY : Number(found[1]);
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}
