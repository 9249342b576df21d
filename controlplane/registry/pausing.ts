/**
 * Runs work that can pause: a generator that yields where other work may use the event loop. Most generators return before
 * their first pause. They run synchronously and need no promise.
 */
import { setImmediate } from 'node:timers/promises';
import { inOneSlice } from '../../api/machinery/time-slice.ts';

/** A generator that returns its result and may yield in between. */
export type Pausing<Result> = Generator<undefined, Result>;

/** Runs the work without pauses. */
export const atOnce = <Result>(work: Pausing<Result>): Result => inOneSlice(work);

/** Yields to the event loop at each pause. */
export function inTurns<Result>(work: Pausing<Result>): Result | Promise<Result> {
  const { done, value } = work.next();
  return done === true ? value : rest(work);
}

/** Yields at each pause if the work is large, and otherwise runs it at once. */
export const inTurnsIf = <Result>(isLarge: boolean | undefined, work: Pausing<Result>): Result | Promise<Result> =>
  isLarge === true ? inTurns(work) : atOnce(work);

async function rest<Result>(work: Pausing<Result>): Promise<Result> {
  // The first `setImmediate` may still run in the turn of the input that started the work.
  await setImmediate();
  for (;;) {
    await setImmediate();
    const { done, value } = work.next();
    if (done === true) return value;
  }
}
