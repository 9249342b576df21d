/**
 * Listens on the port of the API server. TLS requests a client certificate but does not require one. ALPN selects HTTP/2 or
 * HTTP/1.1.
 */
import type { IncomingMessage, Server as HttpServer, ServerResponse } from 'node:http';
import { constants, performServerHandshake, type ServerHttp2Session, type ServerHttp2Stream } from 'node:http2';
import { createServer as createTlsServer, type Server as TlsServer, type TLSSocket } from 'node:tls';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { createServer as createHttpServer, ServerResponse as NodeResponse } from '../../api/http/node-http.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { ConnectionLimit, connectionsWithin } from '../../api/http/connection-limit.ts';
import { CostlyHandshakes } from '../../api/http/costly-handshakes.ts';
import { IncompleteHeaders } from '../../api/http/incomplete-headers.ts';
import type { Logger } from '../../api/component/logger.ts';
import type { ClientConnection } from '../security/authentication/authentication.ts';
import { TlsConnection } from './connection.ts';
import { UnreadBodies } from './unread-bodies.ts';
import type { Exchange, Upgrade } from './exchange.ts';
import { Http1Exchange, refusalOf, type Refusal } from './http1.ts';
import { otherMethodRequest, type ParseFailure, ReceivedRequest } from './other-methods.ts';
import { Http2Exchange } from './http2.ts';
import { IdleSessions } from './idle-sessions.ts';
import { UntakenResponses } from '../../api/http/untaken-responses.ts';
import { TEXT_TYPE } from '../../api/http/media-types.ts';

/** A certificate with its chain, and its key. */
export interface ServingCertificate {
  /** The serving certificate, as PEM. */
  readonly cert: string | Buffer;
  readonly key: string | Buffer;
}

/** The settings of TLS handshakes. */
export interface TlsOptions extends ServingCertificate {
  /** The CAs that the TLS handshake names to clients (PEM). The authenticator verifies the certificates. */
  readonly clientCa?: string | Buffer | readonly (string | Buffer)[];
  readonly minVersion?: 'TLSv1.2' | 'TLSv1.3';
  readonly ciphers?: string;
}

interface ListenerOptions {
  readonly tls: TlsOptions;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly onExchange: (exchange: Exchange) => void;
  readonly onHandshakeError?: (() => void) | undefined;
  /** The time in which a client must complete the handshake. */
  readonly handshakeTimeoutMs?: number | undefined;
  /** The time in which the headers of a request must arrive. */
  readonly headersTimeoutMs?: number | undefined;
  /** The maximum number of connections. If absent, it follows from the limit of descriptors. */
  readonly maxConnections?: number | undefined;
  /** The time in which a client must take a complete response over HTTP/2. */
  readonly takeTimeoutMs?: number | undefined;
  /** The number of responses that clients have not taken beyond which `takeTimeoutMs` is shortened. */
  readonly manyStreams?: number | undefined;
  /** The budget for incomplete headers, of all connections together. */
  readonly headersBudgetBytes?: number | undefined;
}

/** The bounds of the number of connections: a maximum, and a share of the process' descriptors. */
const CONNECTIONS = { atMost: 5000, share: 0.6 };
const HANDSHAKE_TIMEOUT_MS = 10_000;
const HEADERS_TIMEOUT_MS = 32_000;
const IDLE_TIMEOUT_MS = 180_000;
const TAKE_TIMEOUT_MS = 60_000;
const CONNECTION_CHECK_MS = 5_000;
const MAX_HEADER_BYTES = 1 << 20;
const MAX_SESSION_MEMORY_MB = 64;
const MAX_CONCURRENT_STREAMS = 250;
/** The amount of data that a client may send in advance on one stream. */
const WINDOW_BYTES = 256 * 1024;

