/**
 * Manages the connection to the current API server of a list: an HTTP/2 session if both sides support it, otherwise a
 * keep-alive pool of HTTP/1.1.
 */
import { isIP } from 'node:net';
import { checkServerIdentity, type ConnectionOptions, type PeerCertificate } from 'node:tls';
import type { Clock } from '../machinery/clock.ts';
import {
  type Connection,
  connectTls,
  Http2Connection,
  isUnreachable,
  NotSentError,
  type Patience,
  PooledConnection,
  type TransportRequest,
  type TransportResponse,
} from './http-connections.ts';
import { ServerList } from './server-list.ts';
import { NODES_GROUP, NODE_USER_PREFIX } from '../meta/system-users.ts';

/** The servers, the trust in them, and the credentials. */
export interface TransportOptions {
  /** A URL such as `https://host:port`. Its path, if it has one, is the prefix of every request's path. */
  readonly server: string;
  /** The servers of which one is used at a time, instead of `server`. */
  readonly servers?: ServerList | undefined;
  /** PEM. The default is the root certificates of the system. */
  readonly ca?: string | undefined;
  readonly serverName?: string | undefined;
  readonly insecureSkipVerify?: boolean;
  readonly clock: Clock;
  readonly connectTimeoutMs?: number;
  /** Whether HTTP/2 may be used. It may by default. */
  readonly http2?: boolean;
}

interface ClientCertificate {
  readonly certificate?: string | undefined;
  readonly key?: string | undefined;
}

const PATIENT: Patience = { idleMs: 30_000, pingMs: 15_000, connectMs: 30_000 };
/** Where other servers can respond, a server that does not is given up within two seconds. */
const IMPATIENT: Patience = { idleMs: 600, pingMs: 1200, connectMs: 1800 };

/** Owns the current connection. */
export class HttpTransport {
  readonly #options: TransportOptions;
  readonly #servers: ServerList;
  readonly #unfollow: () => void;
  #ca: string | undefined;
  #certificate: ClientCertificate = {};
  #connection: Promise<Connection> | undefined;
  #live: Connection | undefined;
  #closed = false;

  constructor(options: TransportOptions) {
    this.#options = options;
    this.#ca = options.ca;
    this.#servers = options.servers ?? new ServerList([options.server], options.clock);
    // Requests that are open at the server that was left would never be answered.
    this.#unfollow = this.#servers.onMove(() => this.closeConnections());
  }

  /** The origin of the server that gets the next request, such as `https://10.0.0.1:6443`. */
  get server(): string {
    return this.#url.origin;
  }

  get servers(): ServerList {
    return this.#servers;
  }

  get #url(): URL {
    const { current } = this.#servers;
    return new URL(current.includes('://') ? current : `https://${current}`);
  }

  get #patience(): Patience {
    return this.#servers.all.length > 1 ? IMPATIENT : PATIENT;
  }

  /** Replaces the client certificate. Later requests do not use connections with the old certificate. */
  useCertificate(next: ClientCertificate): void {
    if (next.certificate === this.#certificate.certificate && next.key === this.#certificate.key) return;
    this.#certificate = next;
    this.renewConnections();
  }

  /** Replaces the CAs. Later requests use connections that were verified with them. */
  trust(ca: string): void {
    this.#ca = ca;
    this.renewConnections();
  }

  /** Makes later requests use new connections. Open watches end, and other requests may finish. */
  renewConnections(): void {
    this.#connection = undefined;
    this.#live?.retire();
    this.#live = undefined;
  }

  /** Closes the connection with the requests on it. The next request opens another one. */
  closeConnections(): void {
    this.#connection = undefined;
    this.#live?.close();
    this.#live = undefined;
  }

  close(): void {
    this.#closed = true;
    this.#unfollow();
    this.closeConnections();
  }

  /**
   * Sends the request to the current server. Rejects with a `NotSentError` if the request did not reach the server, with the
   * reason of an aborted signal, and with another error if the connection fails later or the client is closed.
   */
  async request(request: TransportRequest): Promise<TransportResponse> {
    request.signal?.throwIfAborted();
    let opening: Promise<Connection>;
    let connection: Connection;
    do {
      if (this.#closed) throw new Error('the client is closed');
      opening = this.#connected();
      connection = await opening;
      // Connections that were renewed or closed meanwhile are not used.
    } while (opening !== this.#connection);
    const prefix = this.#url.pathname === '/' ? '' : this.#url.pathname.replace(/\/$/, '');
    const { current } = this.#servers;
    try {
      return await connection.send({ ...request, path: prefix + request.path });
    } catch (error) {
      if (isUnreachable(error instanceof NotSentError ? error.cause : error)) this.#servers.failed(current);
      throw error;
    }
  }

  #connected(): Promise<Connection> {
    if (this.#connection !== undefined && this.#live?.usable !== false) return this.#connection;
    this.#live = undefined;
    const { current } = this.#servers;
    const opening: Promise<Connection> = this.#open().then(
      (connection) => {
        if (this.#connection === opening) this.#live = connection;
        else connection.close();
        return connection;
      },
      (error: unknown) => {
        if (this.#connection === opening) this.#connection = undefined;
        this.#servers.failed(current);
        throw new NotSentError(error);
      },
    );
    this.#connection = opening;
    return opening;
  }

  async #open(): Promise<Connection> {
    const url = this.#url;
    const { current } = this.#servers;
    if (url.protocol === 'http:') return new PooledConnection(url, undefined);
    const options = this.#tlsOptions();
    if (this.#options.http2 === false) return new PooledConnection(url, options);
    const { clock, connectTimeoutMs } = this.#options;
    const socket = await connectTls(options, clock, connectTimeoutMs ?? this.#patience.connectMs);
    if (socket.alpnProtocol === 'h2')
      return new Http2Connection(url, socket, {
        clock,
        patience: () => this.#patience,
        onDead: () => this.#servers.failed(current),
      });
    socket.destroy();
    return new PooledConnection(url, { ...options, ALPNProtocols: ['http/1.1'] });
  }

  #tlsOptions(): ConnectionOptions {
    const host = this.#url.hostname.replace(/^\[|\]$/g, '');
    const { serverName, insecureSkipVerify } = this.#options;
    const ca = this.#ca;
    const { certificate, key } = this.#certificate;
    const name = serverName ?? (isIP(host) === 0 ? host : undefined);
    return {
      host,
      port: this.#url.port === '' ? 443 : Number(this.#url.port),
      ALPNProtocols: ['h2', 'http/1.1'],
      rejectUnauthorized: insecureSkipVerify !== true,
      checkServerIdentity: checkApiServer,
      ...(ca === undefined ? {} : { ca }),
      ...(name === undefined ? {} : { servername: name }),
      ...(certificate === undefined ? {} : { cert: certificate }),
      ...(key === undefined ? {} : { key }),
    };
  }
}

/**
 * Returns the error of a certificate that is not valid for the host or is that of a node. The CA of the cluster also signs the
 * serving certificates of nodes, so a compromised node that can write the addresses of API servers could otherwise take their
 * place for all other nodes.
 */
function checkApiServer(host: string, certificate: PeerCertificate): Error | undefined {
  // Node.js leaves out the field of a certificate without a subject.
  const { CN, O } = (certificate as Partial<PeerCertificate>).subject ?? {};
  const isOfNode =
    [O].flat().includes(NODES_GROUP) || [CN].flat().some((name) => name?.startsWith(NODE_USER_PREFIX) === true);
  if (isOfNode) return new Error(`${host} has the certificate of a node, which is no API server`);
  return checkServerIdentity(host, certificate);
}
