/**
 * Gives back what only the start needed, and later what a burst of work left: code that ran once and objects that died, which V8
 * would keep until it is short of memory. One full collection, a tenth of a second, in a quiet moment after the process has
 * grown; a busy process is left alone. Called by the commands that stay.
 */
import type { Clock } from '../api/machinery/clock.ts';

const FIRST_LOOK_MS = 4_000;
/** Between looks, once the start is settled. */
const LOOK_MS = 20_000;
const QUIET = 0.1;
/** Less is not worth a collection. */
const GROWN_BYTES = 8 * 1024 * 1024;

/** Needs `--expose-gc`, which `bin/orchlet` and the released binary set; without it nothing happens. */
export function settleMemory(clock: Clock): void {
  const { gc } = globalThis;
  if (gc === undefined) return;
  let settledBytes = 0;
  const wait = (): void => {
    const before = performance.eventLoopUtilization();
    clock.after(settledBytes === 0 ? FIRST_LOOK_MS : LOOK_MS, () => {
      const { utilization } = performance.eventLoopUtilization(before);
      if (utilization < QUIET && process.memoryUsage.rss() >= settledBytes + GROWN_BYTES) {
        gc({ type: 'major', execution: 'sync', flavor: 'last-resort' });
        settledBytes = process.memoryUsage.rss();
      }
      wait();
    });
  };
  wait();
}
