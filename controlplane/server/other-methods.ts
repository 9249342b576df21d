/**
 * Reads requests of HTTP/1.1 with methods that the parser of Node.js does not know. kube-apiserver takes every token for a
 * method, and what a path answers to it depends on the path.
 */
import { Duplex } from 'node:stream';
import { METHODS } from '../../api/http/node-http.ts';

/** What the parser reports about a chunk of a connection that it could not read. */
export interface ParseFailure {
  readonly code?: unknown;
  readonly rawPacket?: unknown;
  readonly bytesParsed?: unknown;
}

/** A request whose method was replaced by one that the parser knows. */
interface OtherMethodRequest {
  readonly method: string;
  /** The head of the request with the replaced method, and what was received of its body. */
  readonly bytes: Buffer;
}

const PARSED_METHODS: ReadonlySet<string> = new Set(METHODS);
/** A known method whose requests may have a body, and to which nothing else gives a meaning. */
const PLACEHOLDER = 'PROPPATCH';
/** The characters of a token (RFC 9110, section 5.6.2). */
const METHOD = /^[!#$%&'*+.^_`|~\dA-Za-z-]+(?= )/;
const HEAD_END = '\r\n\r\n';

/**
 * Returns the request if the failure is that of its method. Returns `undefined` if the head is not in the chunk as a whole,
 * because the parser has consumed what came before it.
 */
export function otherMethodRequest({ code, rawPacket, bytesParsed }: ParseFailure): OtherMethodRequest | undefined {
  if (code !== 'HPE_INVALID_METHOD' || !Buffer.isBuffer(rawPacket) || typeof bytesParsed !== 'number') return undefined;
  const text = rawPacket.toString('latin1');
  const start = text.lastIndexOf('\n', bytesParsed - 1) + 1;
  const method = METHOD.exec(text.slice(start))?.[0];
  if (method === undefined || PARSED_METHODS.has(method) || !text.includes(HEAD_END, start)) return undefined;
  return { method, bytes: Buffer.from(PLACEHOLDER + text.slice(start + method.length), 'latin1') };
}

/**
 * A connection from which the server reads one request that was received already, and which writes its response to the socket.
 * What follows the request is not read. It closes with the socket.
 */
export class ReceivedRequest extends Duplex {
  readonly method: string;
  readonly #socket: Duplex;

  constructor(socket: Duplex, { method, bytes }: OtherMethodRequest) {
    super();
    this.method = method;
    this.#socket = socket;
    socket.once('close', () => this.destroy());
    this.push(bytes);
  }

  override _read(): void {
    // Everything was pushed at once.
  }

  override _write(chunk: Buffer, encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    if (this.#socket.writable) this.#socket.write(chunk, encoding, done);
    else done();
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#socket.end();
    done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    if (!this.writableFinished) this.#socket.destroy();
    done(error);
  }
}
