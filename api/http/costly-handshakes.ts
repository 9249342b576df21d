/**
 * Limits the TLS handshakes of clients with costly handshakes, and refuses connections to servers with such handshakes. OpenSSL
 * verifies the chain of a peer in the event loop, before the peer is authenticated. The peer chooses the keys, and so the cost:
 * 100 KB of certificates with exponents of thousands of bits take seconds. Node.js limits neither the chain nor its keys, and
 * verifies the chains of servers even where verification is off, as for HTTPS probes.
 */
import type { X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import type { Server as TlsServer, TLSSocket } from 'node:tls';
import type { Logger } from '../component/logger.ts';
import type { Clock, Timer } from '../machinery/clock.ts';
import { ExpiringCache } from '../machinery/expiring-cache.ts';
import { limitedLogger } from '../machinery/limited-logger.ts';
import { verifiesInTime } from '../pki/signing.ts';
import { clientKey, endsOf } from './connection-limit.ts';
import { type Handshake, limitHandshake } from './limited-handshake.ts';

/**
 * The number of costly handshakes of a client address, each within `WITHIN_MS` of the one before, from which on its handshakes
 * are limited.
 */
const LIMITED_FROM = 2;
/** The same for all addresses together, because one client may have many addresses. */
const ALL_LIMITED_FROM = 16;
const WITHIN_MS = 60_000;
/**
 * The maximum number of concurrent handshakes without a limit, of a client address and of all. Further connections wait instead
 * of being limited at once, because the bytes of a limited connection pass through JavaScript until it closes.
 */
const MAX_UNLIMITED = 2;
const MAX_UNLIMITED_OF_ALL = 8;
/** The maximum number of clients, and of servers, that are remembered. */
const MAX_REMEMBERED = 4096;
/** The key of all clients together. */
const ALL_CLIENTS = 'all';
/** What a client sends in a handshake without a certificate, or with a certificate and one or two of its issuers. */
const MODEST_BYTES = 4 * 1024;
/** How long a connection waits for an unlimited handshake to end. Then its own handshake begins all the same, but limited. */
const WAIT_MS = 500;
/** What a client may send in a handshake that began after such a wait. */
const CROWDED_BYTES = 8 * 1024;
/** The size of the largest chains that ordinary clients have. A handshake with a larger chain is costly. */
const MAX_BYTES = 16 * 1024;

/** Remembers the clients with costly handshakes. Several servers may share it. */
export class CostlyHandshakes {
  readonly #clock: Clock;
  readonly #counts: ExpiringCache<number>;
  readonly #logger: Logger;

  constructor({ clock, logger }: { readonly clock: Clock; readonly logger: Logger }) {
    this.#clock = clock;
    this.#counts = new ExpiringCache({ clock, most: MAX_REMEMBERED });
    this.#logger = limitedLogger(logger, clock);
  }

  /** Judges the handshakes of the server, and limits those of clients that have had too many costly ones. */
  follow(server: TlsServer): void {
    const handshakes = server.listeners('connection') as Handshake[];
    server.removeAllListeners('connection');
    const pending = new PendingHandshakes();
    const waiting = new WaitingConnections();
    const begin = (connection: Connection, mostBytes?: number): void => {
      waiting.delete(connection);
      pending.add(connection, mostBytes !== undefined);
      for (const shake of handshakes)
        if (mostBytes === undefined) shake.call(server, connection.socket);
        else limitHandshake(connection.socket, { server, shake, mostBytes });
    };
    /** Begins the handshake unless it has to wait for others. Returns whether it began. */
    const beginInTurn = (connection: Connection): boolean => {
      const isLimited = this.#isLimited(connection.client);
      if (!isLimited && pending.isCrowded(connection.client)) return false;
      begin(connection, isLimited ? MODEST_BYTES : undefined);
      return true;
    };
    /** Counts the handshake of the connection if it was costly, and begins those waiting handshakes for which there is room. */
    const ended = (connection: Connection, isCostlyOne: boolean): void => {
      if (isCostlyOne) {
        this.#count(connection);
        // The chains of the other unlimited handshakes of the client would still be verified.
        pending.breakOff((client) => this.#isLimited(client));
      }
      for (const next of waiting.firstOfEach()) {
        if (pending.isFull) return;
        for (let first: Connection | undefined = next; first !== undefined && beginInTurn(first);)
          first = waiting.firstOf(next.client);
      }
    };
    server.on('connection', (socket: Socket) => {
      const { remoteAddress: address = '' } = socket;
      const connection = { socket, address, ends: endsOf(socket), client: clientKey(address) };
      // Until the handshake begins, nothing else listens for errors.
      socket.on('error', () => undefined);
      socket.once('close', () => {
        waiting.delete(connection);
        // A handshake that breaks off counts by its bytes, because OpenSSL may have verified the chain already.
        if (pending.take(connection.ends, socket) !== undefined) ended(connection, socket.bytesRead > MODEST_BYTES);
      });
      if (beginInTurn(connection)) return;
      waiting.add(
        connection,
        this.#clock.after(WAIT_MS, () => begin(connection, CROWDED_BYTES)),
      );
    });
    server.on('secureConnection', (secure: TLSSocket) => {
      const connection = pending.take(endsOf(secure));
      if (connection !== undefined) ended(connection, isCostly(connection.socket.bytesRead, secure));
    });
  }

  #isLimited(client: string): boolean {
    return this.#countOf(client) >= LIMITED_FROM || this.#countOf(ALL_CLIENTS) >= ALL_LIMITED_FROM;
  }

  #countOf(key: string): number {
    return this.#counts.get(key)?.value ?? 0;
  }

  #count({ client, address }: Connection): void {
    const isLimited = this.#isLimited(client);
    for (const key of [client, ALL_CLIENTS]) this.#counts.set(key, this.#countOf(key) + 1, WITHIN_MS);
    if (!isLimited && this.#isLimited(client))
      this.#logger.warn(
        { address },
        'Limiting TLS handshakes to 4 KB for a minute: those of this client, or of all clients together, take too long',
      );
  }
}

