/**
 * Buffers that large responses are assembled in, one chunk at a time. They are used again, because fresh memory for each chunk
 * costs the kernel and the garbage collector more than the copy into it. `body-stream.ts` owns them.
 */

/** A list waits for its client after each chunk, so that a few buffers serve many lists. */
const KEPT = 8;

/** A pool of buffers, all of the same size in bytes. */
export class ChunkBuffers {
  readonly #bytes: number;
  readonly #free: Buffer[] = [];

  constructor(bytes: number) {
    this.#bytes = bytes;
  }

  /** The buffer holds what others left in it. */
  take(): Buffer {
    return this.#free.pop() ?? Buffer.allocUnsafeSlow(this.#bytes);
  }

  /** Returns a buffer of `take`. The caller must not use the buffer any more. */
  giveBack(buffer: Buffer): void {
    if (this.#free.length < KEPT) this.#free.push(buffer);
  }
}
