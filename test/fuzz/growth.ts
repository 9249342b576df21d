/**
 * How time grows with the size of an input. A run is measured at three sizes, each four times the one before; from how much
 * longer the larger ones take comes an exponent: 1 is linear, 2 is quadratic.
 */

import assert from 'node:assert/strict';

/** Sorting and caches of the processor cost a little more than linear time. */
export const MAX_EXPONENT = 1.5;
const NOTICEABLE_MS = 5;
const REPETITIONS = 3;
const STEP = 4;
/** Small steps at first: what takes exponential time never ends a few bytes later. */
const FIRST_BYTES = 16;
const FIRST_STEP = 4;
const FIRST_END_BYTES = 64;

const larger = (size: number): number => (size < FIRST_END_BYTES ? size + FIRST_STEP : size * STEP);

export interface Growth {
  readonly exponent: number;
  readonly sizeBytes: number;
  readonly ms: number;
}

export interface GrowthOptions {
  readonly maxBytes: number;
  /** The first size; a run that is known not to be exponential can start large, where its time is measured best. */
  readonly minBytes?: number;
  /** An input that is faster than this even at its largest size passes. */
  readonly noticeableMs?: number;
  readonly stopwatch?: Stopwatch;
}

export type Run = (size: number) => unknown;
export type Stopwatch = (run: () => unknown) => Promise<number>;

/** Processor time of this process, all threads: other processes of a busy host do not count. */
export const processorClock: Stopwatch = async (run) => {
  const start = process.cpuUsage();
  const pending = run();
  if (pending instanceof Promise) await pending;
  const { user, system } = process.cpuUsage(start);
  return (user + system) / 1000;
};

/**
 * Starts small, so that even an exponential run ends, and grows up to `maxBytes` or until a run is slow enough to judge.
 * `undefined`: the run is fast at all sizes.
 */
export async function measureGrowth(
  run: Run,
  { minBytes = FIRST_BYTES, maxBytes, noticeableMs = NOTICEABLE_MS, stopwatch = processorClock }: GrowthOptions,
): Promise<Growth | undefined> {
  let size = minBytes;
  while (size < maxBytes && (await stopwatch(() => run(size))) < noticeableMs) size = Math.min(maxBytes, larger(size));
  const first = await fastest(run, size, stopwatch);
  if (first < noticeableMs) return undefined;
  const [half, quarter] = [
    await fastest(run, Math.ceil(size / STEP), stopwatch),
    await fastest(run, Math.ceil(size / STEP ** 2), stopwatch),
  ];
  const exponent = Math.min(slope(half, first), slope(quarter, first) / 2);
  return { exponent: Number(exponent.toFixed(2)), sizeBytes: size, ms: Number(first.toFixed(1)) };
}

/**
 * Fails when the time of a run grows faster than its size. The result does not depend on the speed of the host, as a limit in
 * milliseconds would.
 */
export async function assertLinearTime(run: Run, options: GrowthOptions): Promise<void> {
  const growth = await measureGrowth(run, options);
  assert.ok(growth === undefined || growth.exponent <= MAX_EXPONENT, `time grows too fast: ${JSON.stringify(growth)}`);
}

async function fastest(run: Run, size: number, stopwatch: Stopwatch): Promise<number> {
  let best = Infinity;
  for (let left = REPETITIONS; left > 0; left -= 1) best = Math.min(best, await stopwatch(() => run(size)));
  return best;
}

const slope = (smaller: number, larger: number): number => Math.log(larger / Math.max(smaller, 1e-3)) / Math.log(STEP);
