/**
 * Reads the host's CPUs and memory once at start from sysfs (`Documentation/ABI/stable/sysfs-devices-system-cpu`, `-node`):
 * which threads share a core, a last-level cache, a NUMA node and a socket, how much memory and how many huge pages a NUMA
 * node has, and the distances between nodes.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type CpuSet, parseCpuSet } from '../cpu-set.ts';

/** The place of one CPU (hardware thread). */
export interface CpuInfo {
  readonly cpu: number;
  /** The core's lowest CPU id. It is unique on the host, unlike the kernel's core id. */
  readonly core: number;
  readonly socket: number;
  readonly numaNode: number;
  /** The lowest CPU id that shares the last-level cache; the socket if the kernel reports no such cache. */
  readonly uncoreCache: number;
}

/** A NUMA node with its memory. */
export interface NumaNode {
  readonly id: number;
  readonly memoryBytes: number;
  /** The number of pages by page size in bytes. */
  readonly hugePages: ReadonlyMap<number, number>;
  /** The distance to each node by node id; 10 is the node itself. */
  readonly distances: ReadonlyMap<number, number>;
}

/** The topology of the online CPUs. */
export interface HostTopology {
  readonly cpus: ReadonlyMap<number, CpuInfo>;
  /** The NUMA nodes, sorted by id. */
  readonly numaNodes: readonly NumaNode[];
}

interface TopologySource {
  /** The directory of the kernel's topology files, usually `/sys/devices/system`. */
  readonly root: string;
  /** The memory of the whole host, for kernels that report no NUMA nodes. */
  readonly memoryBytes: number;
}

function read(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch (error) {
    if (['ENOENT', 'ENOTDIR', 'EINVAL'].includes((error as NodeJS.ErrnoException).code ?? '')) return undefined;
    throw error;
  }
}

function list(path: string): string[] {
  try {
    return readdirSync(path);
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '')) return [];
    throw error;
  }
}

const lowest = (cpus: CpuSet, otherwise: number): number => (cpus.size === 0 ? otherwise : Math.min(...cpus));

/**
 * Reads the CPUs and NUMA nodes of the host. A host without NUMA nodes in sysfs has one node with all CPUs and `memoryBytes`.
 */
export function readHostTopology({ root, memoryBytes }: TopologySource): HostTopology {
  const numaNodes = list(join(root, 'node'))
    .map((name) => /^node(\d+)$/.exec(name)?.[1])
    .filter((id) => id !== undefined)
    .map((id) => readNumaNode(join(root, 'node', `node${id}`), Number(id), root))
    .sort((left, right) => left.id - right.id);
  const nodeOf = new Map<number, number>();
  for (const { id } of numaNodes)
    for (const cpu of parseCpuSet(read(join(root, 'node', `node${id}`, 'cpulist')) ?? '')) nodeOf.set(cpu, id);
  const online = parseCpuSet(read(join(root, 'cpu', 'online')) ?? '0');
  const cpus = new Map(
    [...online].map((cpu) => [cpu, readCpu(join(root, 'cpu', `cpu${cpu}`), cpu, nodeOf.get(cpu) ?? 0, online)]),
  );
  const wholeHost: NumaNode = {
    id: 0,
    memoryBytes,
    hugePages: hugePages(join(root, '..', '..', 'kernel', 'mm', 'hugepages')),
    distances: new Map([[0, 10]]),
  };
  return { cpus, numaNodes: numaNodes.length > 0 ? numaNodes : [wholeHost] };
}

function readCpu(directory: string, cpu: number, numaNode: number, online: CpuSet): CpuInfo {
  const topology = join(directory, 'topology');
  const threads = read(join(topology, 'core_cpus_list')) ?? read(join(topology, 'thread_siblings_list')) ?? String(cpu);
  const socket = Number(read(join(topology, 'physical_package_id')) ?? 0);
  return {
    cpu,
    core: lowest(parseCpuSet(threads).intersection(online), cpu),
    // Hosts that do not report a socket have -1.
    socket: Math.max(0, socket),
    numaNode,
    uncoreCache: lowest(lastLevelCache(join(directory, 'cache')).intersection(online), Math.max(0, socket)),
  };
}

