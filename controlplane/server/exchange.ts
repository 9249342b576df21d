/**
 * One HTTP request and its answer, whichever protocol carries it. `http1.ts` and `http2.ts` implement it; the handler chain
 * and the verbs know nothing else of HTTP.
 *
 * An answer is either sent whole (`send`) or started and written in pieces (`start`, `write`, `end`). After the client has
 * gone every call is a no-op, so that nobody needs to ask first.
 */
import type { Duplex } from 'node:stream';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { X509Certificate } from 'node:crypto';

export type RequestHeaders = Readonly<Record<string, string | string[] | undefined>>;
/** Lower-case names. */
export type ResponseHeaders = Record<string, string | string[] | number>;

export interface Exchange {
  readonly method: string;
  /** Path and query as they were sent. */
  readonly target: string;
  readonly headers: RequestHeaders;
  /** Names and values alternating as they came, where the protocol keeps them apart. */
  readonly rawHeaders?: readonly string[];
  readonly protocol: 'HTTP/1.1' | 'HTTP/2.0';
  readonly remoteAddress: string;
  /** Whether a body follows the headers; it may turn out to be empty. */
  readonly hasBody: boolean;
  /** Whether an answer has begun. */
  readonly answered: boolean;
  /** Whether the answer is complete, or the client gone. */
  readonly closed: boolean;
  /** The client's certificate; the handshake proved the key but verified no chain. */
  peerCertificate(): X509Certificate | undefined;
  /** Rejects with 413 when the body is longer than `limit` bytes. `count` gets the bytes of each part. */
  readBody(limit: number, count?: (bytes: number) => void): Promise<Buffer>;
  /** The body as it comes, for what is passed on. */
  bodyStream(): AsyncIterable<Buffer>;
  send(status: number, headers: ResponseHeaders, body: Buffer | string | undefined): void;
  start(status: number, headers: ResponseHeaders): void;
  /** Returns `false` if the caller must wait for `onDrain`. */
  write(chunk: Buffer | string): boolean;
  end(): void;
  /** Replaces the one listener. */
  onDrain(listener: () => void): void;
  /** Called once: answered completely, or the client is gone. */
  onClose(listener: () => void): void;
  /** Breaks off an answer that was started, so that the client sees that it is incomplete. */
  abort(): void;
  /** The client asks for an HTTP/1.1 upgrade whose socket nobody has taken yet. */
  readonly canUpgrade: boolean;
  /** HTTP/1.1 upgrades: the socket, once; `undefined` elsewhere. */
  takeUpgrade(): Upgrade | undefined;
}

export interface Upgrade {
  readonly message: IncomingMessage;
  readonly socket: Duplex;
  readonly head: Buffer;
  /** Holds the socket until it is detached. */
  readonly response: ServerResponse;
}
