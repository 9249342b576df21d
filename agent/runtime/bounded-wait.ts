/**
 * Limits how long a list of all containers waits for the status of one container. If a status takes longer than that, the
 * list shows the container with the data of its list entry.
 */
import type { Clock } from '../../api/machinery/clock.ts';

/** How long a list waits for one status. */
const LIMIT_MS = 5_000;

/** Resolves to the result of `status`, or to `fallback()` if it fails or takes longer than five seconds. */
export async function statusOrFallback<T>(clock: Clock, status: Promise<T>, fallback: () => T): Promise<T> {
  const limit = new AbortController();
  try {
    return await Promise.race([status.catch(fallback), clock.sleep(LIMIT_MS, limit.signal).then(fallback, fallback)]);
  } finally {
    limit.abort();
  }
}
