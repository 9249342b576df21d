/**
 * Limits the number of connections, so that no client takes the descriptors and the memory of all others. If there are too
 * many, the client address with most connections loses its newest one. So connected clients stay, and a client with few
 * connections gets in. An IPv6 client counts by its /64 network.
 */
import { readFileSync } from 'node:fs';
import type { Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { addressKey } from '../../api/machinery/address-class.ts';

/** A connection takes up to 150 KB with TLS. */
const MAX_CONNECTIONS = 5000;
/** The share of the descriptors of the process. The others are for storage, logs, and connections to nodes and webhooks. */
const SHARE_OF_DESCRIPTORS = 0.6;
const WARN_EVERY_MS = 60_000;

/** What the limit needs of a socket. */
export interface Connection {
  readonly remoteAddress?: string | undefined;
  destroy(): unknown;
  once(event: 'close', listener: () => void): unknown;
}

interface ConnectionLimitOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  /** If absent, the limit follows from the descriptors. */
  readonly most?: number | undefined;
}

/**
 * Beyond the limit, closes the newest connection of the client that has the most. A warning is logged from time to time, and
 * not for each of them.
 */
export class ConnectionLimit {
  /** The connections of each client, oldest first. */
  readonly #byClient = new Map<string, Set<Connection>>();
  readonly #options: ConnectionLimitOptions;
  readonly #most: number;
  #count = 0;
  #nextWarningMs = Number.NEGATIVE_INFINITY;

  constructor(options: ConnectionLimitOptions) {
    this.#options = options;
    this.#most = options.most ?? Math.min(MAX_CONNECTIONS, Math.floor(descriptors() * SHARE_OF_DESCRIPTORS));
  }

  add(connection: Connection): void {
    const client = clientKey(connection.remoteAddress ?? '');
    const own = this.#byClient.get(client) ?? new Set();
    this.#byClient.set(client, own);
    own.add(connection);
    this.#count += 1;
    connection.once('close', () => this.#remove(client, connection));
    if (this.#count > this.#most) this.#shed(client, own);
  }

  #remove(client: string, connection: Connection): void {
    const own = this.#byClient.get(client);
    if (own?.delete(connection) !== true) return;
    this.#count -= 1;
    if (own.size === 0) this.#byClient.delete(client);
  }

  /** Closes the newest connection of the client that has the most. */
  #shed(arriving: string, its: ReadonlySet<Connection>): void {
    // Among clients with equally many connections, the arriving one is refused, so that no connected client loses a connection
    // to it.
    let largest: readonly [string, ReadonlySet<Connection>] = [arriving, its];
    for (const entry of this.#byClient) if (entry[1].size > largest[1].size) largest = entry;
    const [client, own] = largest;
    const newest = [...own].at(-1);
    if (newest === undefined) return;
    this.#remove(client, newest);
    newest.destroy();
    const { clock, logger } = this.#options;
    if (clock.monotonic() < this.#nextWarningMs) return;
    this.#nextWarningMs = clock.monotonic() + WARN_EVERY_MS;
    const { remoteAddress } = newest;
    logger.warn(
      { client: remoteAddress, connections: own.size, most: this.#most },
      'Closing connections of the client that has most',
    );
  }
}

/** The address in hexadecimal: 8 digits of IPv4, the first 16 of the 32 of IPv6. */
export const clientKey = (address: string): string => addressKey(address).slice(0, 16);

/** Returns the soft limit of open files. If it cannot be read, only the limit of connections counts. */
function descriptors(): number {
  try {
    const found = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'));
    return found === null ? Number.POSITIVE_INFINITY : Number(found[1]);
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}
