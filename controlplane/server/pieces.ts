/** Assembles the body of a large response from parts of other buffers. The parts are copied once, when they are sent. */

/** The length up to which bytes are assigned one by one. That is faster than copying for commas and braces. */
const SHORT = 2;

/** Adds the next parts of a body. Returns `false` if there are none. */
type AddMore = (to: Pieces) => boolean;

/**
 * The parts in order. A list has two or three parts for each of its thousands of objects, so two arrays keep the parts
 * instead of a JavaScript object for each. With `addMore`, `chunks` adds parts as the body is sent, and keeps none that are
 * sent.
 */
export class Pieces {
  readonly #buffers: Buffer[] = [];
  readonly #starts: number[] = [];
  /** The number of parts in the arrays. What follows them was sent. */
  #count = 0;
  #bytes = 0;
  #addMore: AddMore | undefined;

  constructor(addMore?: AddMore) {
    this.#addMore = addMore;
  }

  static of(buffers: readonly Buffer[]): Pieces {
    const pieces = new Pieces();
    for (const buffer of buffers) pieces.add(buffer);
    return pieces;
  }

  /** The total length of the parts that were added. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Adds the bytes of `buffer` from `start` on. */
  add(buffer: Buffer, start = 0): void {
    this.#buffers[this.#count] = buffer;
    this.#starts[this.#count] = start;
    this.#count += 1;
    this.#bytes += buffer.length - start;
  }

  /** Adds parts until they have more than `limit` bytes or are complete. */
  gather(limit: number): void {
    while (this.#bytes <= limit && this.#hasMore());
  }

  #hasMore(): boolean {
    if (this.#addMore === undefined) return false;
    if (this.#addMore(this)) return true;
    this.#addMore = undefined;
    return false;
  }

  /** Returns all bytes in one buffer. A single buffer that was added from its first byte is returned without a copy. */
  whole(): Buffer {
    this.gather(Number.POSITIVE_INFINITY);
    const [only] = this.#buffers;
    if (this.#count === 1 && this.#starts[0] === 0 && only !== undefined) return only;
    const joined = Buffer.allocUnsafe(this.#bytes);
    let at = 0;
    for (let index = 0; index < this.#count; index += 1) {
      const buffer = this.#buffers[index];
      if (buffer !== undefined) at += copyPart(buffer, this.#starts[index] ?? 0, joined, at);
    }
    return joined;
  }

  /**
   * Yields the bytes in the buffers that `take` returns. Each of them is full, except for the last. Drops parts that are sent
   * before others are added.
   */
  *chunks(take: () => Buffer): Generator<Buffer> {
    let chunk = take();
    let used = 0;
    for (let index = 0; ; index += 1) {
      if (index === this.#count) {
        if (this.#addMore === undefined) break;
        this.#count = 0;
        index = -1;
        if (this.#hasMore()) continue;
        break;
      }
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