/** A connection whose handshake is not complete. */
interface Connection {
  readonly socket: Socket;
  readonly address: string;
  /** The remote address and both ports. The TLS socket and the socket below it have the same. */
  readonly ends: string;
  /** The key of the client. */
  readonly client: string;
}

/** The connections whose handshakes wait for others, by client: the search for the next one skips the flood of a client. */
class WaitingConnections {
  readonly #byClient = new Map<string, Map<Connection, Timer>>();

  add(connection: Connection, timer: Timer): void {
    const connections = this.#byClient.get(connection.client) ?? new Map<Connection, Timer>();
    this.#byClient.set(connection.client, connections.set(connection, timer));
  }

  /** Removes the connection and cancels its timer. Does nothing for one that does not wait. */
  delete(connection: Connection): void {
    const connections = this.#byClient.get(connection.client);
    connections?.get(connection)?.cancel();
    connections?.delete(connection);
    if (connections?.size === 0) this.#byClient.delete(connection.client);
  }

  /** Returns the connection of the client that has waited longest. */
  firstOf(client: string): Connection | undefined {
    return this.#byClient.get(client)?.keys().next().value;
  }

  /** Yields the connection of each client that has waited longest, in the order in which the clients came. */
  *firstOfEach(): Iterable<Connection> {
    for (const connections of this.#byClient.values()) yield* connections.keys().take(1);
  }
}

/** The connections of a server whose handshakes have begun and are not complete. */
class PendingHandshakes {
  readonly #byEnds = new Map<string, { readonly connection: Connection; readonly isLimited: boolean }>();
  /** The number of handshakes that are not limited, by client. */
  readonly #unlimited = new Map<string, number>();
  #allUnlimited = 0;

