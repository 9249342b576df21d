/**
 * Manages the connections to one API server: a single HTTP/2 session if the server supports it, otherwise a keep-alive pool of
 * HTTP/1.1, also for plain `http://`. After a session is lost or its credentials are replaced, the next request opens a new
 * session. `http-client.ts` adds the API on top of it.
 */
import type { ClientRequest, IncomingHttpHeaders } from 'node:http';
import { request as httpsRequest, Agent as HttpsAgent } from 'node:https';
import http2, { type ClientHttp2Session, type ClientHttp2Stream } from 'node:http2';
import { isIP } from 'node:net';
import tls, { type ConnectionOptions, type TLSSocket } from 'node:tls';
import type { Readable } from 'node:stream';
import { request as httpRequest, Agent as HttpAgent } from './node-http.ts';
import type { Clock, Timer } from './clock.ts';

export interface TransportOptions {
  /** `https://host:port`, optionally with a path that is the prefix of every request's path. */
  readonly server: string;
  /** PEM. The default is the root certificates of the system. */
  readonly ca?: string | undefined;
  readonly serverName?: string | undefined;
  readonly insecureSkipVerify?: boolean;
  readonly clock: Clock;
  readonly connectTimeoutMs?: number;
  /** If false, only HTTP/1.1 is used. */
  readonly http2?: boolean;
}

export interface TransportRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: Buffer | string | undefined;
  readonly signal?: AbortSignal | undefined;
  /** The request ends when the connections are renewed. All others may finish. */
  readonly isWatch?: boolean;
}

export interface TransportResponse {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Readable;
}

export interface ClientCertificate {
  readonly certificate?: string | undefined;
  readonly key?: string | undefined;
}

/** The request did not reach the server or was not processed, so it is safe to send it again. */
export class NotSentError extends Error {
  constructor(cause: unknown) {
    super(cause instanceof Error ? cause.message : String(cause), { cause });
    this.name = 'NotSentError';
  }
}

const PING_IDLE_MS = 30_000;
const PING_TIMEOUT_MS = 15_000;

export class HttpTransport {
  readonly #options: TransportOptions;
  readonly #url: URL;
  #ca: string | undefined;
  #certificate: ClientCertificate = {};
  #connection: Promise<Connection> | undefined;
  #live: Connection | undefined;
  #closed = false;

  constructor(options: TransportOptions) {
    this.#options = options;
    this.#ca = options.ca;
    this.#url = new URL(options.server.includes('://') ? options.server : `https://${options.server}`);
  }

