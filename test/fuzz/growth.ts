/**
 * Measures how the time of a run grows with the size of its input. It measures three sizes, each four times as large as the
 * previous one, and computes an exponent: 1 is linear and 2 is quadratic.
 */

import assert from 'node:assert/strict';

/** The exponent above which time is not linear. Sorting and processor caches cost slightly more than linear time. */
export const MAX_EXPONENT = 1.5;
const NOTICEABLE_MS = 5;
const REPETITIONS = 3;
const STEP = 4;
/**
 * The size of the first input. The first steps are small, because a run with exponential time would not finish with a few more
 * bytes.
 */
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
  /** The first size. A run that is certainly not exponential can start with a large size, where the measurement is precise. */
  readonly minBytes?: number;
  /** An input that takes less time at its maximum size passes. */
  readonly noticeableMs?: number;
  readonly stopwatch?: Stopwatch;
}

/** Runs what is measured with an input of `size` bytes. */
export type Run = (size: number) => unknown;
/** Runs a function and resolves to its time in milliseconds. */
export type Stopwatch = (run: () => unknown) => Promise<number>;

/** Measures the processor time of all threads of this process, so that other processes do not matter. */
export const processorClock: Stopwatch = async (run) => {
  const start = process.cpuUsage();
  const pending = run();
  if (pending instanceof Promise) await pending;
  const { user, system } = process.cpuUsage(start);
  return (user + system) / 1000;
};

/**
 * Increases the size until `maxBytes`, or until a run takes long enough to measure. The first sizes are small, so that an
 * exponential run finishes, too. Returns `undefined` if the run is fast at all sizes.
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
 * Fails if the time of a run grows faster than its size. Unlike a limit in milliseconds, this does not depend on the speed of
 * the host.
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
