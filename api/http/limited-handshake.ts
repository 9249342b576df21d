/**
 * Limits the bytes that a client may send before its TLS handshake is complete. Node.js passes the bytes of an accepted
 * connection to OpenSSL without any JavaScript, and OpenSSL verifies a chain of certificates as soon as it has the whole chain.
 */
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import type { Server as TlsServer, TLSSocket } from 'node:tls';

/** A listener for connections of a TLS server that begins their handshake. */
export type Handshake = (this: TlsServer, connection: Duplex) => void;

/**
 * Begins the handshake of a connection. What the client sends beyond the limit is held back until the handshake is complete, so
 * that a handshake with more bytes ends by the time limit of the server.
 */
export function limitHandshake(
  socket: Socket,
  { server, shake, mostBytes }: { readonly server: TlsServer; readonly shake: Handshake; readonly mostBytes: number },
): void {
  const limited = new LimitedConnection(socket, mostBytes);
  const { remoteAddress, remotePort, remoteFamily, localAddress, localPort } = socket;
  const ends = { remoteAddress, remotePort, remoteFamily, localAddress, localPort };
  const emit = (event: string, ...values: unknown[]): boolean => {
    if (event === 'secureConnection') {
      // A TLS socket above a stream does not know the addresses of its connection.
      for (const [name, value] of Object.entries(ends)) Object.defineProperty(values[0] as TLSSocket, name, { value });
      limited.completed();
    }
    return server.emit(event, ...values);
  };
  shake.call(Object.create(server, { emit: { value: emit } }) as TlsServer, limited);
}

/** The functions that pass on bytes of limited handshakes and wait for their turn. */
const waiting: (() => void)[] = [];

/** Calls `pass` in a later turn of the event loop, one function in each turn. */
function inTurn(pass: () => void): void {
  waiting.push(pass);
  if (waiting.length === 1) setImmediate(passNext);
}

function passNext(): void {
  waiting[0]?.();
  waiting.shift();
  if (waiting.length > 0) setImmediate(passNext);
}

class LimitedConnection extends Duplex {
  readonly #socket: Socket;
  #leftBytes: number;
  /** The bytes that are not passed on yet. Until they are, the connection is not read. */
  #held: Buffer | undefined;
  #isCompleted = false;

  constructor(socket: Socket, mostBytes: number) {
    super();
    this.#socket = socket;
    this.#leftBytes = mostBytes;
    socket.on('data', (chunk: Buffer) => this.#received(chunk));
    socket.on('end', () => this.push(null));
    socket.on('error', (error) => this.destroy(error));
    socket.on('close', () => this.destroy());
  }

  /** Passes on what was held back. Clients may send a request together with the end of their handshake. */
  completed(): void {
    this.#isCompleted = true;
    this.#leftBytes = Number.POSITIVE_INFINITY;
    // OpenSSL is still reading the bytes that completed the handshake.
    process.nextTick(() => this.#passHeld());
  }

  #received(chunk: Buffer): void {
    if (this.#isCompleted) {
      if (!this.push(chunk)) this.#socket.pause();
      return;
    }
    this.#held = chunk;
    this.#socket.pause();
    inTurn(() => this.#passHeld());
  }

  #passHeld(): void {
    const held = this.#held;
    if (held === undefined || this.#leftBytes === 0 || this.destroyed) return;
    const passed = held.subarray(0, Math.min(held.length, this.#leftBytes));
    this.#held = passed.length < held.length ? held.subarray(passed.length) : undefined;
    this.#leftBytes -= passed.length;
    if (this.push(passed) && this.#held === undefined) this.#socket.resume();
  }

  override _read(): void {
    if (this.#held === undefined) this.#socket.resume();
  }

  override _write(chunk: Buffer, encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#socket.write(chunk, encoding, done);
  }

  override _final(done: () => void): void {
    this.#socket.end(done);
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#socket.destroy();
    done(error);
  }
}
