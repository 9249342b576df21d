/**
 * Returns unused memory after the start and after bursts of work: V8 keeps code that ran once and dead objects until memory is
 * short, malloc keeps what it has freed between blocks in use, and pages of the program's files stay that the start alone used.
 * In a quiet moment after the process has grown, it runs one full garbage collection, which takes a tenth of a second. It runs
 * none while the process is busy. Long-running commands call it.
 */
import { readFileSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { Clock } from '../../api/machinery/clock.ts';
import { releaseFiles } from './release-files.ts';
import { trimHeap } from './trim-heap.ts';

const CHECK_MS = 4_000;
/** The shortest time between two collections, so that they take a two-hundredth of a processor at most. */
const PAUSE_MS = 20_000;
/** After a collection, another thread of V8 frees the unused buffers. It has finished after this time. */
const SWEEP_MS = 1_000;
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

/**
 * Returns the resident memory without the pages of files, which come back when they are used. Where /proc cannot be read, it
 * includes them.
 */
function ownBytes(): number {
  try {
    const [, kib] = /^RssAnon:\s+(\d+) kB$/m.exec(readFileSync('/proc/self/status', 'latin1')) ?? [];
    if (kib !== undefined) return Number(kib) * 1024;
  } catch {
    // The answer below is that of such a host.
  }
  return process.memoryUsage.rss();
}

export function settleMemory(clock: Clock): void {
  let settledBytes = 0;
  let notBeforeMs = 0;
  const wait = (): void => {
    const before = performance.eventLoopUtilization();
    clock.after(CHECK_MS, () => {
      const isQuiet = performance.eventLoopUtilization(before).utilization < QUIET;
      const hasGrown = ownBytes() >= settledBytes + GROWN_BYTES;
      if (!isQuiet || !hasGrown || clock.monotonic() < notBeforeMs) {
        wait();
        return;
      }
      notBeforeMs = clock.monotonic() + PAUSE_MS;
      collectGarbage();
      clock.after(SWEEP_MS, () => {
        trimHeap();
        releaseFiles();
        settledBytes = ownBytes();
        wait();
      });
    });
  };
  wait();
}
