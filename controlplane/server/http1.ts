/** Implements `Exchange` over HTTP/1.1, the only protocol whose requests can be upgraded to a raw connection. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { hasBody } from '../../api/http/incomplete-headers.ts';
import type { ClientConnection } from '../security/authentication/authentication.ts';
import { IncomingBody, incomingBody } from './incoming-body.ts';
import type { UnreadBodies } from './unread-bodies.ts';
import { type Exchange, LITTLE_BYTES, type RequestHeaders, type ResponseHeaders, type Upgrade } from './exchange.ts';

/** The response to a request that is refused without being handled. */
export interface Refusal {
  readonly status: 400 | 501 | 505;
  readonly text: string;
}

/**
 * Returns the refusal of a request whose framing or host another server on its way may read in another way (RFC 9112, sections
 * 2.3, 3.2 and 6.1): a transfer coding but `chunked`, which the parser accepts and does not decode, several `Host` headers,
 * and other versions of HTTP. Returns `undefined` for all other requests.
 */
export function refusalOf({ httpVersion, headers, rawHeaders }: IncomingMessage): Refusal | undefined {
  if (httpVersion !== '1.1' && httpVersion !== '1.0') return { status: 505, text: 'HTTP Version Not Supported' };
  const coding = headers['transfer-encoding'];
  if (coding !== undefined && coding.toLowerCase() !== 'chunked') return { status: 501, text: 'Not Implemented' };
  const isHost = (name: string, at: number): boolean => at % 2 === 0 && name.toLowerCase() === 'host';
  return rawHeaders.filter(isHost).length > 1 ? { status: 400, text: 'Bad Request' } : undefined;
}

interface Http1Arrival {
  readonly connection: ClientConnection;
  /** The method if it is not that of the message. */
  readonly method?: string | undefined;
  readonly unread: UnreadBodies;
  readonly upgrade?: Upgrade;
}

/** A request over HTTP/1.1 and its response. */
export class Http1Exchange implements Exchange {
  readonly method: string;
  readonly target: string;
  readonly headers: RequestHeaders;
  readonly rawHeaders: readonly string[];
  readonly protocol = 'HTTP/1.1';
  readonly connection: ClientConnection;
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  #body: IncomingBody | undefined;
  #upgrade: Upgrade | undefined;
  #taken = false;

  constructor(
    request: IncomingMessage,
    response: ServerResponse,
    { connection, method, unread, upgrade }: Http1Arrival,
  ) {
    this.connection = connection;
    this.method = method ?? request.method ?? 'GET';
    this.target = request.url ?? '/';
    this.headers = request.headers;
    this.rawHeaders = request.rawHeaders;
    this.#request = request;
    this.#response = response;
    this.#upgrade = upgrade;
    if (this.hasBody) this.#body = incomingBody(this.method, request, (refuse) => unread.open(this, refuse));
  }

  get hasBody(): boolean {
    return hasBody(this);
  }

  get answered(): boolean {
    return this.#response.headersSent || this.#taken;
  }

  get closed(): boolean {
    return this.#response.destroyed || this.#response.writableEnded || this.#request.socket.destroyed;
  }

  get isTaken(): boolean {
    if (this.#taken || this.#request.socket.destroyed) return true;
    return this.#response.writableEnded && this.#response.writableLength <= LITTLE_BYTES;
  }

  readBody(limit: number, count?: (bytes: number) => void): Promise<Buffer> {
    this.#body ??= new IncomingBody(this.#request);
    return this.#body.whole(limit, count);
  }

  bodyStream(): AsyncIterable<Buffer> {
    return (this.#body ?? new IncomingBody(this.#request)).parts();
  }

  send(status: number, headers: ResponseHeaders, body: Buffer | string | undefined): void {
    if (this.answered || this.closed) return;
    const bytes = typeof body === 'string' ? Buffer.from(body) : body;
    headers['content-length'] = bytes?.length ?? 0;
    // The rest of an unread body would be parsed as the next request.
    if (!this.#request.complete) headers['connection'] = 'close';
    this.#response.writeHead(status, headers);
    this.#response.end(this.method === 'HEAD' ? undefined : bytes);
  }

  start(status: number, headers: ResponseHeaders): void {
    if (this.answered || this.closed) return;
    this.#response.writeHead(status, headers);
    this.#response.flushHeaders();
  }

  write(chunk: Buffer | string, sent?: () => void): boolean {
    if (this.closed) return true;
    if (sent === undefined) return this.#response.write(chunk);
    return this.#response.write(chunk, (error) => {
      if (!(error instanceof Error)) sent();
    });
  }

  end(): void {
    if (this.closed) return;
    this.#response.end();
    // The rest of a body that nobody read must not stand before the next request.
    if (!this.#request.complete) this.#body?.discard();
  }

  onDrain(listener: () => void): void {
    this.#response.removeAllListeners('drain');
    this.#response.on('drain', listener);
  }

  onClose(listener: () => void): void {
    const { socket } = this.#request;
    if (socket.destroyed || (this.#response.destroyed && !this.#taken)) {
      listener();
      return;
    }
    // A taken connection outlives the response, which is never closed after it is detached.
    const gone = (): void => {
      this.#response.off('close', answered);
      socket.off('close', gone);
      listener();
    };
    const answered = (): void => {
      if (!this.#taken) gone();
    };
    this.#response.once('close', answered);
    if (this.#upgrade !== undefined || this.#taken) socket.once('close', gone);
  }

  abort(): void {
    this.#request.socket.destroy();
  }

  get canUpgrade(): boolean {
    return this.#upgrade !== undefined;
  }

  takeUpgrade(): Upgrade | undefined {
    const upgrade = this.#upgrade;
    this.#upgrade = undefined;
    if (upgrade !== undefined) this.#taken = true;
    return upgrade;
  }
}
