/**
 * Decides when pulls run: `serializeImagePulls`, `maxParallelImagePulls`, and the pulls per second of `registryPullQPS`. A
 * registry can make a pull last for ever, so a pull that is late lets the next one start beside it. Of the waiting pulls, one
 * of the namespace with the fewest running pulls comes first.
 */
import type { Clock } from '../../../api/machinery/clock.ts';

/**
 * The time after which a pull no longer counts against the limit. More pulls at once cost bandwidth, but waiting delays other
 * pods.
 */
const LATE_MS = 60_000;

interface TurnLimits {
  /** 0 means no limit. */
  readonly mostAtOnce: number;
  /** The rate in pulls per second, and the burst; 0 means no limit. */
  readonly perSecond: number;
  readonly burst: number;
}

interface Waiting {
  readonly namespace: string;
  start(): void;
}

/** Owns the running and the waiting pulls of the node. */
export class PullTurns {
  readonly #limits: TurnLimits;
  readonly #clock: Clock;
  /** The pulls that run and are not late. */
  #current = 0;
  /** The number of pulls that run by namespace, with the late ones. */
  readonly #running = new Map<string, number>();
  readonly #waiting = new Set<Waiting>();
  #tokens: number;
  #refilledAtMs: number;

  constructor(limits: TurnLimits, clock: Clock) {
    this.#limits = limits;
    this.#clock = clock;
    this.#tokens = limits.burst;
    this.#refilledAtMs = clock.monotonic();
  }

  /**
   * Runs the pull when it is its turn. Rejects if the signal aborts before, or if the pull would exceed the rate limit: that
   * pull is tried again after its back-off, as by the kubelet.
   */
  async run<T>(namespace: string, signal: AbortSignal, pull: () => Promise<T>): Promise<T> {
    const end = await this.#turn(namespace, signal);
    try {
      this.#takeToken();
      return await pull();
    } finally {
      end();
    }
  }

  get #isFull(): boolean {
    return this.#limits.mostAtOnce > 0 && this.#current >= this.#limits.mostAtOnce;
  }

  /** Resolves to the function that ends the turn. */
  #turn(namespace: string, signal: AbortSignal): Promise<() => void> {
    return new Promise((resolve, reject) => {
      const cancel = (): void => {
        this.#waiting.delete(waiting);
        reject(new Error('the pull was cancelled', { cause: signal.reason }));
      };
      const waiting: Waiting = {
        namespace,
        start: () => {
          this.#waiting.delete(waiting);
          signal.removeEventListener('abort', cancel);
          resolve(this.#begin(namespace));
        },
      };
      if (signal.aborted) cancel();
      else if (!this.#isFull) waiting.start();
      else {
        this.#waiting.add(waiting);
        signal.addEventListener('abort', cancel, { once: true });
      }
    });
  }

  /** Counts a pull until it is late, or until the returned function is called. */
  #begin(namespace: string): () => void {
    this.#current++;
    this.#running.set(namespace, (this.#running.get(namespace) ?? 0) + 1);
    let isLate = false;
    const timer = this.#clock.after(LATE_MS, () => {
      isLate = true;
      this.#current--;
      this.#startNext();
    });
    return () => {
      timer.cancel();
      const running = (this.#running.get(namespace) ?? 1) - 1;
      if (running > 0) this.#running.set(namespace, running);
      else this.#running.delete(namespace);
      if (!isLate) this.#current--;
      this.#startNext();
    };
  }

  #startNext(): void {
    while (!this.#isFull) {
      let next: Waiting | undefined;
      let fewest = Infinity;
      for (const waiting of this.#waiting) {
        const running = this.#running.get(waiting.namespace) ?? 0;
        if (running < fewest) [next, fewest] = [waiting, running];
      }
      if (next === undefined) return;
      next.start();
    }
  }

  #takeToken(): void {
    const { perSecond, burst } = this.#limits;
    if (perSecond <= 0) return;
    const now = this.#clock.monotonic();
    this.#tokens = Math.min(burst, this.#tokens + ((now - this.#refilledAtMs) / 1000) * perSecond);
    this.#refilledAtMs = now;
    if (this.#tokens < 1) throw new Error('pull QPS exceeded');
    this.#tokens -= 1;
  }
}
