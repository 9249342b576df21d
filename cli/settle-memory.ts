/**
 * Returns unused memory after the start and after bursts of work: V8 keeps code that ran once and dead objects until memory is
 * short. It runs one full garbage collection, which takes a tenth of a second, in a quiet moment after the process has grown,
 * and none while the process is busy. Long-running commands call it.
 */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { Clock } from '../api/machinery/clock.ts';

const FIRST_CHECK_MS = 4_000;
/** The interval of checks after the start. */
const CHECK_MS = 20_000;
/** The share of the time since the last check in which the event loop was busy: below it, the process is quiet. */
const QUIET = 0.1;
/** The growth from which on memory is collected. A smaller growth is not worth a collection. */
const GROWN_BYTES = 8 * 1024 * 1024;

/**
 * Runs a full garbage collection. V8 accepts the compiled form of the modules of Node.js only under the flags with which
 * these were compiled, so the flag is set for this moment alone. On the command line it would make each start compile them.
 */
function collectGarbage(): void {
  setFlagsFromString('--expose-gc');
  const gc = runInNewContext('gc') as NonNullable<typeof globalThis.gc>;
  setFlagsFromString('--no-expose-gc');
  gc({ type: 'major', execution: 'sync', flavor: 'last-resort' });
}

export function settleMemory(clock: Clock): void {
  let settledBytes = 0;
  const wait = (): void => {
    const before = performance.eventLoopUtilization();
    clock.after(settledBytes === 0 ? FIRST_CHECK_MS : CHECK_MS, () => {
      const { utilization } = performance.eventLoopUtilization(before);
      if (utilization < QUIET && process.memoryUsage.rss() >= settledBytes + GROWN_BYTES) {
        collectGarbage();
        settledBytes = process.memoryUsage.rss();
      }
      wait();
    });
  };
  wait();
}
