/**
 * Checks a condition repeatedly until it holds, which is the only way in which tests wait in real time. The time limit ends a
 * wait that would never succeed, also on a busy machine. No test may depend on how soon a condition holds.
 */
import { systemClock } from '../api/machinery/clock.ts';

/** Thrown by a check whose condition can no longer become true. It ends the wait at once. */
export class Ended extends Error {}

/** Many checks start a program such as kubectl: a long wait must not use the processor that it waits for. */
const MAX_PAUSE_MS = 400;
const PAUSE_OF_ELAPSED = 0.1;
const PAUSE_AT_FIRST_MS = 100;

function nextPause(pauseMs: number, elapsedMs: number): number {
  const longest = Math.max(PAUSE_AT_FIRST_MS, elapsedMs * PAUSE_OF_ELAPSED);
  return Math.min(pauseMs * 2, longest, MAX_PAUSE_MS);
}

/**
 * Resolves to the first result of `check` that is neither `undefined` nor `false`. An error of `check` counts as "not yet".
 * After the time limit, the last one is the cause of the thrown error.
 */
export async function until<T>(
  what: string,
  check: () => Promise<T | undefined | false> | T | undefined | false,
  timeoutMs = 120_000,
): Promise<T> {
  const started = performance.now();
  const deadline = started + timeoutMs;
  let last: unknown;
  for (let pauseMs = 5; performance.now() < deadline; pauseMs = nextPause(pauseMs, performance.now() - started)) {
    try {
      const found = await check();
      if (found !== undefined && found !== false) return found;
    } catch (error) {
      if (error instanceof Ended) throw error;
      last = error;
    }
    await systemClock.sleep(pauseMs);
  }
  throw new Error(`${what} did not come within ${timeoutMs / 1000} s`, { cause: last });
}
