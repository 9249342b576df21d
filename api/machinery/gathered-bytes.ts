/**
 * Gathers the parts of a body in one buffer. A list of the parts would cost a few hundred bytes for each: a peer that sends
 * three megabytes byte by byte would fill a gigabyte. The caller limits the size.
 */

const FIRST_BYTES = 4096;
const NONE = Buffer.alloc(0);

/** A buffer that grows with each part that is pushed. */
export class GatheredBytes {
  /** The first part itself until a second one comes, then a buffer with room for more. */
  #buffer: Buffer = NONE;
  #isOwn = false;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  push(part: Buffer): void {
    const size = this.#size + part.length;
    if (this.#size === 0) {
      this.#buffer = part;
      this.#isOwn = false;
    } else {
      if (!this.#isOwn || size > this.#buffer.length) this.#grow(Math.max(2 * size, FIRST_BYTES));
      part.copy(this.#buffer, this.#size);
    }
    this.#size = size;
  }

  /** Returns what was gathered, and forgets it. */
  take(): Buffer {
    const whole = this.#buffer.subarray(0, this.#size);
    this.#buffer = NONE;
    this.#isOwn = false;
    this.#size = 0;
    return whole;
  }

  #grow(capacity: number): void {
    const larger = Buffer.allocUnsafeSlow(capacity);
    this.#buffer.copy(larger, 0, 0, this.#size);
    this.#buffer = larger;
    this.#isOwn = true;
  }
}
