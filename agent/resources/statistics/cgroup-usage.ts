/**
 * The usage of a cgroup as both versions of cgroups report it, and the access to the kernel's files that both readers share. A
 * file of a controller that is not mounted, or of a cgroup that was removed in the meantime, is absent.
 */
import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { DeviceIo, Pressure } from './cgroup-files.ts';

/** The counters and settings of a cgroup. A counter that the kernel does not report is 0. */
export interface CgroupUsage {
  readonly cpu: {
    readonly usageNs: number;
    readonly userNs: number;
    readonly systemNs: number;
    readonly periods: number;
    readonly throttledPeriods: number;
    readonly throttledNs: number;
    readonly burstPeriods: number;
    readonly burstNs: number;
    /** 0 means no quota. */
    readonly quotaUs: number;
    readonly periodUs: number;
    readonly shares: number;
    readonly pressure: Pressure | undefined;
  };
  readonly memory: {
    readonly usageBytes: number;
    /** Usage without the inactive file cache, which the kernel can drop at once. */
    readonly workingSetBytes: number;
    readonly rssBytes: number;
    readonly cacheBytes: number;
    readonly mappedBytes: number;
    readonly swapBytes: number;
    readonly kernelBytes: number;
    readonly maxUsageBytes: number;
    readonly activeFileBytes: number;
    readonly inactiveFileBytes: number;
    readonly pageFaults: number;
    readonly majorPageFaults: number;
    readonly failures: number;
    readonly oomKills: number;
    /** `undefined` means no limit. */
    readonly limitBytes: number | undefined;
    /** The soft limit: `memory.soft_limit_in_bytes` of v1, `memory.high` of v2; `undefined` means no limit. */
    readonly reservationBytes: number | undefined;
    /** The limit as the kernel's file has it: v1 limits memory and swap together, v2 swap alone. */
    readonly swapLimitBytes: number | undefined;
    /** How much can be swapped out; `undefined` if there is no limit. */
    readonly swapMaxBytes: number | undefined;
    readonly pressure: Pressure | undefined;
  };
  readonly io: { readonly devices: readonly DeviceIo[]; readonly pressure: Pressure | undefined };
  readonly processes: { readonly current: number; readonly max: number | undefined };
}

/** Reads cgroups of one version. A cgroup that does not exist is `undefined` or empty; reads do not reject for it. */
export interface CgroupReader {
  readonly version: 1 | 2;
  /** Reads a cgroup such as `/kubepods/burstable/pod…`. The path `/` is the whole host. */
  read(path: string): Promise<CgroupUsage | undefined>;
  /** Returns the names of the direct child cgroups. */
  children(path: string): Promise<readonly string[]>;
  /** Returns the ids of the processes in the cgroup; none of those in another process namespace. */
  processes(path: string): Promise<readonly number[]>;
  /** Returns when the cgroup was created, or `undefined` if it does not exist. */
  createdAtMs(path: string): Promise<number | undefined>;
}

/** Returns the text of a file of a cgroup, or `undefined` if it cannot be read. */
export async function readCgroupFile(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch {
    // Usually the controller is not mounted, or the cgroup is gone.
    return undefined;
  }
}

/** Reads files concurrently. The result contains the existing ones by their names. */
export async function readCgroupFiles(
  names: readonly string[],
  pathOf: (name: string) => string,
): Promise<ReadonlyMap<string, string>> {
  const files = await Promise.all(names.map(async (name) => [name, await readCgroupFile(pathOf(name))] as const));
  return new Map(files.flatMap(([name, text]) => (text === undefined ? [] : [[name, text] as const])));
}

/**
 * Returns when the cgroup was created: the earlier time of its directory and of one of its files, because a new child cgroup
 * changes the time of the directory alone. Returns `undefined` if neither exists.
 */
export async function creationMs(directory: string, file: string): Promise<number | undefined> {
  // A cgroup that is gone has no times.
  const times = await Promise.all([directory, join(directory, file)].map((path) => stat(path).catch(() => undefined)));
  const found = times.flatMap((entry) => (entry === undefined ? [] : [entry.mtimeMs]));
  return found.length === 0 ? undefined : Math.min(...found);
}

/** Returns the names of the child cgroups of a directory; none if it does not exist. */
export async function childCgroups(directory: string): Promise<readonly string[]> {
  // A cgroup that is gone has no entries.
  const entries = await readdir(directory, { withFileTypes: true }).catch(() => []);
  return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
}

/** Returns the ids of the processes in the cgroup. The kernel shows those in another process namespace as 0. */
export async function processesOf(directory: string): Promise<readonly number[]> {
  const text = (await readCgroupFile(join(directory, 'cgroup.procs'))) ?? '';
  return text
    .split('\n')
    .map(Number)
    .filter((pid) => pid > 0);
}
