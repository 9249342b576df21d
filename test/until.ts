/**
 * The one way in which tests wait for what goes on in real time: for a condition, looked at again and again. The limit is for
 * what never comes, on a machine that is busy; nothing may depend on how soon a condition holds.
 */
import { systemClock } from '../api/machinery/clock.ts';

/** What is waited for can no longer come. */
export class Ended extends Error {}

const LONGEST_PAUSE_MS = 100;

/** What `look` finds: `undefined` and `false` are not yet, and so are errors, of which the last is told in the end. */
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
