/** Computes exponential backoff: delays that double from `firstMs` up to `longestMs`, with optional jitter. */

interface BackoffRange {
  readonly firstMs: number;
  readonly longestMs: number;
}

interface BackoffOptions extends BackoffRange {
  /**
   * The maximum jitter as a share of the delay: 1 adds up to the whole delay, also to the longest one. There is none without
   * `random`.
   */
  readonly jitter?: number;
  readonly random?: () => number;
}

/** Returns the delay after this number of consecutive failures, which is at least one. */
export function backoffDelay(failures: number, { firstMs, longestMs }: BackoffRange): number {
  return Math.min(firstMs * 2 ** Math.min(Math.max(failures - 1, 0), 50), longestMs);
}

/** Counts the failures of an operation that is retried. */
export class Backoff {
  readonly #options: BackoffOptions;
  #failures = 0;

  constructor(options: BackoffOptions) {
    this.#options = options;
  }

  /** The number of failures since the last `reset`. */
  get failures(): number {
    return this.#failures;
  }

  /** Counts one more failure. Returns the milliseconds to wait before the next attempt. */
  next(): number {
    this.#failures++;
    const { jitter = 0, random = () => 0 } = this.#options;
    return backoffDelay(this.#failures, this.#options) * (1 + jitter * random());
  }

  /** Forgets the failures. To be called after a success. */
  reset(): void {
    this.#failures = 0;
  }
}
