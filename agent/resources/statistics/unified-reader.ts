/** Reads the usage of cgroups v2 (Linux: `Documentation/admin-guide/cgroup-v2.rst`). */
import { join } from 'node:path';
import { parseCount, parseFlatKeyed, parseIoStat, parseLimit, parsePressure, type Pressure } from './cgroup-files.ts';
import {
  type CgroupReader,
  type CgroupUsage,
  childCgroups,
  creationMs,
  processesOf,
  readCgroupFile,
  readCgroupFiles,
} from './cgroup-usage.ts';

const FILES = [
  ...['cpu.stat', 'cpu.weight', 'cpu.max', 'cpu.pressure'],
  ...['memory.stat', 'memory.current', 'memory.peak', 'memory.max', 'memory.high', 'memory.events', 'memory.pressure'],
  ...['memory.swap.current', 'memory.swap.max', 'io.stat', 'io.pressure', 'pids.current', 'pids.max'],
];

type Files = ReadonlyMap<string, string>;

/** The reader for cgroups v2. */
export class UnifiedReader implements CgroupReader {
  readonly version = 2;
  readonly #root: string;
  readonly #meminfoFile: string;

  constructor(root: string, meminfoFile: string) {
    this.#root = root;
    this.#meminfoFile = meminfoFile;
  }

  async #usedHostMemory(): Promise<number> {
    const meminfo = (await readCgroupFile(this.#meminfoFile)) ?? '';
    const bytesOf = (name: string): number =>
      Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(meminfo)?.[1] ?? 0) * 1024;
    return bytesOf('MemTotal') - bytesOf('MemFree');
  }

  children(path: string): Promise<readonly string[]> {
    return childCgroups(join(this.#root, path));
  }

  processes(path: string): Promise<readonly number[]> {
    return processesOf(join(this.#root, path));
  }

  createdAtMs(path: string): Promise<number | undefined> {
    return creationMs(join(this.#root, path), 'cgroup.events');
  }

  async read(path: string): Promise<CgroupUsage | undefined> {
    const files = await readCgroupFiles(FILES, (name) => join(this.#root, path, name));
    if (!files.has('cpu.stat') && !files.has('memory.stat')) return undefined;
    // The root cgroup has no memory.current, so its usage is all memory that is not free.
    const usageBytes = files.has('memory.current')
      ? parseCount(files.get('memory.current'))
      : await this.#usedHostMemory();
    return {
      cpu: cpuUsage(files),
      memory: memoryUsage(files, usageBytes),
      io: { devices: parseIoStat(files.get('io.stat') ?? ''), pressure: pressureOf(files, 'io') },
      processes: { current: parseCount(files.get('pids.current')), max: parseLimit(files.get('pids.max')) },
    };
  }
}

function cpuUsage(files: Files): CgroupUsage['cpu'] {
  const stat = parseFlatKeyed(files.get('cpu.stat') ?? '');
  const count = (key: string): number => stat.get(key) ?? 0;
  const weight = files.get('cpu.weight');
  const [quota = 'max', period = '100000'] = (files.get('cpu.max') ?? '').trim().split(' ');
  return {
    usageNs: count('usage_usec') * 1000,
    userNs: count('user_usec') * 1000,
    systemNs: count('system_usec') * 1000,
    periods: count('nr_periods'),
    throttledPeriods: count('nr_throttled'),
    throttledNs: count('throttled_usec') * 1000,
    burstPeriods: count('nr_bursts'),
    burstNs: count('burst_usec') * 1000,
    quotaUs: parseLimit(quota) ?? 0,
    periodUs: parseCount(period),
    shares: weight === undefined ? 0 : Math.round(2 + ((parseCount(weight) - 1) * 262_142) / 9999),
    pressure: pressureOf(files, 'cpu'),
  };
}

function memoryUsage(files: Files, usageBytes: number): CgroupUsage['memory'] {
  const stat = parseFlatKeyed(files.get('memory.stat') ?? '');
  const events = parseFlatKeyed(files.get('memory.events') ?? '');
  const count = (key: string): number => stat.get(key) ?? 0;
  const inactiveFileBytes = count('inactive_file');
  return {
    usageBytes,
    workingSetBytes: Math.max(0, usageBytes - inactiveFileBytes),
    rssBytes: count('anon'),
    cacheBytes: count('file'),
    mappedBytes: count('file_mapped'),
    swapBytes: parseCount(files.get('memory.swap.current')),
    kernelBytes: count('kernel'),
    maxUsageBytes: parseCount(files.get('memory.peak')),
    activeFileBytes: count('active_file'),
    inactiveFileBytes,
    pageFaults: count('pgfault'),
    majorPageFaults: count('pgmajfault'),
    failures: events.get('max') ?? 0,
    oomKills: events.get('oom_kill') ?? 0,
    limitBytes: parseLimit(files.get('memory.max')),
    reservationBytes: parseLimit(files.get('memory.high')),
    swapLimitBytes: parseLimit(files.get('memory.swap.max')),
    swapMaxBytes: parseLimit(files.get('memory.swap.max')),
    pressure: pressureOf(files, 'memory'),
  };
}

function pressureOf(files: Files, resource: 'cpu' | 'memory' | 'io'): Pressure | undefined {
  const text = files.get(`${resource}.pressure`);
  return text === undefined ? undefined : parsePressure(text);
}
