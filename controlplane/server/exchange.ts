/**
 * Defines an HTTP request and its response for both protocols.
 *
 * A response is either sent whole (`send`) or started and written in pieces (`start`, `write`, `end`). Once the client is
 * disconnected, these calls do nothing.
 */
import type { Duplex } from 'node:stream';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { ClientConnection } from '../security/authentication/authentication.ts';

/** Names are in lower case. Repeated headers are joined as Node.js joins them. */
export type RequestHeaders = Readonly<Record<string, string | string[] | undefined>>;
/** The names are in lower case. */
export type ResponseHeaders = Record<string, string | string[] | number>;

/** How much of a response may wait for its client without being counted. */
export const LITTLE_BYTES = 16 * 1024;

/** One request with its response. */
export interface Exchange {
  readonly method: string;
  /** The path and query as the client sent them. */
  readonly target: string;
  readonly headers: RequestHeaders;
  /** Alternating names and values as they were received. */
  readonly rawHeaders?: readonly string[];
  readonly protocol: 'HTTP/1.1' | 'HTTP/2.0';
  readonly connection: ClientConnection;
  /** Whether a body follows the headers. It may be empty. */
  readonly hasBody: boolean;
  /** Whether a response has begun. */
  readonly answered: boolean;
  /** Whether the response is complete or the client is disconnected. */
  readonly closed: boolean;
  /** Whether the response is complete and the client has taken all of it but `LITTLE_BYTES`, or is disconnected. */
  readonly isTaken: boolean;
  /** Rejects with a 413 if the body is longer than `limit` bytes. `count` receives the size of each part. */
  readBody(limit: number, count?: (bytes: number) => void): Promise<Buffer>;
  /** Returns the body as a stream, for forwarding. */
  bodyStream(): AsyncIterable<Buffer>;
  send(status: number, headers: ResponseHeaders, body: Buffer | string | undefined): void;
  start(status: number, headers: ResponseHeaders): void;
  /**
   * Returns `false` if the caller must wait for `onDrain`. `sent` is called when the chunk's memory is no longer read, and
   * never if the connection fails before that.
   */
  write(chunk: Buffer | string, sent?: () => void): boolean;
  end(): void;
  /** Sets the listener, and replaces an earlier one. */
  onDrain(listener: () => void): void;
  /** Calls the listener once, when the response is complete or the client is disconnected: at once if it already is. */
  onClose(listener: () => void): void;
  /** Aborts a response that was started, so that the client notices that it is incomplete. */
  abort(): void;
  /** Whether the client requests an HTTP/1.1 upgrade whose socket was not taken yet. */
  readonly canUpgrade: boolean;
  /** Returns the socket of an HTTP/1.1 upgrade once, and `undefined` otherwise. */
  takeUpgrade(): Upgrade | undefined;
}

/** A request to leave HTTP, with the raw connection. */
export interface Upgrade {
  readonly message: IncomingMessage;
  readonly socket: Duplex;
  readonly head: Buffer;
  /** Owns the socket until it is detached. */
  readonly response: ServerResponse;
}
