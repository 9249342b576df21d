/** Assembles the body of a large response from parts of other buffers. The parts are copied once, when they are sent. */

/** The length up to which bytes are assigned one by one. That is faster than copying for commas and braces. */
const SHORT = 2;

/**
 * The parts in order. A list has two or three parts for each of its thousands of objects, so that two arrays keep the parts
 * instead of a JavaScript object for each.
 */
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

  /** Returns all bytes in one buffer. A single buffer that was added from its first byte is returned without a copy. */
  whole(): Buffer {
    const [only] = this.#buffers;
    if (this.#buffers.length === 1 && this.#starts[0] === 0 && only !== undefined) return only;
    const joined = Buffer.allocUnsafe(this.#bytes);
    let at = 0;
    for (let index = 0; index < this.#buffers.length; index += 1) {
      const buffer = this.#buffers[index];
      if (buffer !== undefined) at += copyPart(buffer, this.#starts[index] ?? 0, joined, at);
    }
    return joined;
  }

  /** Yields the bytes in the buffers that `take` returns. Each of them is full, except for the last. */
  *chunks(take: () => Buffer): Generator<Buffer> {
    let chunk = take();
    let used = 0;
    for (let index = 0; index < this.#buffers.length; index += 1) {
      const buffer = this.#buffers[index];
      if (buffer === undefined) continue;
      let from = this.#starts[index] ?? 0;
      while (from < buffer.length) {
        if (used === chunk.length) {
          yield chunk;
          chunk = take();
          used = 0;
        }
        const copied = copyPart(buffer, from, chunk, used);
        from += copied;
        used += copied;
      }
    }
    if (used > 0) yield chunk.subarray(0, used);
  }
}

/** Copies as much of `source` as there is room for, and returns the number of bytes. */
function copyPart(source: Buffer, from: number, target: Buffer, at: number): number {
  const left = source.length - from;
  if (left > SHORT) return source.copy(target, at, from);
  const copied = Math.min(left, target.length - at);
  for (let index = 0; index < copied; index += 1) target[at + index] = source[from + index] ?? 0;
  return copied;
}
