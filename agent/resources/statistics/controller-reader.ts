/** Reads the usage of cgroups v1, in which each controller has its own mount (Linux: `Documentation/admin-guide/cgroup-v1`). */
import { join } from 'node:path';
import { parseBlkio, parseCount, parseFlatKeyed, parseLimit } from './cgroup-files.ts';
import {
  type CgroupReader,
  type CgroupUsage,
  childCgroups,
  creationMs,
  processesOf,
  readCgroupFiles,
} from './cgroup-usage.ts';

/** The controllers, and the files that are read of each. */
const FILES = {
  cpu: ['cpu.stat', 'cpu.cfs_quota_us', 'cpu.cfs_period_us', 'cpu.shares'],
  cpuacct: ['cpuacct.usage', 'cpuacct.stat'],
  memory: [
    ...['memory.stat', 'memory.usage_in_bytes', 'memory.max_usage_in_bytes', 'memory.failcnt', 'memory.oom_control'],
    ...['memory.limit_in_bytes', 'memory.soft_limit_in_bytes', 'memory.memsw.limit_in_bytes'],
    'memory.kmem.usage_in_bytes',
  ],
  pids: ['pids.current', 'pids.max'],
  blkio: ['blkio.throttle.io_service_bytes', 'blkio.throttle.io_serviced'],
} as const;

/** The unit of `cpuacct.stat`: ticks of 10 ms. */
const TICK_NS = 10_000_000;

type Controllers = Readonly<Record<keyof typeof FILES, string>>;
type Files = ReadonlyMap<string, string>;

/** The reader for cgroups v1. */
export class ControllerReader implements CgroupReader {
  readonly version = 1;
  readonly #roots: Controllers;

  constructor(roots: Controllers) {
    this.#roots = roots;
  }

  children(path: string): Promise<readonly string[]> {
    return childCgroups(join(this.#roots.memory, path));
  }

  processes(path: string): Promise<readonly number[]> {
    return processesOf(join(this.#roots.memory, path));
  }

  createdAtMs(path: string): Promise<number | undefined> {
    return creationMs(join(this.#roots.memory, path), 'cgroup.clone_children');
  }

  async read(path: string): Promise<CgroupUsage | undefined> {
    const filesOf = (controller: keyof Controllers): Promise<Files> =>
      readCgroupFiles(FILES[controller], (name) => join(this.#roots[controller], path, name));
    const [cpu, cpuacct, memory, pids, blkio] = await Promise.all([
      filesOf('cpu'),
      filesOf('cpuacct'),
      filesOf('memory'),
      filesOf('pids'),
      filesOf('blkio'),
    ]);
    if (!cpuacct.has('cpuacct.usage') && !memory.has('memory.usage_in_bytes')) return undefined;
    const bytes = blkio.get('blkio.throttle.io_service_bytes') ?? '';
    const operations = blkio.get('blkio.throttle.io_serviced') ?? '';
    return {
      cpu: cpuUsage(cpu, cpuacct),
      memory: memoryUsage(memory),
      io: { devices: parseBlkio(bytes, operations), pressure: undefined },
      processes: { current: parseCount(pids.get('pids.current')), max: parseLimit(pids.get('pids.max')) },
    };
  }
}

function cpuUsage(cpu: Files, cpuacct: Files): CgroupUsage['cpu'] {
  const ticks = parseFlatKeyed(cpuacct.get('cpuacct.stat') ?? '');
  const stat = parseFlatKeyed(cpu.get('cpu.stat') ?? '');
  const count = (key: string): number => stat.get(key) ?? 0;
  return {
    usageNs: parseCount(cpuacct.get('cpuacct.usage')),
    userNs: (ticks.get('user') ?? 0) * TICK_NS,
    systemNs: (ticks.get('system') ?? 0) * TICK_NS,
    periods: count('nr_periods'),
    throttledPeriods: count('nr_throttled'),
    throttledNs: count('throttled_time'),
    burstPeriods: count('nr_bursts'),
    burstNs: count('burst_time'),
    quotaUs: parseLimit(cpu.get('cpu.cfs_quota_us')) ?? 0,
    periodUs: parseCount(cpu.get('cpu.cfs_period_us')),
    shares: parseCount(cpu.get('cpu.shares')),
    pressure: undefined,
  };
}

function memoryUsage(files: Files): CgroupUsage['memory'] {
  const stat = parseFlatKeyed(files.get('memory.stat') ?? '');
  const total = (key: string): number => stat.get(`total_${key}`) ?? 0;
  const usageBytes = parseCount(files.get('memory.usage_in_bytes'));
  const inactiveFileBytes = total('inactive_file');
  const limitBytes = parseLimit(files.get('memory.limit_in_bytes'));
  const swapLimitBytes = parseLimit(files.get('memory.memsw.limit_in_bytes'));
  return {
    usageBytes,
    workingSetBytes: Math.max(0, usageBytes - inactiveFileBytes),
    rssBytes: total('rss'),
    cacheBytes: total('cache'),
    mappedBytes: total('mapped_file'),
    swapBytes: total('swap'),
    kernelBytes: parseCount(files.get('memory.kmem.usage_in_bytes')),
    maxUsageBytes: parseCount(files.get('memory.max_usage_in_bytes')),
    activeFileBytes: total('active_file'),
    inactiveFileBytes,
    // The faults of the cgroup itself without its children, as cAdvisor reports them for both scopes.
    pageFaults: stat.get('pgfault') ?? 0,
    majorPageFaults: stat.get('pgmajfault') ?? 0,
    failures: parseCount(files.get('memory.failcnt')),
    oomKills: parseFlatKeyed(files.get('memory.oom_control') ?? '').get('oom_kill') ?? 0,
    limitBytes,
    reservationBytes: parseLimit(files.get('memory.soft_limit_in_bytes')),
    swapLimitBytes,
    swapMaxBytes:
      limitBytes === undefined || swapLimitBytes === undefined ? undefined : Math.max(0, swapLimitBytes - limitBytes),
    pressure: undefined,
  };
}
