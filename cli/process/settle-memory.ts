/**
 * Returns unused memory after the start and after bursts of work: V8 keeps code that ran once and dead objects until memory is
 * short, malloc keeps what it has freed between blocks in use, and pages of the program's files stay that the start alone used.
 * It does so in quiet moments after the process has grown.
 */
import { readFileSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { Clock } from '../../api/machinery/clock.ts';
import { releaseFiles } from './release-files.ts';
import { trimHeap } from './trim-heap.ts';

const CHECK_MS = 4_000;
/** The shortest time between two collections. */
const PAUSE_MS = 20_000;
/** The time for which V8 may free unused buffers in another thread after a collection. */
const SWEEP_MS = 1_000;
/** The share of the time since the last check in which the event loop was busy: below it, the process is quiet. */
const QUIET = 0.1;
/** The growth from which on memory is collected. */
const GROWN_BYTES = 8 * 1024 * 1024;

/**
 * Runs a full garbage collection. V8 accepts the compiled form of the modules of Node.js only under the flags with which
 * these were compiled, so the flag is set for this moment alone.
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
