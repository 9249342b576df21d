/**
 * Gives back what only the start needed: code that ran once and young objects, which V8 would keep until it is short of
 * memory. One full collection in the first quiet moment after the start, a tenth of a second; a busy process is left alone.
 * Called by the commands that stay.
 */
import type { Clock } from '../api/machinery/clock.ts';

const INTERVAL_MS = 4_000;
const QUIET = 0.1;
const TRIES = 15;

/** Needs `--expose-gc`, which `bin/orchlet` and the released binary set; without it nothing happens. */
export function settleMemory(clock: Clock): void {
  const { gc } = globalThis;
  if (gc === undefined) return;
  const wait = (tries: number): void => {
    const before = performance.eventLoopUtilization();
    clock.after(INTERVAL_MS, () => {
      const { utilization } = performance.eventLoopUtilization(before);
      if (utilization < QUIET) gc({ type: 'major', execution: 'sync', flavor: 'last-resort' });
      else if (tries > 1) wait(tries - 1);
    });
  };
  wait(TRIES);
}
