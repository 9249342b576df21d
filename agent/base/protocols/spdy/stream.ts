/**
 * Represents a stream of a SPDY connection as a Node.js duplex. Its buffer is bounded, and it reports to its connection how
 * much data waits for a reader, so that all streams of the connection are bounded together.
 */
import { Duplex } from 'node:stream';
import { ownBytes } from '../../../../api/machinery/own-bytes.ts';

const STREAM_BUFFER_BYTES = 1 << 18;
/** What a chunk counts besides its bytes, because a peer may send single bytes and each chunk occupies memory. */
const CHUNK_BYTES = 256;

/** Defines what a stream needs from its connection. */
interface StreamOwner {
  /** Resolves when the transport takes more. */
  sendData(id: number, chunk: Buffer, fin: boolean): Promise<void>;
  /** Called with the number of bytes by which the data that waits for a reader has grown, negative if it has shrunk. */
  held(bytes: number): void;
  /** Called when the stream is destroyed. */
  forget(id: number, end: { readonly isUnfinished: boolean; readonly hasPeerEnded: boolean }): void;
}

/**
 * A stream of a connection. Writes wait until the transport takes more data. If one side ends its direction, the other
 * direction stays open.
 */
export class SpdyStream extends Duplex {
  readonly id: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly #connection: StreamOwner;
  #drained: (() => void) | undefined;
  #heldBytes = 0;
  /** The chunks since the buffer was empty. */
  #chunks = 0;
  #hasPeerEnded = false;

  constructor(connection: StreamOwner, id: number, headers: Readonly<Record<string, string>>) {
    super({ allowHalfOpen: true, readableHighWaterMark: STREAM_BUFFER_BYTES, emitClose: true });
    this.id = id;
    this.headers = headers;
    this.#connection = connection;
  }

  /** Called by the connection when the peer has ended the stream. Received data can still be read. */
  peerEnded(): void {
    if (this.destroyed || this.#hasPeerEnded) return;
    this.#hasPeerEnded = true;
    this.push(null);
  }

  /**
   * Called by the connection for received data. Resolves when the stream accepts more. Data after the peer's end is dropped.
   */
  async give(payload: Buffer): Promise<void> {
    if (this.destroyed || this.#hasPeerEnded) return;
    const isFull = !this.push(ownBytes(payload));
    this.#chunks += 1;
    this.#account();
    if (!isFull || this.destroyed) return;
    await new Promise<void>((resolve) => {
      this.#drained = resolve;
    });
  }

  override read(size?: number): unknown {
    const chunk: unknown = super.read(size);
    this.#account();
    return chunk;
  }

  /** Reports to the connection how much data waits for the reader. */
  #account(): void {
    if (this.destroyed || this.readableLength === 0) this.#chunks = 0;
    const bytes = this.#chunks === 0 ? 0 : this.readableLength + this.#chunks * CHUNK_BYTES;
    this.#connection.held(bytes - this.#heldBytes);
    this.#heldBytes = bytes;
  }

  override _read(): void {
    this.#drained?.();
    this.#drained = undefined;
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#connection.sendData(this.id, chunk, false).then(() => done(), done);
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#connection.sendData(this.id, Buffer.alloc(0), true).then(() => done(), done);
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#drained?.();
    this.#account();
    this.#connection.forget(this.id, {
      isUnfinished: error !== null || !this.writableFinished,
      hasPeerEnded: this.#hasPeerEnded,
    });
    done(error);
  }
}
