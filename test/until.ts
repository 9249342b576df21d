/**
 * The only way in which tests wait in real time: they check a condition repeatedly. The time limit ends a wait that would never
 * succeed, also on a busy machine. No test may depend on how soon a condition holds.
 */
import { systemClock } from '../api/machinery/clock.ts';

/** Thrown by a check whose condition can no longer become true. It ends the wait at once. */
export class Ended extends Error {}

const LONGEST_PAUSE_MS = 100;

/**
 * Resolves to the first result of `look` that is neither `undefined` nor `false`. An error of `look` counts as "not yet". After
 * the time limit, the last one is the cause of the thrown error.
 */
export async function until<T>(
  what: string,
  look: () => Promise<T | undefined | false> | T | undefined | false,
  timeoutMs = 120_000,
): Promise<T> {
  const deadline = performance.now() + timeoutMs;
  let last: unknown;
  for (let pauseMs = 5; performance.now() < deadline; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
    try {
      const found = await look();
      if (found !== undefined && found !== false) return found;
    } catch (error) {
      if (error instanceof Ended) throw error;
      last = error;
    }
    await systemClock.sleep(pauseMs);
  }
  throw new Error(`${what} did not come within ${timeoutMs / 1000} s`, { cause: last });
}