/** Owns the sockets of the port. */
export class Listener {
  readonly #tls: TlsServer;
  readonly #http: HttpServer;
  readonly #sessions = new Set<ServerHttp2Session>();
  /** All connections, also during their handshake. */
  readonly #sockets = new Set<Socket>();
  readonly #connections = new Map<Duplex, ClientConnection>();
  /** The response of the newest request of a connection. */
  readonly #newest = new WeakMap<Duplex, ServerResponse>();
  /** The connections that close with the response to a request that was refused, or whose method the parser does not know. */
  readonly #refused = new WeakSet<Duplex>();
  readonly #unread = new UnreadBodies();
  readonly #headers: IncompleteHeaders;
  readonly #untaken: UntakenResponses<ServerHttp2Stream>;
  readonly #idle: IdleSessions;
  readonly #limit: ConnectionLimit;
  readonly #options: ListenerOptions;
  #tlsOptions: TlsOptions;

  constructor(options: ListenerOptions) {
    this.#options = options;
    this.#tlsOptions = options.tls;
    this.#headers = new IncompleteHeaders({
      ...options,
      maxHeaderBytes: MAX_HEADER_BYTES,
      budgetBytes: options.headersBudgetBytes,
    });
    const timeoutMs = options.takeTimeoutMs ?? TAKE_TIMEOUT_MS;
    this.#untaken = new UntakenResponses({
      clock: options.clock,
      timeoutMs,
      many: options.manyStreams,
      breakOff: (stream) => stream.close(constants.NGHTTP2_CANCEL),
    });
    this.#idle = new IdleSessions({ clock: options.clock, timeoutMs: IDLE_TIMEOUT_MS });
    this.#http = this.#createHttp1();
    this.#tls = createTlsServer(
      {
        ...secureContextOf(options.tls),
        ALPNProtocols: ['h2', 'http/1.1'],
        requestCert: true,
        rejectUnauthorized: false,
        handshakeTimeout: options.handshakeTimeoutMs ?? HANDSHAKE_TIMEOUT_MS,
        noDelay: true,
        keepAlive: true,
      },
      (socket) => this.#accept(socket),
    );
    this.#limit = new ConnectionLimit({ ...options, most: options.maxConnections ?? connectionsWithin(CONNECTIONS) });
    new CostlyHandshakes(options).follow(this.#tls);
    this.#tls.on('connection', (socket: Socket) => {
      // Connections are counted before the handshake, so that those that send nothing count, too.
      this.#limit.add(socket);
      this.#sockets.add(socket);
      socket.once('close', () => this.#sockets.delete(socket));
    });
    this.#tls.on('tlsClientError', (error, socket) => {
      // Node.js leaves a connection open whose handshake takes too long.
      socket.destroy();
      options.onHandshakeError?.();
      options.logger.debug({ err: error }, 'A TLS handshake failed');
    });
  }

  listen(port: number, host: string): Promise<AddressInfo> {
    return new Promise((resolve, reject) => {
      this.#tls.once('error', reject);
      this.#tls.listen({ port, host, backlog: 1024 }, () => {
        this.#tls.removeListener('error', reject);
        this.#tls.on('error', (error) => this.#options.logger.error({ err: error }, 'The listener failed'));
        // Node.js checks for slow headers only on servers that have emitted this event.
        this.#http.emit('listening');
        resolve(this.#tls.address() as AddressInfo);
      });
    });
  }

  /** Sets the certificate for new connections. */
  replaceCertificate(certificate: ServingCertificate): void {
    this.#tlsOptions = { ...this.#tlsOptions, ...certificate };
    this.#tls.setSecureContext(secureContextOf(this.#tlsOptions));
  }

  /** Accepts no further connections, announces the end to HTTP/2 clients, and closes what remains after `graceMs`. */
  async close(graceMs: number): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#tls.close(() => resolve()));
    for (const session of this.#sessions) session.close();
    this.#http.closeIdleConnections();
    const timer = this.#options.clock.after(graceMs, () => this.#destroyConnections());
    if (graceMs <= 0) this.#destroyConnections();
    await closed;
    timer.cancel();
    this.#untaken.close();
    this.#idle.close();
    this.#http.close();
    this.#http.closeAllConnections();
  }

  #destroyConnections(): void {
    for (const session of this.#sessions) session.destroy();
    for (const socket of this.#sockets) socket.destroy();
  }

  #accept(socket: TLSSocket): void {
    const connection = new TlsConnection(socket, () => this.#limit.proven(socket));
    this.#connections.set(socket, connection);
    socket.once('close', () => this.#connections.delete(socket));
    socket.on('error', (error) => this.#options.logger.debug({ err: error }, 'A connection broke'));
    if (socket.alpnProtocol === 'h2') this.#acceptHttp2(socket, connection);
    else {
      this.#headers.add(socket);
      this.#http.emit('connection', socket);
    }
  }

  #acceptHttp2(socket: TLSSocket, connection: ClientConnection): void {
    const session = performServerHandshake(socket, {
      maxSessionMemory: MAX_SESSION_MEMORY_MB,
      settings: { maxConcurrentStreams: MAX_CONCURRENT_STREAMS, initialWindowSize: WINDOW_BYTES, enablePush: false },
    });
    this.#sessions.add(session);
    const use = this.#idle.add(session);
    session.once('close', () => {
      this.#sessions.delete(session);
      this.#idle.delete(session);
    });
    session.on('error', (error) => this.#options.logger.debug({ err: error }, 'An HTTP/2 session failed'));
    const untaken = this.#untaken;
    function closed(this: ServerHttp2Stream): void {
      use.closed();
      untaken.delete(this);
    }
    session.on('stream', (stream, headers, flags, rawHeaders) => {
      use.opened();
      untaken.add(stream);
      stream.on('close', closed);
      stream.on('error', this.#streamFailed);
      const bodyless = (flags & constants.NGHTTP2_FLAG_END_STREAM) !== 0;
      this.#options.onExchange(
        new Http2Exchange(stream, headers, { rawHeaders, connection, unread: this.#unread, bodyless }),
      );
    });
  }

  /** All streams share this listener, because a listener for each would be one more allocation for each request. */
  readonly #streamFailed = (error: Error): void =>
    this.#options.logger.debug({ err: error }, 'An HTTP/2 stream failed');

  #acceptHttp1(request: IncomingMessage, response: ServerResponse, upgrade?: Upgrade): void {
    const connection = this.#connections.get(request.socket);
    // The bytes after a refused request are not read as another request.
    if (this.#refused.has(request.socket)) return;
    const refusal = refusalOf(request);
    // A client can be disconnected before its request is read.
    if (connection === undefined) request.socket.destroy();
    else if (refusal !== undefined) {
      this.#refused.add(request.socket);
      refuse(response, refusal);
    } else {
      const { socket }: { readonly socket: Duplex } = request;
      const method = socket instanceof ReceivedRequest ? socket.method : undefined;
      if (method !== undefined) {
        response.shouldKeepAlive = false;
        this.#refused.add(socket);
      }
      const arrival = { connection, method, unread: this.#unread, ...(upgrade && { upgrade }) };
      const exchange = new Http1Exchange(request, response, arrival);
      if (upgrade === undefined) this.#headers.received(request);
      else this.#headers.remove(request.socket);
      this.#newest.set(request.socket, response);
      this.#options.onExchange(exchange);
    }
  }

  /** Whether the response of a request that was read completely is not sent yet. */
  #isAnswering(socket: Duplex): boolean {
    const last = this.#newest.get(socket);
    return last !== undefined && last.req.complete && !last.writableFinished;
  }

  /** Returns a response on a connection that the parser has left. The connection ends with it. */
  #responseOn(socket: Duplex, request: IncomingMessage): ServerResponse {
    const response = new NodeResponse(request);
    response.shouldKeepAlive = false;
    response.assignSocket(socket as TLSSocket);
    response.on('finish', () => socket.end());
    socket.on('error', (error) => this.#options.logger.debug({ err: error }, 'An upgraded connection broke'));
    return response;
  }

  /** Handles a request whose method the parser does not know. Returns `false` if the parser failed for another reason. */
  #acceptOtherMethod(error: Error & ParseFailure, socket: Duplex): boolean {
    const connection = this.#connections.get(socket);
    const request = otherMethodRequest(error);
    if (connection === undefined || request === undefined) return false;
    this.#refused.add(socket);
    this.#headers.remove(socket as TLSSocket);
    const accept = (): void => {
      if (!socket.writable) return;
      const received = new ReceivedRequest(socket, request);
      this.#connections.set(received, connection);
      received.once('close', () => this.#connections.delete(received));
      received.on('error', (failure) => this.#options.logger.debug({ err: failure }, 'A connection broke'));
      this.#http.emit('connection', received);
    };
    // A client may have the whole response to the request before, and this server may not know yet that it is sent.
    const last = this.#newest.get(socket);
    if (last === undefined || last.writableFinished) accept();
    else last.once('finish', accept);
    return true;
  }

  #createHttp1(): HttpServer {
    const headersTimeoutMs = this.#options.headersTimeoutMs ?? HEADERS_TIMEOUT_MS;
    const server = createHttpServer(
      {
        maxHeaderSize: MAX_HEADER_BYTES,
        headersTimeout: headersTimeoutMs,
        // The handler chain limits the time in which a body arrives.
        requestTimeout: 0,
        keepAliveTimeout: IDLE_TIMEOUT_MS,
        connectionsCheckingInterval: Math.min(CONNECTION_CHECK_MS, headersTimeoutMs),
        // Only requests for WebSocket or SPDY are upgraded. Others, such as those for `h2c`, are plain requests.
        shouldUpgradeCallback: (request: IncomingMessage) => isUpgrade(request),
      },
      (request, response) => this.#acceptHttp1(request, response),
    );
    server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
      const response = this.#responseOn(socket, request);
      this.#acceptHttp1(request, response, { message: request, socket, head, response });
    });
    server.on('connect', (request: IncomingMessage, socket: Duplex) => {
      this.#acceptHttp1(request, this.#responseOn(socket, request));
    });
    server.on('clientError', (error: Error, socket: Duplex) => {
      this.#options.logger.debug({ err: error }, 'A request could not be read');
      if (this.#refused.has(socket) || this.#acceptOtherMethod(error, socket)) return;
      // While the previous request of the connection has no response, its client would take a 400 for that response.
      if (socket.writable && !this.#isAnswering(socket))
        socket.end(
          'HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request',
        );
      else socket.destroy();
    });
    return server;
  }
}

/** Sends the refusal. The connection ends with it, because it may be unclear where the request ends. */
function refuse(response: ServerResponse, { status, text }: Refusal): void {
  response.writeHead(status, { 'content-type': TEXT_TYPE, connection: 'close' });
  response.end(`${status} ${text}`);
}

function isUpgrade(request: IncomingMessage): boolean {
  const upgrade = request.headers.upgrade?.toLowerCase() ?? '';
  return upgrade === 'websocket' || upgrade.startsWith('spdy/');
}

function secureContextOf(tls: TlsOptions): {
  cert: string | Buffer;
  key: string | Buffer;
  ca?: (string | Buffer)[];
  minVersion: 'TLSv1.2' | 'TLSv1.3';
  ciphers?: string;
} {
  const ca = tls.clientCa;
  const list =
    ca === undefined
      ? undefined
      : Array.isArray(ca)
        ? [...(ca as readonly (string | Buffer)[])]
        : [ca as string | Buffer];
  return {
    cert: tls.cert,
    key: tls.key,
    minVersion: tls.minVersion ?? 'TLSv1.2',
    ...(list === undefined ? {} : { ca: list }),
    ...(tls.ciphers === undefined ? {} : { ciphers: tls.ciphers }),
  };
}
