/** Implements a clock that advances by a millisecond whenever it is read, so that time slices end after some units of work. */
import { FakeClock } from './fake-clock.ts';

/** A fake clock that advances at each reading. */
export class TickingClock extends FakeClock {
  #readings = 0;

  override monotonic(): number {
    this.#readings += 1;
    return this.#readings;
  }
}

/** Counts the turns of the event loop during some work. */
export async function turnsOf<Result>(
  work: () => Promise<Result> | Result,
): Promise<{ readonly result: Result; readonly turns: number }> {
  let [turns, isCounting] = [0, true];
  const count = (): void => {
    turns += 1;
    if (isCounting) setImmediate(count);
  };
  setImmediate(count);
  const result = await work();
  isCounting = false;
  return { result, turns };
}
