/** Implements `Exchange` over HTTP/2 on the stream itself, without Node.js' request and response objects. */
import { constants, sensitiveHeaders, type ServerHttp2Stream, type IncomingHttpHeaders } from 'node:http2';
import type { ClientConnection } from '../security/authentication/authentication.ts';
import { IncomingBody, incomingBody } from './incoming-body.ts';
import type { UnreadBodies } from './unread-bodies.ts';
import { type Exchange, LITTLE_BYTES, type RequestHeaders, type ResponseHeaders, type Upgrade } from './exchange.ts';

/**
 * The headers that are kept out of the compression table: they differ in every response, so they would fill it and never match.
 */
const NEVER_INDEXED = { [sensitiveHeaders]: ['audit-id'] };

interface Arrival {
  readonly rawHeaders: readonly string[];
  readonly connection: ClientConnection;
  readonly unread: UnreadBodies;
  /** Whether the request ended with its headers. */
  readonly bodyless: boolean;
}

/** Wraps one stream of node:http2. */
export class Http2Exchange implements Exchange {
  readonly method: string;
  readonly target: string;
  readonly headers: RequestHeaders;
  readonly rawHeaders: readonly string[];
  readonly protocol = 'HTTP/2.0';
  readonly connection: ClientConnection;
  readonly #stream: ServerHttp2Stream;
  readonly #bodyless: boolean;
  #body: IncomingBody | undefined;
  #answered = false;

  constructor(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, arrival: Arrival) {
    this.method = headers[':method'] ?? 'GET';
    this.target = headers[':path'] ?? '/';
    this.headers = headers;
    this.rawHeaders = arrival.rawHeaders;
    this.connection = arrival.connection;
    this.#stream = stream;
    this.#bodyless = arrival.bodyless;
    if (!arrival.bodyless)
      this.#body = incomingBody(this.method, stream, (refuse) => arrival.unread.open(this, refuse));
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

  get isTaken(): boolean {
    return this.closed || (this.#stream.writableEnded && this.#stream.writableLength <= LITTLE_BYTES);
  }

  readBody(limit: number, count?: (bytes: number) => void): Promise<Buffer> {
    this.#body ??= new IncomingBody(this.#stream);
    return this.#body.whole(limit, count);
  }

  bodyStream(): AsyncIterable<Buffer> {
    return (this.#body ?? new IncomingBody(this.#stream)).parts();
  }

  send(status: number, headers: ResponseHeaders, body: Buffer | string | undefined): void {
    if (!this.#begin()) return;
    if (body === undefined || body.length === 0 || this.method === 'HEAD') {
      this.#stream.respond(headerList(status, headers), { endStream: true });
    } else {
      this.#stream.respond(headerList(status, headers));
      this.#stream.end(body);
    }
    if (!this.#bodyless && !this.#stream.readableEnded) this.#refuseRemaining();
  }

  start(status: number, headers: ResponseHeaders): void {
    if (!this.#begin()) return;
    this.#stream.respond(headerList(status, headers));
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
  #refuseRemaining(): void {
    this.#body?.discard();
    this.#stream.resume();
    this.#stream.close(constants.NGHTTP2_NO_ERROR);
  }
}

/**
 * Returns alternating names and values. Node.js keeps them as long as the stream. From an object it would make a dictionary,
 * which is several times as large.
 */
function headerList(status: number, headers: ResponseHeaders): string[] {
  const list = [':status', String(status)];
  for (const name in headers) {
    const value = headers[name];
    if (Array.isArray(value)) for (const one of value) list.push(name, one);
    else list.push(name, String(value));
  }
  return Object.assign(list, NEVER_INDEXED);
}
