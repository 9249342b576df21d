/**
 * What a cgroup is held to, and who holds it. One implementation writes the kernel's files (`file-cgroups.ts`), the other sets
 * properties of systemd's units (`systemd-cgroups.ts`); pods, QoS classes and the node's reservations use whichever the
 * runtime's driver asks for.
 */

/** Figures as cgroup v1 counts them; what is absent is left as it is, 0 lifts a limit. */
export interface CgroupResources {
  readonly cpuShares?: number;
  readonly cpuQuota?: { readonly quotaUs: number; readonly periodUs: number };
  readonly memoryBytes?: number;
  readonly pids?: number;
  /** Bytes by page size as the kernel writes it: `2MB`. */
  readonly hugePages?: Readonly<Record<string, number>>;
}

/** Says once what it cannot do, and never throws: pods run without limits of their own then, containers keep theirs. */
export interface CgroupManager {
  /** The name that the runtime takes: parts below `--cgroup-root`. */
  name(parts: readonly string[]): string;
  /** Makes the cgroup where it is not there. */
  set(name: string, resources: CgroupResources): Promise<void>;
  /** Of one that somebody else has made; false where nobody has. */
  update(name: string, resources: CgroupResources): Promise<boolean>;
  /** Leaves one that still has processes. */
  remove(name: string): Promise<void>;
  /** Names of those directly below. */
  children(name: string): Promise<readonly string[]>;
  isUsed(name: string): Promise<boolean>;
}

/** `cpu.weight` of v2 (1 to 10000) for the shares of v1 (2 to 262144), on the scale that the runtimes use. */
export function cpuWeight(shares: number): number {
  return Math.floor(1 + ((shares - 2) * 9999) / 262_142);
}
