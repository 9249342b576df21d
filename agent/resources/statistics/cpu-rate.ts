/** Computes the CPU rate of a cgroup from two readings of its CPU time. Pure. */

/** A reading of CPU time: its time in milliseconds, the CPU time so far, and the rate since the reading before it. */
export interface CpuSample {
  readonly atMs: number;
  readonly usageNs: number;
  /** Absent without a usable reading before this one. */
  readonly nanoCores: number | undefined;
}

/** The least and the greatest time between the two readings of a rate. */
const MIN_MS = 900;
const MAX_MS = 90_000;

/**
 * Returns a sample with the rate since `before`, or `before` itself if less than `MIN_MS` have passed since. The sample has no
 * rate if `before` is `undefined` or older than `MAX_MS`, or if the CPU time has decreased.
 */
export function nextCpuSample(before: CpuSample | undefined, usageNs: number, atMs: number): CpuSample {
  if (before === undefined || atMs - before.atMs > MAX_MS || usageNs < before.usageNs)
    return { atMs, usageNs, nanoCores: undefined };
  if (atMs - before.atMs < MIN_MS) return before;
  return { atMs, usageNs, nanoCores: Math.round(((usageNs - before.usageNs) * 1000) / (atMs - before.atMs)) };
}