  /** Whether no further handshake may begin without a limit, whoever its client is. */
  get isFull(): boolean {
    return this.#allUnlimited >= MAX_UNLIMITED_OF_ALL;
  }

  /** Whether no further handshake of the client may begin without a limit. */
  isCrowded(client: string): boolean {
    return this.isFull || (this.#unlimited.get(client) ?? 0) >= MAX_UNLIMITED;
  }

  add(connection: Connection, isLimited: boolean): void {
    this.take(connection.ends);
    this.#byEnds.set(connection.ends, { connection, isLimited });
    if (!isLimited) this.#countUnlimited(connection.client, 1);
  }

  /** Removes and returns the connection, if there is one and it is that of `socket`. */
  take(ends: string, socket?: Socket): Connection | undefined {
    const found = this.#byEnds.get(ends);
    if (found === undefined || (socket !== undefined && found.connection.socket !== socket)) return undefined;
    this.#byEnds.delete(ends);
    if (!found.isLimited) this.#countUnlimited(found.connection.client, -1);
    return found.connection;
  }

  /** Closes the connections of the chosen clients whose handshakes are not limited. */
  breakOff(isChosen: (client: string) => boolean): void {
    if (this.#allUnlimited === 0) return;
    for (const [ends, { connection, isLimited }] of this.#byEnds) {
      if (isLimited || !isChosen(connection.client)) continue;
      this.take(ends);
      connection.socket.destroy();
    }
  }

  #countUnlimited(client: string, change: 1 | -1): void {
    this.#allUnlimited += change;
    const count = (this.#unlimited.get(client) ?? 0) + change;
    if (count === 0) this.#unlimited.delete(client);
    else this.#unlimited.set(client, count);
  }
}

/**
 * Whether the chain that the peer showed takes long. `bytes` are those that the peer has sent, which may include the beginning
 * of a request: clients send it with the end of the handshake.
 */
function isCostly(bytes: number, socket: TLSSocket): boolean {
  if (bytes <= MODEST_BYTES) return false;
  const seen = new Set<string>();
  let chainBytes = 0;
  let next: X509Certificate | undefined = socket.getPeerX509Certificate();
  while (next !== undefined && !seen.has(next.fingerprint256)) {
    chainBytes += next.raw.length;
    if (chainBytes > MAX_BYTES || !verifiesInTime(next.publicKey)) return true;
    seen.add(next.fingerprint256);
    next = next.issuerCertificate;
  }
  return false;
}

/** The time for which a server with a costly handshake is not called. */
const AVOIDED_MS = 600_000;

/** The error for a server that is not called because of its handshakes. */
class CostlyServerError extends Error {
  override readonly name = 'CostlyServerError';
}

/** Remembers the servers with costly handshakes. */
export class CostlyServers {
  readonly #costly: ExpiringCache<true>;

  constructor(clock: Clock) {
    this.#costly = new ExpiringCache({ clock, most: MAX_REMEMBERED });
  }

  /**
   * Returns why the server is not called, or `undefined` if it may be. The key is the purpose of the call, followed by who
   * chose the server, such as the pod of a probe, or by the server itself if the call does not state who chose it.
   */
  refusal(key: string, address: string): Error | undefined {
    if (this.#costly.get(key) === undefined) return undefined;
    return new CostlyServerError(`the TLS handshake of ${address} takes too long: it is not called for ten minutes`);
  }

  /** Judges the handshake of a connection to the server, also one that is not completed. */
  follow(key: string, socket: TLSSocket): void {
    let isJudged = false;
    const judge = (): void => {
      if (!isJudged && isCostly(Number.POSITIVE_INFINITY, socket)) this.#costly.set(key, true, AVOIDED_MS);
      isJudged = true;
    };
    socket.once('secureConnect', judge);
    // A socket that is destroyed has lost the certificates when it reports its end.
    const destroy = socket._destroy.bind(socket);
    socket._destroy = (error, done) => {
      judge();
      destroy(error, done);
    };
  }
}
