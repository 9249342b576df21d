/**
 * Bounds the names of directories that a walk has found and not entered yet. A walk holds those of every level, and a container
 * can create millions of directories with long names.
 */

/** The maximum size of the names of a walk: half a million of those with a hundred characters. */
const MAX_NAMES_BYTES = 64 << 20;
/** The size of a name without its characters. */
const NAME_BYTES = 32;

/** The tree has more directories than can be remembered. */
export class TooManyDirectoriesError extends Error {
  override readonly name = 'TooManyDirectoriesError';
}

/** Counts the names of one walk. */
export class WaitingNames {
  readonly #maxBytes: number;
  #bytes = 0;

  constructor(maxBytes = MAX_NAMES_BYTES) {
    this.#maxBytes = maxBytes;
  }

  /** Counts a name that waits. Throws `TooManyDirectoriesError` beyond the maximum. */
  add(name: string): void {
    this.#bytes += NAME_BYTES + name.length;
    if (this.#bytes > this.#maxBytes)
      throw new TooManyDirectoriesError(`more than ${this.#maxBytes} bytes of names of directories wait at a time`);
  }

  /** Removes a name whose directory is entered. */
  remove(name: string): void {
    this.#bytes -= NAME_BYTES + name.length;
  }
}