/** Returns the CPUs that share the highest cache level from level 3 on, or an empty set if there is no such cache. */
function lastLevelCache(directory: string): CpuSet {
  let best: { readonly level: number; readonly cpus: CpuSet } = { level: 0, cpus: new Set() };
  for (const name of list(directory)) {
    if (!/^index\d+$/.test(name)) continue;
    const level = Number(read(join(directory, name, 'level')) ?? 0);
    const shared = read(join(directory, name, 'shared_cpu_list'));
    if (shared !== undefined && level >= 3 && level > best.level) best = { level, cpus: parseCpuSet(shared) };
  }
  return best.cpus;
}

function readNumaNode(directory: string, id: number, root: string): NumaNode {
  const total = /MemTotal:\s+(\d+) kB/.exec(read(join(directory, 'meminfo')) ?? '')?.[1] ?? '0';
  const present = list(join(root, 'node'))
    .map((name) => /^node(\d+)$/.exec(name)?.[1])
    .filter((text) => text !== undefined)
    .map(Number)
    .sort((left, right) => left - right);
  const distances = (read(join(directory, 'distance')) ?? '').split(/\s+/).filter((text) => text !== '');
  return {
    id,
    memoryBytes: Number(total) * 1024,
    hugePages: hugePages(join(directory, 'hugepages')),
    distances: new Map(distances.map((text, index) => [present[index] ?? index, Number(text)])),
  };
}

function hugePages(directory: string): ReadonlyMap<number, number> {
  const pages = new Map<number, number>();
  for (const name of list(directory)) {
    const kib = Number(/^hugepages-(\d+)kB$/.exec(name)?.[1] ?? 0);
    if (kib > 0) pages.set(kib * 1024, Number(read(join(directory, name, 'nr_hugepages')) ?? 0));
  }
  return new Map([...pages].sort(([left], [right]) => left - right));
}

/** Returns the name of a huge page resource, such as `hugepages-2Mi`. */
export function hugePageResource(pageBytes: number): string {
  const kib = pageBytes / 1024;
  if (kib % (1024 * 1024) === 0) return `hugepages-${kib / 1024 / 1024}Gi`;
  return kib % 1024 === 0 ? `hugepages-${kib / 1024}Mi` : `hugepages-${kib}Ki`;
}

/** Groups of CPUs by the hardware that they share. */
export class CpuTopology {
  readonly all: CpuSet;
  readonly sockets: readonly number[];
  readonly numaNodes: readonly number[];
  readonly cpusPerCore: number;
  readonly cpusPerUncoreCache: number;
  readonly #cpus: ReadonlyMap<number, CpuInfo>;

  constructor({ cpus }: Pick<HostTopology, 'cpus'>) {
    this.#cpus = cpus;
    this.all = new Set(cpus.keys());
    this.sockets = this.groups('socket', this.all);
    this.numaNodes = this.groups('numaNode', this.all);
    const per = (key: keyof CpuInfo): number =>
      Math.floor(this.all.size / Math.max(1, this.groups(key, this.all).length));
    this.cpusPerCore = Math.max(1, per('core'));
    this.cpusPerUncoreCache = Math.max(1, per('uncoreCache'));
  }

  info(cpu: number): CpuInfo | undefined {
    return this.#cpus.get(cpu);
  }

  /** Returns the sockets, nodes, caches or cores that contain one of the CPUs. */
  groups(key: keyof CpuInfo, cpus: CpuSet): number[] {
    const found = new Set<number>();
    for (const cpu of cpus) {
      const info = this.#cpus.get(cpu);
      if (info !== undefined) found.add(info[key]);
    }
    return [...found].sort((left, right) => left - right);
  }

  /** Returns the CPUs that belong to one of the groups. */
  cpusIn(key: keyof CpuInfo, groups: Iterable<number>, cpus: CpuSet = this.all): CpuSet {
    const wanted = new Set(groups);
    const found = new Set<number>();
    for (const cpu of cpus) {
      const info = this.#cpus.get(cpu);
      if (info !== undefined && wanted.has(info[key])) found.add(cpu);
    }
    return found;
  }
}
