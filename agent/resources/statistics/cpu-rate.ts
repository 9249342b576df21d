/** Computes the CPU rate of a cgroup from two readings of its CPU time. Pure. */

export interface CpuSample {
  readonly atMs: number;
  readonly usageNs: number;
  /** Absent until there are two readings. */
  readonly nanoCores: number | undefined;
}

/** A rate is computed from two readings with at least this distance. */
const SHORTEST_MS = 900;
const LONGEST_MS = 90_000;

/** Returns the sample with the rate since the sample before it, which is kept if it is too recent for a rate. */
export function nextCpuSample(before: CpuSample | undefined, usageNs: number, atMs: number): CpuSample {
  if (before === undefined || atMs - before.atMs > LONGEST_MS || usageNs < before.usageNs)
    return { atMs, usageNs, nanoCores: undefined };
  if (atMs - before.atMs < SHORTEST_MS) return before;
  return { atMs, usageNs, nanoCores: Math.round(((usageNs - before.usageNs) * 1000) / (atMs - before.atMs)) };
}
