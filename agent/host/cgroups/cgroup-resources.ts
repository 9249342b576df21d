/**
 * Defines the limits of a cgroup and the interface that sets them. `file-cgroups.ts` writes the kernel's files,
 * `systemd-cgroups.ts` sets properties of systemd units.
 */

/**
 * Shares and limits in the units of cgroup v1. An absent value stays unchanged. 0 as `quotaUs`, `memoryBytes` or `pids` removes
 * the limit.
 */
export interface CgroupResources {
  readonly cpuShares?: number;
  readonly cpuQuota?: { readonly quotaUs: number; readonly periodUs: number };
  readonly memoryBytes?: number;
  readonly pids?: number;
  /** Bytes by page size in the kernel's spelling, such as `2MB`. */
  readonly hugePages?: Readonly<Record<string, number>>;
}

/**
 * Manages the cgroups of pods. It never throws. The first limit that cannot be set is logged: pods may then run without limits
 * of their own, and containers keep theirs.
 */
export interface CgroupManager {
  /** Returns the name of a cgroup in the form that the runtime takes. `parts` are the levels below `--cgroup-root`. */
  name(parts: readonly string[]): string;
  /** Sets the limits of a cgroup. Creates it if it does not exist. */
  set(name: string, resources: CgroupResources): Promise<void>;
  /** Sets the limits of an existing cgroup. Resolves to false if it does not exist. */
  update(name: string, resources: CgroupResources): Promise<boolean>;
  /** Removes the cgroup, unless it still has processes. */
  remove(name: string): Promise<void>;
  /** Returns the names of the child cgroups; with systemd, those of slices alone. */
  children(name: string): Promise<readonly string[]>;
  /** Resolves to whether the cgroup or one below it has processes. */
  isUsed(name: string): Promise<boolean>;
}

/** Converts the shares of v1 (2 to 262144) to `cpu.weight` of v2 (1 to 10000), on the scale that the runtimes use. */
export function cpuWeight(shares: number): number {
  return Math.floor(1 + ((shares - 2) * 9999) / 262_142);
}
