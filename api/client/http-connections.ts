/** Implements the connections of a transport to one server: one HTTP/2 session, or a pool of HTTP/1.1. */
import type { ClientRequest, IncomingHttpHeaders } from 'node:http';
import { request as httpsRequest, Agent as HttpsAgent } from 'node:https';
import http2, { type ClientHttp2Session, type ClientHttp2Stream } from 'node:http2';
import tls, { type ConnectionOptions, type TLSSocket } from 'node:tls';
import type { Readable } from 'node:stream';
import type { Clock, Timer } from '../machinery/clock.ts';
import { request as httpRequest, Agent as HttpAgent } from '../http/node-http.ts';
import { errorMessage } from '../meta/error-message.ts';

/** A request whose path includes the query. */
export interface TransportRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: Buffer | string | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Whether the request ends when the connections are renewed. Other requests may finish then. */
  readonly isWatch?: boolean;
}

/** A response whose body must be read or destroyed. */
export interface TransportResponse {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Readable;
}

/** The request did not reach the server or was not processed, so it may be sent again. */
export class NotSentError extends Error {
  constructor(cause: unknown) {
    super(errorMessage(cause), { cause });
    this.name = 'NotSentError';
  }
}

/** How long a silent server is waited for, in milliseconds. */
export interface Patience {
  /** The time between two pings of the server while requests are open. */
  readonly idleMs: number;
  /** How long the server may take to answer a ping. */
  readonly pingMs: number;
  readonly connectMs: number;
}

const UNREACHABLE: ReadonlySet<string> = new Set(['ECONNREFUSED', 'EHOSTUNREACH', 'ENETUNREACH', 'ETIMEDOUT']);

/** Whether the error means that the server cannot be reached. An open connection may have the same error as a new one. */
export function isUnreachable(error: unknown): boolean {
  return error instanceof Error && UNREACHABLE.has((error as NodeJS.ErrnoException).code ?? '');
}

/** Whether the request cannot have reached the server, so that it may be sent again: the connection was never established. */
const isUnsent = (error: NodeJS.ErrnoException): boolean =>
  isUnreachable(error) && error.syscall !== 'read' && error.syscall !== 'write';

/** A connection, or a pool of them. A connection that is not usable any more is replaced. */
export interface Connection {
  readonly usable: boolean;
  send(request: TransportRequest): Promise<TransportResponse>;
  /** Ends the watches, and closes the connection after the last response. */
  retire(): void;
  close(): void;
}

/** Opens a TLS connection. Resolves after the handshake. Rejects with the error of the socket or at the timeout. */
export function connectTls(options: ConnectionOptions, clock: Clock, timeoutMs: number): Promise<TLSSocket> {
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

interface Http2Options {
  readonly clock: Clock;
  readonly patience: () => Patience;
  /** Called when the server does not answer a ping. */
  readonly onDead: () => void;
}

/** An HTTP/2 session, which all requests share. */
export class Http2Connection implements Connection {
  readonly #session: ClientHttp2Session;
  readonly #authority: string;
  readonly #options: Http2Options;
  readonly #streams = new Set<ClientHttp2Stream>();
  readonly #watches = new Set<ClientHttp2Stream>();
  #pinger: Timer | undefined;
  usable = true;

  constructor(url: URL, socket: TLSSocket, options: Http2Options) {
    this.#authority = url.host;
    this.#options = options;
    this.#session = http2.connect(url.origin, {
      createConnection: () => socket,
      settings: { enablePush: false, initialWindowSize: 4 << 20 },
    });
    this.#session.once('connect', (session) => {
      if (!session.destroyed) session.setLocalWindowSize(8 << 20);
    });
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
              : new Error(`${this.#authority} closed the connection before it answered`),
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
    this.#pingRegularly();
    stream.once('close', () => {
      this.#watches.delete(stream);
      this.#streams.delete(stream);
      if (this.#streams.size > 0) return;
      this.#session.unref();
      this.#pinger?.cancel();
      this.#pinger = undefined;
    });
  }

  /** Pings the server again and again while requests are open. Destroys the session if a ping is not answered in time. */
  #pingRegularly(): void {
    if (this.#pinger !== undefined) return;
    const { clock, patience, onDead } = this.#options;
    const { idleMs, pingMs } = patience();
    this.#pinger = clock.after(idleMs, () => {
      this.#pinger = undefined;
      if (!this.usable || this.#streams.size === 0) return;
      let isAnswered = false;
      const judge = (): void => {
        if (isAnswered || !this.usable) return;
        this.usable = false;
        this.#session.destroy(new Error(`${this.#authority} does not answer pings`));
        onDead();
      };
      // If this process was busy or frozen, the timer is due before the answer that has arrived meanwhile is read.
      const deadline = clock.after(pingMs, () => setImmediate(judge));
      const sent = this.#session.ping(() => {
        isAnswered = true;
        deadline.cancel();
      });
      if (!sent) deadline.cancel();
      this.#pingRegularly();
    });
  }
}

/** A pool of HTTP/1.1 with a connection for each request that runs. Requests use connections of finished ones again. */
export class PooledConnection implements Connection {
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
        else reject(isUnsent(error) ? new NotSentError(error) : error);
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
