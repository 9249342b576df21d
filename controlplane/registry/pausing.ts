/**
 * Work that can pause: a generator that yields where others may use the event loop. Most of it ends before the first pause, and
 * then runs synchronously, without a promise.
 */
import { setImmediate } from 'node:timers/promises';

export type Pausing<Result> = Generator<undefined, Result>;

/** Ignores the pauses. */
export function atOnce<Result>(work: Pausing<Result>): Result {
  for (;;) {
    const { done, value } = work.next();
    if (done === true) return value;
  }
}

/** Yields the event loop at each pause. */
export function inTurns<Result>(work: Pausing<Result>): Result | Promise<Result> {
  const { done, value } = work.next();
  return done === true ? value : rest(work);
}

/** In turns if the work is large, else at once. */
export const inTurnsIf = <Result>(isLarge: boolean | undefined, work: Pausing<Result>): Result | Promise<Result> =>
  isLarge === true ? inTurns(work) : atOnce(work);

async function rest<Result>(work: Pausing<Result>): Promise<Result> {
  // The first one may still be in the turn of the input that the work began with.
  await setImmediate();
  for (;;) {
    await setImmediate();
    const { done, value } = work.next();
    if (done === true) return value;
  }
}
