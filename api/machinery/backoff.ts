/** Exponential back-off: delays that double from `firstMs` up to `longestMs`, with optional jitter. */

export interface BackoffRange {
  readonly firstMs: number;
  readonly longestMs: number;
}

export interface BackoffOptions extends BackoffRange {
  /** Adds up to this share of the delay, 1 for up to twice the delay. Needs `random`. */
  readonly jitter?: number;
  readonly random?: () => number;
}

/** The delay after so many failures in a row, of which there is at least one. */
export function backoffDelay(failures: number, { firstMs, longestMs }: BackoffRange): number {
  return Math.min(firstMs * 2 ** Math.min(Math.max(failures - 1, 0), 50), longestMs);
}

/** Counts the failures of one thing that is tried again and again. */
export class Backoff {
  readonly #options: BackoffOptions;
  #failures = 0;

  constructor(options: BackoffOptions) {
    this.#options = options;
  }

  /** Failures since the last `reset`. */
  get failures(): number {
    return this.#failures;
  }

  /** Counts one more failure; the milliseconds to wait before the next attempt. */
  next(): number {
    this.#failures++;
    const { jitter = 0, random = () => 0 } = this.#options;
    return backoffDelay(this.#failures, this.#options) * (1 + jitter * random());
  }

  /** After a success. */
  reset(): void {
    this.#failures = 0;
  }
}
