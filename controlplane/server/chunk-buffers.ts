/**
 * Provides the buffers in which large responses are assembled, one chunk at a time. They are used again, because fresh memory
 * for each chunk costs the kernel and the garbage collector more than the copy into it.
 */

/** The number of idle buffers that are kept. A list waits for its client after each chunk, so that a few serve many lists. */
const IDLE_BUFFERS = 8;

/** A pool of buffers, all of the same size in bytes. */
export class ChunkBuffers {
  readonly #bytes: number;
  readonly #free: Buffer[] = [];

  constructor(bytes: number) {
    this.#bytes = bytes;
  }

  /** Returns a buffer, which still contains what was written to it before. */
  take(): Buffer {
    return this.#free.pop() ?? Buffer.allocUnsafeSlow(this.#bytes);
  }

  /** Returns a buffer of `take`. The caller must not use the buffer any more. */
  giveBack(buffer: Buffer): void {
    if (this.#free.length < IDLE_BUFFERS) this.#free.push(buffer);
  }
}
