/** Follows work that is not awaited, and retries work until it succeeds. */
import type { Logger } from '../component/logger.ts';
import type { Backoff } from './backoff.ts';
import type { Clock } from './clock.ts';

interface BackgroundOptions {
  readonly logger: Pick<Logger, 'error'>;
  /** The work as the subject of a sentence, capitalized: 'Removing the mirror pod'. The log message is `<what> failed`. */
  readonly what: string;
  /** Further fields of the log line, such as the objects that the work is about. */
  readonly fields?: object;
  /** Failures after the abort are cancellations and are not logged. */
  readonly signal?: AbortSignal;
}

/** Logs a failure of the work. */
export function background(work: Promise<unknown>, options: BackgroundOptions): void {
  work.catch((error: unknown) => {
    const { logger, what, fields, signal } = options;
    if (signal?.aborted !== true) logger.error({ ...fields, err: error }, `${what} failed`);
  });
}

interface RetryOptions {
  readonly clock: Clock;
  readonly backoff: Backoff;
  readonly signal: AbortSignal;
  /** Called with each failure before the wait. */
  readonly onError: (error: unknown, failures: number) => void;
}

/** Retries until the work succeeds. Resolves to `undefined` if the signal aborts before. Never rejects. */
export async function untilDone<T>(work: () => Promise<T>, options: RetryOptions): Promise<T | undefined> {
  const { clock, backoff, signal, onError } = options;
  while (!signal.aborted) {
    try {
      return await work();
    } catch (error) {
      if (signal.aborted) return undefined;
      const delayMs = backoff.next();
      onError(error, backoff.failures);
      await clock.sleep(delayMs, signal).catch(() => undefined);
    }
  }
  return undefined;
}
