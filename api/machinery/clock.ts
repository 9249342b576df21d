/**
 * Defines the clock that is passed to all code that needs time. Only this file may call `Date.now`, `setTimeout` and
 * `setInterval`.
 */

/** A call that is due later. `cancel` prevents it, and does nothing once it was made. */
export interface Timer {
  cancel(): void;
}

/** The time of the program. */
export interface Clock {
  /** Returns the wall-clock time in milliseconds since the epoch. */
  now(): number;
  /** Returns monotonic milliseconds, which are for durations and not for dates. */
  monotonic(): number;
  /**
   * Calls `callback` once after `delayMs`, which may be longer than a timer of the platform allows. Does not keep the process
   * alive.
   */
  after(delayMs: number, callback: () => void): Timer;
  /** Resolves after `delayMs`. Rejects with the signal's reason if the signal aborts before. */
  sleep(delayMs: number, signal?: AbortSignal): Promise<void>;
}

/** The longest delay of a timer of Node.js, which runs longer ones at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** The time of the host. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(delayMs, callback) {
    let handle: NodeJS.Timeout;
    const arm = (leftMs: number): void => {
      const stepMs = Math.min(Math.max(leftMs, 0), MAX_TIMER_MS);
      handle = setTimeout(() => (leftMs > stepMs ? arm(leftMs - stepMs) : callback()), stepMs);
      handle.unref();
    };
    arm(delayMs);
    return { cancel: () => clearTimeout(handle) };
  },
  sleep: (delayMs, signal) => sleepOn(systemClock, delayMs, signal),
};

/** Keeps the process alive until it is cancelled, because timers of the clock do not. */
export function keepAlive(): Timer {
  const handle = setInterval(() => undefined, MAX_TIMER_MS);
  return { cancel: () => clearInterval(handle) };
}

/** Resolves when the signal aborts, or at once if it is already aborted. */
export function whenAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

/** Waits for `delayMs` or until the signal aborts. Never rejects, so that a loop only needs to check the signal. */
export async function pause(clock: Clock, delayMs: number, signal: AbortSignal): Promise<void> {
  try {
    await clock.sleep(delayMs, signal);
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

/**
 * Settles as the work does. Rejects with the signal's reason if the signal aborts before. The work then continues, and its
 * result is ignored.
 */
export async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  const onAbort = (): void => aborted.reject(signal.reason as Error);
  signal.addEventListener('abort', onAbort, { once: true });
  if (signal.aborted) onAbort();
  try {
    return await Promise.race([work, aborted.promise]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

/** Implements `sleep` for any clock with its `after`. */
export function sleepOn(clock: Clock, delayMs: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(signal.reason as Error);
      return;
    }
    const onAbort = (): void => {
      timer.cancel();
      reject(signal?.reason as Error);
    };
    const timer = clock.after(delayMs, () => {
      signal?.removeEventListener('abort', onAbort);
      resolve();
    });
    signal?.addEventListener('abort', onAbort, { once: true });
  });
}

/** The second that was formatted last. */
let formatted = { second: Number.NaN, text: '' };

/** Formats a time as RFC 3339 with seconds, like `metav1.Time`: `2026-01-02T03:04:05Z`. */
export function formatTime(epochMs: number): string {
  const second = Math.floor(epochMs / 1000);
  if (second !== formatted.second) {
    formatted = { second, text: `${new Date(epochMs).toISOString().slice(0, 19)}Z` };
  }
  return formatted.text;
}

/** Formats a time as RFC 3339 with microseconds, like `metav1.MicroTime`. */
export function formatMicroTime(epochMs: number): string {
  return new Date(epochMs).toISOString().replace('Z', '000Z');
}
