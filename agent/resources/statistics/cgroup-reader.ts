/**
 * Reads the usage of a cgroup from the kernel's files, for cgroup v1 (one mount per controller) and v2. A read opens a
 * few small files and starts no process. A cgroup that was removed in the meantime reads as `undefined`.
 */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  type DeviceIo,
  parseBlkio,
  parseCount,
  parseFlatKeyed,
  parseIoStat,
  parseLimit,
  parsePressure,
  type Pressure,
} from './cgroup-files.ts';

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
    /**
     * Memory usage without the inactive file cache, which the kernel can drop at once. Eviction and `kubectl top` use
     * it.
     */
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
    /** The memory that the kernel protects under memory pressure; `undefined` if none is set. */
    readonly reservationBytes: number | undefined;
    readonly swapLimitBytes: number | undefined;
    readonly pressure: Pressure | undefined;
  };
  readonly io: { readonly devices: readonly DeviceIo[]; readonly pressure: Pressure | undefined };
  readonly processes: { readonly current: number; readonly max: number | undefined };
}

export interface CgroupReader {
  readonly version: 1 | 2;
  /** Reads a cgroup such as `/kubepods/burstable/pod…`. The path `/` is the whole host. */
  read(path: string): Promise<CgroupUsage | undefined>;
  /** Returns the names of the direct child cgroups. */
  children(path: string): Promise<readonly string[]>;
  /** Returns the id of any process in the cgroup. */
  firstProcess(path: string): Promise<number | undefined>;
}

async function text(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch {
    // The controller is not mounted, or the cgroup is gone. The value is absent.
    return undefined;
  }
}

/** `mountPoint` is usually `/sys/fs/cgroup`, and `meminfoFile` is `/proc/meminfo`. Tests pass fixtures. */
export async function createCgroupReader(mountPoint: string, meminfoFile = '/proc/meminfo'): Promise<CgroupReader> {
  const entries: readonly string[] = await readdir(mountPoint).catch(() => []);
  if (entries.includes('cgroup.controllers')) return new UnifiedReader(mountPoint, meminfoFile);
  const find = (controller: string): string =>
    join(mountPoint, entries.find((entry) => entry.split(',').includes(controller)) ?? controller);
  return new ControllerReader({
    cpu: find('cpu'),
    cpuacct: find('cpuacct'),
    memory: find('memory'),
    pids: find('pids'),
    blkio: find('blkio'),
  });
}

async function listChildren(directory: string): Promise<readonly string[]> {
  const entries = await readdir(directory, { withFileTypes: true }).catch(() => []);
  return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
}

async function firstProcessIn(directory: string): Promise<number | undefined> {
  const line = (await text(join(directory, 'cgroup.procs')))?.split('\n')[0] ?? '';
  return line === '' || line === '0' ? undefined : Number(line);
}

class UnifiedReader implements CgroupReader {
  readonly version = 2;
  readonly #root: string;
  readonly #meminfoFile: string;

  constructor(root: string, meminfoFile: string) {
    this.#root = root;
    this.#meminfoFile = meminfoFile;
  }

  async #notFree(): Promise<number> {
    const meminfo = (await text(this.#meminfoFile)) ?? '';
    const of = (name: string): number =>
      Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(meminfo)?.[1] ?? 0) * 1024;
    return of('MemTotal') - of('MemFree');
  }

