/**
 * Runs a loop that takes a turn whenever it is woken and after the delay that its last turn returned. A wake during a turn
 * leads to one more turn, so that no change is missed.
 *
 * A turn that throws does not end the loop. `onError` receives the failure, and the next turn follows after the backoff.
 */
import { Backoff } from './backoff.ts';
import type { Clock } from './clock.ts';

interface WakeableLoopOptions {
  readonly clock: Clock;
  /** Called with the error of each failed turn and the number of consecutive failures. It is not called after the abort. */
  readonly onError: (error: unknown, failures: number) => void;
  /** The delays after failed turns. The default is one second to one minute. */
  readonly backoff?: Backoff;
}

/** Returns the milliseconds until the next turn if the loop is not woken before. `Infinity` waits for `wake`. */
type Turn = (signal: AbortSignal) => Promise<number>;

/** Owns one loop. `run` may be called once at a time. */
export class WakeableLoop {
  readonly #options: WakeableLoopOptions;
  readonly #backoff: Backoff;
  #woken = false;
  #wake: () => void = () => undefined;

  constructor(options: WakeableLoopOptions) {
    this.#options = options;
    this.#backoff = options.backoff ?? new Backoff({ firstMs: 1_000, longestMs: 60_000 });
  }

  /** Starts the next turn at once, or when the current one has finished. */
  wake(): void {
    this.#woken = true;
    this.#wake();
  }

  /** Takes turns until the signal aborts. The first one starts at once. Never rejects. */
  async run(signal: AbortSignal, turn: Turn): Promise<void> {
    const onAbort = (): void => this.#wake();
    signal.addEventListener('abort', onAbort);
    try {
      while (!signal.aborted) {
        this.#woken = false;
        const delayMs = await this.#take(signal, turn);
        if (!this.#woken && !signal.aborted) await this.#wait(delayMs);
      }
    } finally {
      signal.removeEventListener('abort', onAbort);
    }
  }

  async #take(signal: AbortSignal, turn: Turn): Promise<number> {
    try {
      const delayMs = await turn(signal);
      this.#backoff.reset();
      return delayMs;
    } catch (error) {
      const delayMs = this.#backoff.next();
      if (!signal.aborted) this.#options.onError(error, this.#backoff.failures);
      return delayMs;
    }
  }

  async #wait(delayMs: number): Promise<void> {
    const woken = Promise.withResolvers<void>();
    this.#wake = woken.resolve;
    const timer = Number.isFinite(delayMs) ? this.#options.clock.after(delayMs, woken.resolve) : undefined;
    await woken.promise;
    timer?.cancel();
    this.#wake = () => undefined;
  }
}
