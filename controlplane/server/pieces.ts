/**
 * Assembles the body of a large response from parts of other buffers. The parts are copied once, when they are sent, into
 * chunks of a suitable size. `response.ts` creates it.
 */

/** Assigning bytes is faster than copying for commas and braces. */
const SHORT = 2;

/** The parts in order. A list of thousands of objects has two or three parts for each, so a part is not an object. */
export class Pieces {
  readonly #buffers: Buffer[] = [];
  readonly #starts: number[] = [];
  #bytes = 0;

  static of(buffers: readonly Buffer[]): Pieces {
    const pieces = new Pieces();
    for (const buffer of buffers) pieces.add(buffer);
    return pieces;
  }

  /** The total length. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Adds the bytes of `buffer` from `start` on. */
  add(buffer: Buffer, start = 0): void {
    this.#buffers.push(buffer);
    this.#starts.push(start);
    this.#bytes += buffer.length - start;
  }

  whole(): Buffer {
    const [only] = this.#buffers;
    if (this.#buffers.length === 1 && this.#starts[0] === 0 && only !== undefined) return only;
    return this.#join(0, this.#buffers.length, this.#bytes);
  }

  /** Yields chunks of at least `bytes`, except for the last. */
  *chunks(bytes: number): Generator<Buffer> {
    let from = 0;
    let size = 0;
    for (let at = 0; at < this.#buffers.length; at += 1) {
      size += (this.#buffers[at]?.length ?? 0) - (this.#starts[at] ?? 0);
      if (size < bytes) continue;
      yield this.#join(from, at + 1, size);
      from = at + 1;
      size = 0;
    }
    if (size > 0) yield this.#join(from, this.#buffers.length, size);
  }

  #join(from: number, to: number, size: number): Buffer {
    const joined = Buffer.allocUnsafe(size);
    let at = 0;
    for (let index = from; index < to; index += 1) {
      const buffer = this.#buffers[index];
      if (buffer === undefined) continue;
      const start = this.#starts[index] ?? 0;
      if (buffer.length - start > SHORT) at += buffer.copy(joined, at, start);
      else for (let byte = start; byte < buffer.length; byte += 1) joined[at++] = buffer[byte] ?? 0;
    }
    return joined;
  }
}
