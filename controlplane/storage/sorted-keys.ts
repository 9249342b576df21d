/**
 * Keeps strings in order, in chunks of a few hundred. So adding one to 50,000 moves little memory, and a page of a list costs
 * only its own keys.
 */

/** The maximum number of keys of a chunk. Inserting a key moves the others of its chunk only. */
const CHUNK_LIMIT = 512;

/** A set of strings in the order of their UTF-16 code units. */
export class SortedKeys {
  #chunks: string[][] = [];
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** Adds a key. Returns `false` if it exists already. */
  add(key: string): boolean {
    if (this.#chunks.length === 0) {
      this.#chunks.push([key]);
      this.#size = 1;
      return true;
    }
    const at = this.#chunkOf(key);
    const chunk = this.#chunk(at);
    const position = lowerBound(chunk, key);
    if (chunk[position] === key) return false;
    chunk.splice(position, 0, key);
    this.#size += 1;
    if (chunk.length > CHUNK_LIMIT) {
      // Keys often arrive in order. An append leaves a full chunk behind, and an insertion splits a chunk in the middle.
      const appended = position === chunk.length - 1 && at === this.#chunks.length - 1;
      this.#chunks.splice(at + 1, 0, chunk.splice(appended ? CHUNK_LIMIT : chunk.length >> 1));
    }
    return true;
  }

  /** Returns whether the key was there. */
  delete(key: string): boolean {
    if (this.#chunks.length === 0) return false;
    const at = this.#chunkOf(key);
    const chunk = this.#chunk(at);
    const position = lowerBound(chunk, key);
    if (chunk[position] !== key) return false;
    chunk.splice(position, 1);
    this.#size -= 1;
    if (chunk.length === 0) this.#chunks.splice(at, 1);
    return true;
  }

  /** Yields the keys that begin with `prefix` and are above `startAfter`, in order, a few hundred at a time. */
  *runs(prefix: string, startAfter = ''): Generator<readonly string[], void, undefined> {
    const exclusive = startAfter >= prefix && startAfter !== '';
    const from = exclusive ? startAfter : prefix;
    for (let at = this.#chunkOf(from); at < this.#chunks.length; at += 1) {
      const chunk = this.#chunk(at);
      let start = lowerBound(chunk, from);
      if (exclusive && chunk[start] === from) start += 1;
      const whole = chunk.at(-1)?.startsWith(prefix) === true;
      const end = whole ? chunk.length : lowerBound(chunk, `${prefix}\uffff`);
      if (start < end) yield chunk.slice(start, end);
      if (!whole && end < chunk.length) return;
    }
  }

  /** Returns the number of keys that begin with `prefix` and are above `startAfter`. Counts by chunks and not by keys. */
  count(prefix: string, startAfter = ''): number {
    const end = this.#rank(`${prefix}\uffff`);
    if (startAfter === '' || startAfter < prefix) return end - this.#rank(prefix);
    return Math.max(0, end - this.#rank(`${startAfter}\u0000`));
  }

  /** Returns the number of keys below `key`. */
  #rank(key: string): number {
    if (this.#chunks.length === 0) return 0;
    const at = this.#chunkOf(key);
    let rank = lowerBound(this.#chunk(at), key);
    for (let before = 0; before < at; before += 1) rank += this.#chunk(before).length;
    return rank;
  }

  /** Returns the index of the last chunk that begins at or below `key`, or 0 if none does. */
  #chunkOf(key: string): number {
    let low = 0;
    let high = this.#chunks.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#chunk(middle)[0] ?? '') <= key) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 1);
  }

  #chunk(at: number): string[] {
    const chunk = this.#chunks[at];
    if (chunk === undefined) throw new RangeError(`no chunk ${at}`);
    return chunk;
  }
}

function lowerBound(chunk: readonly string[], key: string): number {
  let low = 0;
  let high = chunk.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((chunk[middle] ?? '') < key) low = middle + 1;
    else high = middle;
  }
  return low;
}
