/**
 * Implements `Exchange` over HTTP/2 on the stream itself, because Node.js' request and response objects cost more than the
 * whole rest of a small read.
 */
import {
  constants,
  sensitiveHeaders,
  type ServerHttp2Stream,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
} from 'node:http2';
import type { X509Certificate } from 'node:crypto';
import type { TLSSocket } from 'node:tls';
import { readWhole } from './whole-body.ts';
import type { Exchange, RequestHeaders, ResponseHeaders, Upgrade } from './exchange.ts';

/**
 * These headers differ in every response. They are kept out of the compression table, because they would fill it and never
 * match.
 */
const UNINDEXED = ['audit-id'];

export interface Arrival {
  readonly rawHeaders: readonly string[];
  readonly socket: TLSSocket;
  /** Whether the request ended with its headers. */
  readonly bodyless: boolean;
}

export class Http2Exchange implements Exchange {
  readonly method: string;
  readonly target: string;
  readonly headers: RequestHeaders;
  readonly rawHeaders: readonly string[];
  readonly protocol = 'HTTP/2.0';
  readonly #stream: ServerHttp2Stream;
  readonly #socket: TLSSocket;
  readonly #bodyless: boolean;
  #answered = false;

  constructor(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, arrival: Arrival) {
    this.method = headers[':method'] ?? 'GET';
    this.target = headers[':path'] ?? '/';
    this.headers = headers;
    this.rawHeaders = arrival.rawHeaders;
    this.#stream = stream;
    this.#socket = arrival.socket;
    this.#bodyless = arrival.bodyless;
  }

  get remoteAddress(): string {
    return this.#socket.remoteAddress ?? '';
  }

  get hasBody(): boolean {
    return !this.#bodyless;
  }

  get answered(): boolean {
    return this.#answered;
  }

  get closed(): boolean {
    return this.#stream.closed || this.#stream.destroyed;
  }

  peerCertificate(): X509Certificate | undefined {
    return this.#socket.getPeerX509Certificate();
  }

  readBody(limit: number, count?: (bytes: number) => void): Promise<Buffer> {
    return readWhole(this.bodyStream(), limit, count);
  }

  bodyStream(): AsyncIterable<Buffer> {
    return this.#stream.iterator({ destroyOnReturn: false });
  }

  send(status: number, headers: ResponseHeaders, body: Buffer | string | undefined): void {
    if (!this.#begin()) return;
    const withStatus: OutgoingHttpHeaders = Object.assign(headers, {
      ':status': status,
      [sensitiveHeaders]: UNINDEXED,
    });
    if (body === undefined || body.length === 0 || this.method === 'HEAD') {
      this.#stream.respond(withStatus, { endStream: true });
    } else {
      this.#stream.respond(withStatus);
      this.#stream.end(body);
    }
    if (!this.#bodyless && !this.#stream.readableEnded) this.#refuseRest();
  }

  start(status: number, headers: ResponseHeaders): void {
    if (!this.#begin()) return;
    this.#stream.respond({ ...headers, ':status': status, [sensitiveHeaders]: UNINDEXED });
  }

  write(chunk: Buffer | string, sent?: () => void): boolean {
    if (this.closed) return true;
    if (sent === undefined) return this.#stream.write(chunk);
    return this.#stream.write(chunk, (error) => {
      if (!(error instanceof Error)) sent();
    });
  }

  end(): void {
    if (!this.closed) this.#stream.end();
  }

  onDrain(listener: () => void): void {
    this.#stream.removeAllListeners('drain');
    this.#stream.on('drain', listener);
  }

  onClose(listener: () => void): void {
    if (this.closed) listener();
    else this.#stream.once('close', listener);
  }

  abort(): void {
    if (!this.closed) this.#stream.close(constants.NGHTTP2_INTERNAL_ERROR);
  }

  get canUpgrade(): boolean {
    return false;
  }

  takeUpgrade(): Upgrade | undefined {
    return undefined;
  }

  #begin(): boolean {
    if (this.#answered) return false;
    this.#answered = true;
    return !this.closed;
  }

  /** Drops the received data and does not wait for more, because the stream would stay open as long as the client wants. */
  #refuseRest(): void {
    this.#stream.resume();
    this.#stream.close(constants.NGHTTP2_NO_ERROR);
  }
}
