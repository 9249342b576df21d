/**
 * Refuses connections of clients, and connections to servers, whose TLS handshakes cost too much. OpenSSL verifies the chain of
 * certificates that a peer shows, in the event loop, before anybody knows the peer, and by the keys that the peer chooses:
 * 100 KB of certificates with exponents of thousands of bits take seconds. Node.js limits neither the chain nor its keys, and
 * verifies the chains of servers also where nobody asks for it, such as those of pods under a probe. The servers of agents and
 * control planes call this, and so does the dialer. An IPv6 client counts by its /64 network.
 */
import type { X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import type { Server as TlsServer, TLSSocket } from 'node:tls';
import type { Logger } from '../component/logger.ts';
import type { Clock } from '../machinery/clock.ts';
import { ExpiringCache } from '../machinery/expiring-cache.ts';
import { limitedLogger } from '../machinery/limited-logger.ts';
import { verifiesInTime } from '../pki/signing.ts';
import { clientKey, endsOf } from './connection-limit.ts';

/** A client may have fewer costly handshakes than this within the time. Then its connections are refused for the time. */
const MOST = 2;
const WITHIN_MS = 60_000;
/** The number of clients that are remembered. */
const MOST_CLIENTS = 4096;
/** What a client sends in a handshake without a certificate, or with a certificate and one or two of its issuers. */
const MODEST_BYTES = 4 * 1024;
/** The largest chains that clients have. */
const LARGEST_BYTES = 16 * 1024;

/** Remembers the clients with costly handshakes. Several servers may share it. */
export class CostlyHandshakes {
  readonly #counts: ExpiringCache<number>;
  readonly #logger: Logger;

  constructor({ clock, logger }: { readonly clock: Clock; readonly logger: Logger }) {
    this.#counts = new ExpiringCache({ clock, most: MOST_CLIENTS });
    this.#logger = limitedLogger(logger, clock);
  }

  /** Judges the handshakes of the server, and closes connections of clients that have had too many costly ones. */
  follow(server: TlsServer): void {
    const pending = new Map<string, Socket>();
    server.on('connection', (socket: Socket) => {
      const { remoteAddress = '' } = socket;
      if (this.#countOf(remoteAddress) >= MOST) {
        socket.destroy();
        return;
      }
      const ends = endsOf(socket);
      pending.set(ends, socket);
      socket.once('close', () => {
        // The handshake has not ended. OpenSSL verifies the chain before it knows whether the client has the key.
        if (pending.get(ends) !== socket) return;
        pending.delete(ends);
        if (socket.bytesRead > MODEST_BYTES) this.#count(remoteAddress);
      });
    });
    server.on('secureConnection', (secure: TLSSocket) => {
      const ends = endsOf(secure);
      const socket = pending.get(ends);
      pending.delete(ends);
      if (socket !== undefined && isCostly(socket.bytesRead, secure)) this.#count(secure.remoteAddress ?? '');
    });
  }

  #countOf(address: string): number {
    return this.#counts.get(clientKey(address))?.value ?? 0;
  }

  #count(address: string): void {
    const count = this.#countOf(address) + 1;
    this.#counts.set(clientKey(address), count, WITHIN_MS);
    if (count === MOST)
      this.#logger.warn({ address }, 'Refusing connections for a minute: the TLS handshakes of a client take too long');
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
    if (chainBytes > LARGEST_BYTES || !verifiesInTime(next.publicKey)) return true;
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
  readonly #known: ExpiringCache<true>;

  constructor(clock: Clock) {
    this.#known = new ExpiringCache({ clock, most: MOST_CLIENTS });
  }

  /** Returns why the server is not called. The key names the server and what it is called for. */
  refusal(key: string, address: string): Error | undefined {
    if (this.#known.get(key) === undefined) return undefined;
    return new CostlyServerError(`the TLS handshake of ${address} takes too long: it is not called for ten minutes`);
  }

  /** Judges the handshake of a connection to the server, also one that is not completed. */
  follow(key: string, socket: TLSSocket): void {
    let isJudged = false;
    const judge = (): void => {
      if (!isJudged && isCostly(Number.POSITIVE_INFINITY, socket)) this.#known.set(key, true, AVOIDED_MS);
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
