/**
 * Writes the limits of cgroups v1 and v2 to the kernel's files. A value that is already set is not written again. A file that
 * cannot be written does not prevent the others. In v1, a cgroup is found and removed in every hierarchy.
 */
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rmdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../../api/component/logger.ts';
import { cgroupName, cgroupPath } from './cgroup-path.ts';
import { type CgroupManager, type CgroupResources, cpuWeight } from './cgroup-resources.ts';

interface CgroupMount {
  /** `/sys/fs/cgroup`, or a fixture. */
  readonly mountPoint: string;
  readonly version: 1 | 2;
  /** The mounted controllers of v1. */
  readonly controllers: readonly string[];
}

const V1_CONTROLLERS = [
  'cpu',
  'cpuacct',
  'cpu,cpuacct',
  'memory',
  'pids',
  'cpuset',
  'blkio',
  'devices',
  'freezer',
  'hugetlb',
  'perf_event',
  'net_cls',
  'net_cls,net_prio',
  'systemd',
  // The hierarchy of v2 beside those of v1: it has no controller, and runtimes create every cgroup there as well.
  'unified',
];

/**
 * Resolves to the version and, for v1, the mounted controllers. A mount point without files counts as v1 without controllers.
 */
export async function readCgroupMount(mountPoint: string): Promise<CgroupMount> {
  // If nothing is mounted there, there are no controllers.
  const entries: readonly string[] = await readdir(mountPoint).catch(() => []);
  if (entries.includes('cgroup.controllers')) return { mountPoint, version: 2, controllers: [] };
  return { mountPoint, version: 1, controllers: entries.filter((entry) => V1_CONTROLLERS.includes(entry)) };
}

type FileValue = readonly [controller: string, file: string, value: string];

/** The cgroup driver `cgroupfs`. Names are absolute paths below the mount point. */
export class FileCgroups implements CgroupManager {
  readonly #mount: CgroupMount;
  readonly #root: string;
  readonly #logger: Logger;
  #warned = false;

  constructor(mount: CgroupMount, options: { readonly root: string; readonly logger: Logger }) {
    this.#mount = mount;
    this.#root = options.root;
    this.#logger = options.logger;
  }

