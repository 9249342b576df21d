/**
 * Strings in order, in chunks of some hundred, so that adding one among 50,000 moves little memory and a page of a list
 * costs what it holds. Used by `resource-versions.ts`, once for each resource.
 */

const CHUNK_LIMIT = 512;

export class SortedKeys {
  #chunks: string[][] = [];
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** `false` when it is there already. */
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
      // Keys often come in order: an append leaves a full chunk behind, an insertion splits in the middle.
      const appended = position === chunk.length - 1 && at === this.#chunks.length - 1;
      this.#chunks.splice(at + 1, 0, chunk.splice(appended ? CHUNK_LIMIT : chunk.length >> 1));
    }
    return true;
  }

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

  /** Keys that begin with `prefix`, in order, above `startAfter`. */
  *range(prefix: string, startAfter = ''): Generator<string, void, undefined> {
    const exclusive = startAfter >= prefix && startAfter !== '';
    const from = exclusive ? startAfter : prefix;
    for (let at = this.#chunkOf(from); at < this.#chunks.length; at += 1) {
      const chunk = this.#chunk(at);
      for (let position = lowerBound(chunk, from); position < chunk.length; position += 1) {
        const key = chunk[position];
        if (key === undefined || (exclusive && key === from)) continue;
        if (!key.startsWith(prefix)) return;
        yield key;
      }
    }
  }

  /** How many keys begin with `prefix` and stand above `startAfter`; counts chunks, not keys. */
  count(prefix: string, startAfter = ''): number {
    const end = this.#rank(`${prefix}\uffff`);
    if (startAfter === '' || startAfter < prefix) return end - this.#rank(prefix);
    return Math.max(0, end - this.#rank(`${startAfter}\u0000`));
  }

  /** How many keys stand below `key`. */
  #rank(key: string): number {
    if (this.#chunks.length === 0) return 0;
    const at = this.#chunkOf(key);
    let rank = lowerBound(this.#chunk(at), key);
    for (let before = 0; before < at; before += 1) rank += this.#chunk(before).length;
    return rank;
  }

  /** The last chunk that begins at or below `key`. */
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