  children(path: string): Promise<readonly string[]> {
    return listChildren(join(this.#root, path));
  }

  firstProcess(path: string): Promise<number | undefined> {
    return firstProcessIn(join(this.#root, path));
  }

  async read(path: string): Promise<CgroupUsage | undefined> {
    const at = (file: string): Promise<string | undefined> => text(join(this.#root, path, file));
    const [cpuText, statText] = await Promise.all([at('cpu.stat'), at('memory.stat')]);
    if (cpuText === undefined && statText === undefined) return undefined;
    const [
      current,
      peak,
      swap,
      limit,
      high,
      swapMax,
      events,
      weight,
      quota,
      io,
      pids,
      pidsMax,
      cpuPressure,
      memoryPressure,
      ioPressure,
    ] = await Promise.all(
      [
        'memory.current',
        'memory.peak',
        'memory.swap.current',
        'memory.max',
        'memory.high',
        'memory.swap.max',
        'memory.events',
        'cpu.weight',
        'cpu.max',
        'io.stat',
        'pids.current',
        'pids.max',
        'cpu.pressure',
        'memory.pressure',
        'io.pressure',
      ].map(at),
    );
    const [cpu, stat, event] = [
      parseFlatKeyed(cpuText ?? ''),
      parseFlatKeyed(statText ?? ''),
      parseFlatKeyed(events ?? ''),
    ];
    const of = (map: ReadonlyMap<string, number>, key: string): number => map.get(key) ?? 0;
    const inactiveFileBytes = of(stat, 'inactive_file');
    // The root cgroup has no memory.current, so the usage is all memory that is not free.
    const usageBytes = current === undefined ? await this.#notFree() : parseCount(current);
    const [quotaText = 'max', periodText = '100000'] = (quota ?? '').trim().split(' ');
    return {
      cpu: {
        usageNs: of(cpu, 'usage_usec') * 1000,
        userNs: of(cpu, 'user_usec') * 1000,
        systemNs: of(cpu, 'system_usec') * 1000,
        periods: of(cpu, 'nr_periods'),
        throttledPeriods: of(cpu, 'nr_throttled'),
        throttledNs: of(cpu, 'throttled_usec') * 1000,
        burstPeriods: of(cpu, 'nr_bursts'),
        burstNs: of(cpu, 'burst_usec') * 1000,
        quotaUs: parseLimit(quotaText) ?? 0,
        periodUs: parseCount(periodText),
        shares: weight === undefined ? 0 : Math.round(2 + ((parseCount(weight) - 1) * 262_142) / 9999),
        pressure: cpuPressure === undefined ? undefined : parsePressure(cpuPressure),
      },
      memory: {
        usageBytes,
        workingSetBytes: Math.max(0, usageBytes - inactiveFileBytes),
        rssBytes: of(stat, 'anon'),
        cacheBytes: of(stat, 'file'),
        mappedBytes: of(stat, 'file_mapped'),
        swapBytes: parseCount(swap),
        kernelBytes: of(stat, 'kernel'),
        maxUsageBytes: parseCount(peak),
        activeFileBytes: of(stat, 'active_file'),
        inactiveFileBytes,
        pageFaults: of(stat, 'pgfault'),
        majorPageFaults: of(stat, 'pgmajfault'),
        failures: of(event, 'max'),
        oomKills: of(event, 'oom_kill'),
        limitBytes: parseLimit(limit),
        reservationBytes: parseLimit(high),
        swapLimitBytes: parseLimit(swapMax),
        pressure: memoryPressure === undefined ? undefined : parsePressure(memoryPressure),
      },
      io: {
        devices: parseIoStat(io ?? ''),
        pressure: ioPressure === undefined ? undefined : parsePressure(ioPressure),
      },
      processes: { current: parseCount(pids), max: parseLimit(pidsMax) },
    };
  }
}

type Controllers = Readonly<Record<'cpu' | 'cpuacct' | 'memory' | 'pids' | 'blkio', string>>;

class ControllerReader implements CgroupReader {
  readonly version = 1;
  readonly #roots: Controllers;

  constructor(roots: Controllers) {
    this.#roots = roots;
  }

  children(path: string): Promise<readonly string[]> {
    return listChildren(join(this.#roots.memory, path));
  }

  firstProcess(path: string): Promise<number | undefined> {
    return firstProcessIn(join(this.#roots.memory, path));
  }

  async read(path: string): Promise<CgroupUsage | undefined> {
    const at = (controller: keyof Controllers, file: string): Promise<string | undefined> =>
      text(join(this.#roots[controller], path, file));
    const [usage, memoryUsage] = await Promise.all([
      at('cpuacct', 'cpuacct.usage'),
      at('memory', 'memory.usage_in_bytes'),
    ]);
    if (usage === undefined && memoryUsage === undefined) return undefined;
    const [
      ticks,
      cpuStat,
      quota,
      period,
      shares,
      memoryStat,
      max,
      limit,
      softLimit,
      swapLimit,
      failures,
      kernel,
      oom,
      bytes,
      operations,
      pids,
      pidsMax,
    ] = await Promise.all([
      at('cpuacct', 'cpuacct.stat'),
      at('cpu', 'cpu.stat'),
      at('cpu', 'cpu.cfs_quota_us'),
      at('cpu', 'cpu.cfs_period_us'),
      at('cpu', 'cpu.shares'),
      at('memory', 'memory.stat'),
      at('memory', 'memory.max_usage_in_bytes'),
      at('memory', 'memory.limit_in_bytes'),
      at('memory', 'memory.soft_limit_in_bytes'),
      at('memory', 'memory.memsw.limit_in_bytes'),
      at('memory', 'memory.failcnt'),
      at('memory', 'memory.kmem.usage_in_bytes'),
      at('memory', 'memory.oom_control'),
      at('blkio', 'blkio.throttle.io_service_bytes'),
      at('blkio', 'blkio.throttle.io_serviced'),
      at('pids', 'pids.current'),
      at('pids', 'pids.max'),
    ]);
    const [cpuTicks, throttling, stat, oomControl] = [ticks, cpuStat, memoryStat, oom].map((file) =>
      parseFlatKeyed(file ?? ''),
    );
    const of = (map: ReadonlyMap<string, number> | undefined, key: string): number => map?.get(key) ?? 0;
    const usageBytes = parseCount(memoryUsage);
    const inactiveFileBytes = of(stat, 'total_inactive_file');
    // These files count in ticks of 10 ms.
    const tickNs = 10_000_000;
    return {
      cpu: {
        usageNs: parseCount(usage),
        userNs: of(cpuTicks, 'user') * tickNs,
        systemNs: of(cpuTicks, 'system') * tickNs,
        periods: of(throttling, 'nr_periods'),
        throttledPeriods: of(throttling, 'nr_throttled'),
        throttledNs: of(throttling, 'throttled_time'),
        burstPeriods: of(throttling, 'nr_bursts'),
        burstNs: of(throttling, 'burst_time'),
        quotaUs: parseLimit(quota) ?? 0,
        periodUs: parseCount(period),
        shares: parseCount(shares),
        pressure: undefined,
      },
      memory: {
        usageBytes,
        workingSetBytes: Math.max(0, usageBytes - inactiveFileBytes),
        rssBytes: of(stat, 'total_rss'),
        cacheBytes: of(stat, 'total_cache'),
        mappedBytes: of(stat, 'total_mapped_file'),
        swapBytes: of(stat, 'total_swap'),
        kernelBytes: parseCount(kernel),
        maxUsageBytes: parseCount(max),
        activeFileBytes: of(stat, 'total_active_file'),
        inactiveFileBytes,
        pageFaults: of(stat, 'total_pgfault'),
        majorPageFaults: of(stat, 'total_pgmajfault'),
        failures: parseCount(failures),
        oomKills: of(oomControl, 'oom_kill'),
        limitBytes: parseLimit(limit),
        reservationBytes: parseLimit(softLimit),
        swapLimitBytes: parseLimit(swapLimit),
        pressure: undefined,
      },
      io: { devices: parseBlkio(bytes ?? '', operations ?? ''), pressure: undefined },
      processes: { current: parseCount(pids), max: parseLimit(pidsMax) },
    };
  }
}