  name(parts: readonly string[]): string {
    return cgroupName(parts, { driver: 'cgroupfs', root: this.#root });
  }

  async set(name: string, resources: CgroupResources): Promise<void> {
    const { mountPoint, version } = this.#mount;
    const path = cgroupPath(name);
    if (version === 2) await handDownControllers(mountPoint, path).catch((error: unknown) => this.#warn(error));
    for (const value of this.#values(resources)) {
      await mkdir(join(mountPoint, value[0], path), { recursive: true })
        .then(() => this.#write(path, value))
        .catch((error: unknown) => this.#warn(error));
    }
  }

  async update(name: string, resources: CgroupResources): Promise<boolean> {
    const path = cgroupPath(name);
    if (!this.bases().some((base) => existsSync(join(base, path)))) return false;
    for (const value of this.#values(resources))
      await this.#write(path, value).catch((error: unknown) => this.#warn(error));
    return true;
  }

  async remove(name: string): Promise<void> {
    for (const base of this.bases()) await removeTree(join(base, cgroupPath(name)));
  }

  async children(name: string): Promise<readonly string[]> {
    const found = new Set<string>();
    for (const base of this.bases())
      // A cgroup that does not exist in this hierarchy has no entries.
      for (const entry of await readdir(join(base, cgroupPath(name)), { withFileTypes: true }).catch(() => []))
        if (entry.isDirectory()) found.add(`${cgroupPath(name)}/${entry.name}`);
    return [...found];
  }

  async isUsed(name: string): Promise<boolean> {
    for (const base of this.bases()) if (await hasProcesses(join(base, cgroupPath(name)))) return true;
    return false;
  }

  /** Returns the roots of all hierarchies. */
  bases(): readonly string[] {
    const { mountPoint, version, controllers } = this.#mount;
    return version === 2 ? [mountPoint] : controllers.map((controller) => join(mountPoint, controller));
  }

  #values(resources: CgroupResources): readonly FileValue[] {
    const { cpuShares: shares, cpuQuota, memoryBytes: memory, pids, hugePages = {} } = resources;
    const pages = Object.entries(hugePages);
    if (this.#mount.version === 2) {
      const max = (limit: number): string => (limit === 0 ? 'max' : String(limit));
      return [
        ...(shares === undefined ? [] : [['', 'cpu.weight', String(cpuWeight(shares))] as const]),
        ...(cpuQuota === undefined ? [] : [['', 'cpu.max', `${max(cpuQuota.quotaUs)} ${cpuQuota.periodUs}`] as const]),
        ...(memory === undefined ? [] : [['', 'memory.max', max(memory)] as const]),
        ...(pids === undefined ? [] : [['', 'pids.max', max(pids)] as const]),
        ...pages.map(([size, bytes]) => ['', `hugetlb.${size}.max`, String(bytes)] as const),
      ];
    }
    const cpu = this.#mount.controllers.includes('cpu') ? 'cpu' : 'cpu,cpuacct';
    return [
      ...(shares === undefined ? [] : [[cpu, 'cpu.shares', String(shares)] as const]),
      ...(cpuQuota === undefined || cpuQuota.quotaUs === 0
        ? []
        : [[cpu, 'cpu.cfs_period_us', String(cpuQuota.periodUs)] as const]),
      ...(cpuQuota === undefined ? [] : [[cpu, 'cpu.cfs_quota_us', String(cpuQuota.quotaUs || -1)] as const]),
      ...(memory === undefined ? [] : [['memory', 'memory.limit_in_bytes', String(memory || -1)] as const]),
      ...(pids === undefined ? [] : [['pids', 'pids.max', pids === 0 ? 'max' : String(pids)] as const]),
      ...pages.map(([size, bytes]) => ['hugetlb', `hugetlb.${size}.limit_in_bytes`, String(bytes)] as const),
    ];
  }

  async #write(path: string, [controller, file, value]: FileValue): Promise<void> {
    const target = join(this.#mount.mountPoint, controller, path, file);
    const current = (await readFile(target, 'utf8')).trim();
    // v1 reads "no limit" of memory as the largest number of whole pages.
    if (current !== value && !(value === '-1' && Number(current) > 2 ** 62)) await writeFile(target, value);
  }

  #warn(error: unknown): void {
    if (this.#warned) return;
    this.#warned = true;
    this.#logger.warn(
      { err: error },
      'Cannot write cgroups: pods, QoS classes and reservations have no limits as a whole; containers keep their limits',
    );
  }
}

/** The controllers that the agent and runtimes configure for pods. Others stay unchanged. */
const V2_CONTROLLERS = ['cpu', 'cpuset', 'memory', 'pids', 'io', 'hugetlb'];

/**
 * Creates the cgroups of a path one after another, and enables the controllers in every cgroup above the last. In version 2, a
 * cgroup has only the controllers that all cgroups above it enable. The last one gets no change: the runtime enables the
 * controllers of its children.
 */
export async function handDownControllers(mountPoint: string, path: string): Promise<void> {
  let directory = mountPoint;
  for (const name of path.split('/').filter((part) => part !== '')) {
    const words = async (file: string): Promise<readonly string[]> =>
      // A missing file lists no controllers.
      (await readFile(join(directory, file), 'utf8').catch(() => '')).trim().split(/\s+/);
    const [available, enabled] = [await words('cgroup.controllers'), await words('cgroup.subtree_control')];
    const missing = V2_CONTROLLERS.filter(
      (controller) => available.includes(controller) && !enabled.includes(controller),
    );
    if (missing.length > 0)
      await writeFile(
        join(directory, 'cgroup.subtree_control'),
        missing.map((controller) => `+${controller}`).join(' '),
      );
    directory = join(directory, name);
    await mkdir(directory, { recursive: true });
  }
}

async function hasProcesses(directory: string): Promise<boolean> {
  // A cgroup that is gone has no processes.
  const processes = await readFile(join(directory, 'cgroup.procs'), 'utf8').catch(() => '');
  if (processes.trim() !== '') return true;
  // A cgroup that is gone has no children.
  for (const entry of await readdir(directory, { withFileTypes: true }).catch(() => []))
    if (entry.isDirectory() && (await hasProcesses(join(directory, entry.name)))) return true;
  return false;
}

async function removeTree(directory: string): Promise<void> {
  // A cgroup that is gone has no children.
  const entries = await readdir(directory, { withFileTypes: true }).catch(() => []);
  for (const entry of entries) if (entry.isDirectory()) await removeTree(join(directory, entry.name));
  // A cgroup with processes stays, and housekeeping retries.
  await rmdir(directory).catch(() => undefined);
}
