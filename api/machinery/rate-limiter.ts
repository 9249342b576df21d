/**
 * Implements a token bucket: `qps` tokens are added per second, up to `burst`. Callers wait in order. `qps <= 0` means no
 * limit.
 */
import type { Clock } from './clock.ts';

/** Owns one bucket. */
export class RateLimiter {
  readonly #clock: Clock;
  readonly #qps: number;
  readonly #burst: number;
  /** It is negative while callers wait. */
  #tokens: number;
  #refilledAt: number;

  constructor(options: { readonly clock: Clock; readonly qps: number; readonly burst: number }) {
    this.#clock = options.clock;
    this.#qps = options.qps;
    this.#burst = Math.max(1, options.burst);
    this.#tokens = this.#burst;
    this.#refilledAt = options.clock.monotonic();
  }

  /** Takes a token without waiting. Returns false if there is none. */
  tryAccept(): boolean {
    if (this.#qps <= 0) return true;
    this.#refill();
    if (this.#tokens < 1) return false;
    this.#tokens--;
    return true;
  }

  /**
   * Resolves when a token is available, in the order of the calls. If the signal aborts before, rejects with its reason and
   * returns the token to the bucket.
   */
  async accept(signal?: AbortSignal): Promise<void> {
    if (this.#qps <= 0) return;
    this.#refill();
    this.#tokens--;
    if (this.#tokens >= 0) return;
    try {
      await this.#clock.sleep((-this.#tokens / this.#qps) * 1000, signal);
    } catch (error) {
      this.#tokens++;
      throw error;
    }
  }

  #refill(): void {
    const now = this.#clock.monotonic();
    this.#tokens = Math.min(this.#burst, this.#tokens + ((now - this.#refilledAt) / 1000) * this.#qps);
    this.#refilledAt = now;
  }
}
