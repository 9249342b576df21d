/**
 * Implements a queue of keys for level-triggered loops. A key is in the queue once, however often it is added. One worker at a
 * time handles it. A key that is added meanwhile is handled again afterwards. Failed keys return with a backoff of their own.
 */
import { backoffDelay } from './backoff.ts';
import type { Clock, Timer } from './clock.ts';
import type { LoopTurns } from './loop-turns.ts';

/** Receives what happens to keys. `queue-metrics.ts` implements it. */
export interface QueueObserver {
  /** The key begins to wait. A worker may still handle it. */
  added(key: string): void;
  taken(key: string): void;
  done(key: string): void;
  retried(): void;
  stopped(): void;
}

interface WorkQueueOptions {
  readonly observer?: QueueObserver;
  readonly clock: Clock;
  /** The delay after the first failure of a key. It doubles with each failure. */
  readonly baseDelayMs?: number;
  readonly maxDelayMs?: number;
  /** The number of waiting keys from which on `add` refuses further ones. */
  readonly maxLength?: number;
}

/** Owns the keys and their backoffs. A worker calls `next`, and `done` when it has handled the key. */
export class WorkQueue {
  readonly #clock: Clock;
  readonly #observer: QueueObserver | undefined;
  readonly #baseDelayMs: number;
  readonly #maxDelayMs: number;
  readonly #maxLength: number;
  /** The keys that wait for a worker, in the order of arrival. No worker handles one of them. */
  readonly #ready = new Set<string>();
  readonly #processing = new Set<string>();
  /** The keys that were added while a worker handled them. */
  readonly #again = new Set<string>();
  readonly #delayed = new Map<string, { readonly at: number; readonly timer: Timer }>();
  readonly #failures = new Map<string, number>();
  readonly #waiters: ((key: string | undefined) => void)[] = [];
  #shutDown = false;

  constructor(options: WorkQueueOptions) {
    this.#clock = options.clock;
    this.#observer = options.observer;
    this.#baseDelayMs = options.baseDelayMs ?? 5;
    this.#maxDelayMs = options.maxDelayMs ?? 1_000_000;
    this.#maxLength = options.maxLength ?? 1_000_000;
  }

  /** The number of keys that wait for a worker. */
  get length(): number {
    return this.#ready.size;
  }

  /** Whether no key waits, is delayed or is being handled. */
  get idle(): boolean {
    return this.#ready.size === 0 && this.#processing.size === 0 && this.#delayed.size === 0;
  }

  /** Adds a key. Returns false if the queue is full or shut down. */
  add(key: string): boolean {
    if (this.#shutDown) return false;
    if (this.#processing.has(key)) {
      if (!this.#again.has(key)) this.#observer?.added(key);
      this.#again.add(key);
      return true;
    }
    if (this.#ready.has(key)) return true;
    const isWaitedFor = this.#waiters.length > 0;
    if (!isWaitedFor && this.#ready.size >= this.#maxLength) return false;
    this.#observer?.added(key);
    this.#enter(key);
    return true;
  }

  /** Gives the key to a waiting worker, or lets the key wait for one. */
  #enter(key: string): void {
    const waiter = this.#waiters.shift();
    if (waiter === undefined) {
      this.#ready.add(key);
      return;
    }
    this.#processing.add(key);
    this.#observer?.taken(key);
    waiter(key);
  }

  /**
   * Adds the key after a delay, or at once if there is none. The shortest of several delays of a key counts. Does nothing after
   * `shutDown`.
   */
  addAfter(key: string, delayMs: number): void {
    if (this.#shutDown) return;
    if (delayMs <= 0) {
      this.add(key);
      return;
    }
    const at = this.#clock.monotonic() + delayMs;
    const earlier = this.#delayed.get(key);
    if (earlier !== undefined) {
      if (earlier.at <= at) return;
      earlier.timer.cancel();
    }
    const timer = this.#clock.after(delayMs, () => {
      this.#delayed.delete(key);
      this.add(key);
    });
    this.#delayed.set(key, { at, timer });
  }

  /** Adds the key after its backoff, which grows with each call until `forget`. */
  addRateLimited(key: string): void {
    const failures = this.#failures.get(key) ?? 0;
    this.#failures.set(key, failures + 1);
    this.#observer?.retried();
    this.addAfter(key, backoffDelay(failures + 1, { firstMs: this.#baseDelayMs, longestMs: this.#maxDelayMs }));
  }

  /** Forgets the failures of the key, so that its next retry is not delayed by them. */
  forget(key: string): void {
    this.#failures.delete(key);
  }

  /** Returns the number of failures since the last `forget`. */
  failures(key: string): number {
    return this.#failures.get(key) ?? 0;
  }

  /** Resolves to the next key, which the caller must return with `done`. Resolves to `undefined` after `shutDown`. */
  next(): Promise<string | undefined> {
    for (const key of this.#ready) {
      this.#ready.delete(key);
      this.#processing.add(key);
      this.#observer?.taken(key);
      return Promise.resolve(key);
    }
    if (this.#shutDown) return Promise.resolve(undefined);
    return new Promise((resolve) => this.#waiters.push(resolve));
  }

  /** Ends the processing of a key. It enters the queue again if it was added meanwhile. */
  done(key: string): void {
    this.#processing.delete(key);
    this.#observer?.done(key);
    if (this.#again.delete(key)) this.#enter(key);
  }

  /** Refuses further keys, drops the waiting ones, and wakes the workers. */
  shutDown(): void {
    this.#shutDown = true;
    for (const { timer } of this.#delayed.values()) timer.cancel();
    this.#delayed.clear();
    this.#ready.clear();
    this.#again.clear();
    this.#observer?.stopped();
    for (const waiter of this.#waiters.splice(0)) waiter(undefined);
  }
}

interface WorkersOptions {
  readonly queue: WorkQueue;
  readonly workers: number;
  readonly signal: AbortSignal;
  /** Limits how long reconciles block the event loop. */
  readonly turns?: LoopTurns;
  readonly reconcile: (key: string, signal: AbortSignal) => Promise<void>;
  /** Called for each failure. The key returns after its backoff unless this returns `'drop'`. */
  readonly onError: (error: unknown, key: string, failures: number) => 'drop' | void;
}

/** Runs workers until the signal aborts. Resolves when the last reconcile has finished. */
export async function runWorkers(options: WorkersOptions): Promise<void> {
  const { queue, signal } = options;
  const stop = (): void => queue.shutDown();
  if (signal.aborted) stop();
  signal.addEventListener('abort', stop, { once: true });
  await Promise.all(Array.from({ length: options.workers }, () => work(options)));
  signal.removeEventListener('abort', stop);
}

async function work({ queue, signal, turns, reconcile, onError }: WorkersOptions): Promise<void> {
  for (let key = await queue.next(); key !== undefined; key = await queue.next()) {
    await turns?.begin();
    try {
      await reconcile(key, signal);
      queue.forget(key);
    } catch (error) {
      // An error that the shutdown causes is not a failure.
      if (!signal.aborted) {
        if (onError(error, key, queue.failures(key) + 1) === 'drop') queue.forget(key);
        else queue.addRateLimited(key);
      }
    } finally {
      queue.done(key);
    }
  }
}
