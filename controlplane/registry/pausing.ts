/**
 * Work that pauses: a generator that yields where others may have the event loop. Most of it ends before its first pause, and
 * is then done at once, without a promise.
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

/** Gives the event loop back at each pause. */
export function inTurns<Result>(work: Pausing<Result>): Result | Promise<Result> {
  const { done, value } = work.next();
  return done === true ? value : rest(work);
}

async function rest<Result>(work: Pausing<Result>): Promise<Result> {
  for (;;) {
    await setImmediate();
    const { done, value } = work.next();
    if (done === true) return value;
  }
}
