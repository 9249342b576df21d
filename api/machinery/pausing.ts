/** Runs work that can pause: a generator that yields where other work may use the event loop. */
import { setImmediate } from 'node:timers/promises';
import { inOneSlice } from './time-slice.ts';

/** A generator that returns its result. In between, it may yield for a pause, or yield a promise for which it waits. */
export type Pausing<Result> = Generator<Promise<void> | undefined, Result>;

/** Runs the work without pauses. The work must not wait for a promise. */
export const atOnce = <Result>(work: Pausing<Result>): Result => inOneSlice(work as Generator<void, Result, undefined>);

/** Waits for a promise inside of work that only `inTurns` runs. A rejection is thrown into the work. */
export function* waitFor<Result>(promise: Promise<Result>): Pausing<Result> {
  let settled: PromiseSettledResult<Result> | undefined;
  yield Promise.allSettled([promise]).then(([result]) => {
    settled = result;
  });
  const result = settled as PromiseSettledResult<Result> | undefined;
  if (result === undefined) throw new Error('work that waits for a promise cannot run at once');
  if (result.status === 'rejected') throw result.reason;
  return result.value;
}

/** Yields to the event loop at each pause. Returns the result itself, and no promise, if the work does not pause. */
export function inTurns<Result>(work: Pausing<Result>): Result | Promise<Result> {
  const step = work.next();
  return step.done === true ? step.value : continueInTurns(work, step.value);
}

/** Yields at each pause if the work is large, and otherwise runs it at once. */
export const inTurnsIf = <Result>(isLarge: boolean | undefined, work: Pausing<Result>): Result | Promise<Result> =>
  isLarge === true ? inTurns(work) : atOnce(work);

async function continueInTurns<Result>(work: Pausing<Result>, first: Promise<void> | undefined): Promise<Result> {
  // The first `setImmediate` may still run in the iteration of the event loop that started the work.
  await setImmediate();
  for (let pause = first; ;) {
    await (pause ?? setImmediate());
    const step = work.next();
    if (step.done === true) return step.value;
    pause = step.value;
  }
}