  get server(): string {
    return this.#url.origin;
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

  closeConnections(): void {
    this.#connection = undefined;
    this.#live?.close();
    this.#live = undefined;
  }

  close(): void {
    this.#closed = true;
    this.closeConnections();
  }

  async request(request: TransportRequest): Promise<TransportResponse> {
    if (this.#closed) throw new Error('the client is closed');
    request.signal?.throwIfAborted();
    const prefix = this.#url.pathname === '/' ? '' : this.#url.pathname.replace(/\/$/, '');
    const connection = await this.#connected();
    return connection.send({ ...request, path: prefix + request.path });
  }

  #connected(): Promise<Connection> {
    if (this.#connection !== undefined && this.#live?.usable !== false) return this.#connection;
    this.#live = undefined;
    const opening: Promise<Connection> = this.#open().then(
      (connection) => {
        // The certificate was replaced while the connection was opened.
        if (this.#connection === opening) this.#live = connection;
        return connection;
      },
      (error: unknown) => {
        if (this.#connection === opening) this.#connection = undefined;
        throw new NotSentError(error);
      },
    );
    this.#connection = opening;
    return opening;
  }

  async #open(): Promise<Connection> {
    if (this.#url.protocol === 'http:') return new PooledConnection(this.#url, undefined);
    const options = this.#tlsOptions();
    if (this.#options.http2 === false) return new PooledConnection(this.#url, options);
    const socket = await connectTls(options, this.#options.clock, this.#options.connectTimeoutMs ?? 30_000);
    if (socket.alpnProtocol === 'h2') return new Http2Connection(this.#url, socket, this.#options.clock);
    socket.destroy();
    return new PooledConnection(this.#url, { ...options, ALPNProtocols: ['http/1.1'] });
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
      ...(ca === undefined ? {} : { ca }),
      ...(name === undefined ? {} : { servername: name }),
      ...(certificate === undefined ? {} : { cert: certificate }),
      ...(key === undefined ? {} : { key }),
    };
  }
}

interface Connection {
  readonly usable: boolean;
  send(request: TransportRequest): Promise<TransportResponse>;
  /** Ends the watches, and closes the connection after the last response. */
  retire(): void;
  close(): void;
}

function connectTls(options: ConnectionOptions, clock: Clock, timeoutMs: number): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const socket = tls.connect(options);
    const timer = clock.after(timeoutMs, () =>
      socket.destroy(new Error(`no connection to ${options.host}:${options.port} within ${timeoutMs / 1000} s`)),
    );
    const onError = (error: Error): void => {
      timer.cancel();
      reject(error);
    };
    socket.once('error', onError);
    socket.once('secureConnect', () => {
      timer.cancel();
      socket.off('error', onError);
      resolve(socket);
    });
  });
}

class Http2Connection implements Connection {
  readonly #session: ClientHttp2Session;
  readonly #authority: string;
  readonly #clock: Clock;
  readonly #streams = new Set<ClientHttp2Stream>();
  readonly #watches = new Set<ClientHttp2Stream>();
  #pinger: Timer | undefined;
  usable = true;

  constructor(url: URL, socket: TLSSocket, clock: Clock) {
    this.#authority = url.host;
    this.#clock = clock;
    this.#session = http2.connect(url.origin, {
      createConnection: () => socket,
      settings: { enablePush: false, initialWindowSize: 4 << 20 },
    });
    this.#session.once('connect', (session) => session.setLocalWindowSize(8 << 20));
    const lost = (): void => {
      this.usable = false;
      this.#pinger?.cancel();
    };
    // Each open stream reports the error to its request.
    this.#session.on('error', lost);
    this.#session.on('goaway', lost);
    this.#session.on('close', lost);
    // An idle connection must not keep the process alive.
    this.#session.unref();
  }

  send(request: TransportRequest): Promise<TransportResponse> {
    return new Promise((resolve, reject) => {
      let stream: ClientHttp2Stream;
      try {
        stream = this.#session.request(
          { ':method': request.method, ':path': request.path, ':authority': this.#authority, ...request.headers },
          {
            endStream: request.body === undefined,
            ...(request.signal === undefined ? {} : { signal: request.signal }),
          },
        );
      } catch (error) {
        this.usable = false;
        reject(new NotSentError(error));
        return;
      }
      this.#track(stream, request.isWatch === true);
      let answered = false;
      stream.once('response', (headers) => {
        answered = true;
        resolve({ status: Number(headers[':status'] ?? 0), headers, body: stream });
      });
      stream.on('error', (error) => {
        if (!answered)
          reject(
            request.signal?.aborted
              ? (request.signal.reason as Error)
              : stream.rstCode === http2.constants.NGHTTP2_REFUSED_STREAM
                ? new NotSentError(error)
                : error,
          );
      });
      stream.once('close', () => {
        if (!answered)
          reject(
            request.signal?.aborted
              ? (request.signal.reason as Error)
              : new Error('the connection was closed before an answer came'),
          );
      });
      if (request.body !== undefined) stream.end(request.body);
    });
  }

  retire(): void {
    this.usable = false;
    this.#session.close();
    for (const stream of this.#watches) stream.close(http2.constants.NGHTTP2_CANCEL);
  }

  close(): void {
    this.usable = false;
    this.#pinger?.cancel();
    this.#session.close();
    for (const stream of this.#streams) stream.close(http2.constants.NGHTTP2_CANCEL);
    this.#session.destroy();
  }

  #track(stream: ClientHttp2Stream, isWatch: boolean): void {
    if (this.#streams.size === 0) this.#session.ref();
    this.#streams.add(stream);
    if (isWatch) this.#watches.add(stream);
    this.#watchOver();
    stream.once('close', () => {
      this.#watches.delete(stream);
      this.#streams.delete(stream);
      if (this.#streams.size > 0) return;
      this.#session.unref();
      this.#pinger?.cancel();
      this.#pinger = undefined;
    });
  }

  /** While requests are open, a peer that has been silent for long is pinged. */
  #watchOver(): void {
    if (this.#pinger !== undefined) return;
    this.#pinger = this.#clock.after(PING_IDLE_MS, () => {
      this.#pinger = undefined;
      if (!this.usable || this.#streams.size === 0) return;
      const deadline = this.#clock.after(PING_TIMEOUT_MS, () => {
        this.usable = false;
        this.#session.destroy(new Error('the server does not answer pings'));
      });
      const sent = this.#session.ping(() => deadline.cancel());
      if (!sent) deadline.cancel();
      this.#watchOver();
    });
  }
}

class PooledConnection implements Connection {
  readonly #url: URL;
  readonly #tls: ConnectionOptions | undefined;
  readonly #agent: HttpAgent;
  readonly #open = new Set<ClientRequest>();
  readonly #watches = new Set<ClientRequest>();
  #retired = false;
  usable = true;

  constructor(url: URL, tlsOptions: ConnectionOptions | undefined) {
    this.#url = url;
    this.#tls = tlsOptions;
    this.#agent = tlsOptions === undefined ? new HttpAgent({ keepAlive: true }) : new HttpsAgent({ keepAlive: true });
  }

  send({ method, path, headers, body, signal, isWatch = false }: TransportRequest): Promise<TransportResponse> {
    return new Promise((resolve, reject) => {
      const host = this.#url.hostname.replace(/^\[|\]$/g, '');
      const options = {
        host,
        port: this.#url.port,
        method,
        path,
        agent: this.#agent,
        headers: {
          ...headers,
          host: this.#url.host,
          ...(body === undefined ? {} : { 'content-length': String(Buffer.byteLength(body)) }),
        },
        ...(signal === undefined ? {} : { signal }),
      };
      const request = this.#tls === undefined ? httpRequest(options) : httpsRequest({ ...this.#tls, ...options });
      this.#track(request, isWatch);
      request.once('response', (response) =>
        resolve({ status: response.statusCode ?? 0, headers: response.headers, body: response }),
      );
      request.once('error', (error: NodeJS.ErrnoException) => {
        if (signal?.aborted) reject(signal.reason as Error);
        else
          reject(
            error.code === 'ECONNREFUSED' || (error.code === 'ECONNRESET' && request.reusedSocket)
              ? new NotSentError(error)
              : error,
          );
      });
      request.end(body);
    });
  }

  #track(request: ClientRequest, isWatch: boolean): void {
    this.#open.add(request);
    if (isWatch) this.#watches.add(request);
    request.once('close', () => {
      this.#open.delete(request);
      this.#watches.delete(request);
      if (this.#retired && this.#open.size === 0) this.#agent.destroy();
    });
  }

  retire(): void {
    this.usable = false;
    this.#retired = true;
    for (const request of this.#watches) request.destroy();
    if (this.#open.size === 0) this.#agent.destroy();
  }

  close(): void {
    this.usable = false;
    this.#agent.destroy();
  }
}
