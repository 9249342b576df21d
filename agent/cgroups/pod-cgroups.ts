/**
 * The pods' cgroups: `kubepods`, one below it a QoS class, one below that a pod, with shares, quota and memory of the whole
 * pod. Cgroup v1 (every mounted controller) and v2; names for the cgroupfs and the systemd driver.
 */
import { mkdir, readdir, readFile, rmdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../api/component/logger.ts';
import type { Pod } from '../core-types.ts';
import {
  bytesOf,
  cpuQuotaUs,
  cpuShares,
  limitsOf,
  milliOf,
  podResources,
  qosClass,
  requestsOf,
} from '../kuberuntime/resources.ts';

export interface PodCgroups {
  /** What the runtime takes as the sandbox's parent; '' where the agent keeps no hierarchy. */
  parent(pod: Pod): string;
  ensure(pod: Pod): Promise<void>;
  remove(pod: Pod): Promise<void>;
  /** Removes cgroups of pods that are not wanted: what stays empty, since another agent of this host may be making one. */
  cleanOrphans(wanted: ReadonlySet<string>): Promise<void>;
}

export interface CgroupOptions {
  readonly driver: 'cgroupfs' | 'systemd';
  /** `--cgroup-root`. */
  readonly root: string;
  /** `--cgroups-per-qos`. */
  readonly perQos: boolean;
  /** `/sys/fs/cgroup`, or a fixture. */
  readonly mountPoint: string;
  readonly podPidsLimit: number;
  readonly cpuQuota: boolean;
  readonly cpuPeriodUs: number;
  /** A container of the pod has processors of its own: the pod has no quota. */
  readonly hasExclusiveCpus?: (pod: Pod) => boolean;
  readonly logger: Logger;
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
];

const noPodCgroups: PodCgroups = {
  parent: () => '',
  ensure: () => Promise.resolve(),
  remove: () => Promise.resolve(),
  cleanOrphans: () => Promise.resolve(),
};

/** The parts of a pod's cgroup below the root: `kubepods`, `burstable`, `pod<uid>`. */
export function podCgroupParts(pod: Pod): readonly string[] {
  const qos = qosClass(pod);
  return ['kubepods', ...(qos === 'Guaranteed' ? [] : [qos.toLowerCase()]), `pod${pod.metadata.uid}`];
}

export function cgroupName(parts: readonly string[], options: Pick<CgroupOptions, 'driver' | 'root'>): string {
  const root = options.root.replaceAll(/^\/+|\/+$/g, '');
  if (options.driver === 'systemd') {
    const escaped = parts.map((part) => part.replaceAll('-', '_'));
    return `${[...root.split('/').filter((part) => part !== ''), ...escaped].join('-')}.slice`;
  }
  return `/${[...(root === '' ? [] : [root]), ...parts].join('/')}`;
}

export async function createPodCgroups(options: CgroupOptions): Promise<PodCgroups> {
  if (!options.perQos) return noPodCgroups;
  const entries: readonly string[] = await readdir(options.mountPoint).catch(() => []);
  const v2 = entries.includes('cgroup.controllers');
  const controllers = v2 ? [] : entries.filter((entry) => V1_CONTROLLERS.includes(entry));
  return new HostCgroups(options, v2, controllers);
}

class HostCgroups implements PodCgroups {
  readonly #options: CgroupOptions;
  readonly #v2: boolean;
  readonly #controllers: readonly string[];
  /** Cgroups that nobody wanted and nobody used at the last look. */
  #idle = new Set<string>();
  #warned = false;

  constructor(options: CgroupOptions, v2: boolean, controllers: readonly string[]) {
    this.#options = options;
    this.#v2 = v2;
    this.#controllers = controllers;
  }

  parent(pod: Pod): string {
    return cgroupName(podCgroupParts(pod), this.#options);
  }

  async ensure(pod: Pod): Promise<void> {
    // systemd makes slices when the first container starts; values below are set by the runtime for each container.
    if (this.#options.driver === 'systemd') return;
    try {
      if (this.#v2) await handDownControllers(this.#options.mountPoint, this.parent(pod));
      for (const [controller, file, value] of this.#values(pod)) {
        await mkdir(join(this.#options.mountPoint, controller, this.parent(pod)), { recursive: true });
        await this.#write(controller, this.parent(pod), file, value);
      }
    } catch (error) {
      if (this.#warned) return;
      this.#warned = true;
      this.#options.logger.warn(
        { error },
        'Pod cgroups cannot be written here: pods run without limits of their own, containers keep theirs',
      );
    }
  }

  async remove(pod: Pod): Promise<void> {
    if (this.#options.driver === 'systemd') return;
    for (const base of this.#bases()) await removeTree(join(base, this.parent(pod)));
  }

  async cleanOrphans(wanted: ReadonlySet<string>): Promise<void> {
    if (this.#options.driver === 'systemd') return;
    const idle = new Set<string>();
    for (const base of this.#bases()) {
      for (const parts of [['kubepods'], ['kubepods', 'burstable'], ['kubepods', 'besteffort']]) {
        const directory = join(base, cgroupName(parts, this.#options));
        for (const name of await readdir(directory).catch(() => [])) {
          const path = join(directory, name);
          if (!name.startsWith('pod') || wanted.has(name.slice(3)) || (await isUsed(path))) continue;
          if (this.#idle.has(path)) await removeTree(path);
          else idle.add(path);
        }
      }
    }
    this.#idle = idle;
  }

  #bases(): readonly string[] {
    const { mountPoint } = this.#options;
    return this.#v2 ? [mountPoint] : this.#controllers.map((controller) => join(mountPoint, controller));
  }

  #values(pod: Pod): readonly (readonly [controller: string, file: string, value: string])[] {
    const requests = podResources(pod, requestsOf);
    const limits = podResources(pod, limitsOf);
    const everyLimited = (name: string): boolean =>
      pod.spec.containers.every((container) => limitsOf(container)[name] !== undefined);
    const shares = cpuShares(milliOf(requests['cpu']));
    const quota =
      this.#options.cpuQuota && everyLimited('cpu') && this.#options.hasExclusiveCpus?.(pod) !== true
        ? cpuQuotaUs(milliOf(limits['cpu']), this.#options.cpuPeriodUs)
        : 0;
    const memory = everyLimited('memory') ? bytesOf(limits['memory']) : 0;
    const pids = this.#options.podPidsLimit;
    if (this.#v2) {
      const weight = Math.floor(1 + ((shares - 2) * 9999) / 262_142);
      return [
        ['', 'cpu.weight', String(weight)],
        ['', 'cpu.max', `${quota === 0 ? 'max' : quota} ${this.#options.cpuPeriodUs}`],
        ['', 'memory.max', memory === 0 ? 'max' : String(memory)],
        ...(pids > 0 ? [['', 'pids.max', String(pids)] as const] : []),
      ];
    }
    const cpu = this.#controllers.includes('cpu') ? 'cpu' : 'cpu,cpuacct';
    return [
      [cpu, 'cpu.shares', String(shares)],
      ...(quota === 0 ? [] : [[cpu, 'cpu.cfs_quota_us', String(quota)] as const]),
      ...(memory === 0 ? [] : [['memory', 'memory.limit_in_bytes', String(memory)] as const]),
      ...(pids > 0 ? [['pids', 'pids.max', String(pids)] as const] : []),
    ];
  }

  async #write(controller: string, parent: string, file: string, value: string): Promise<void> {
    const path = join(this.#options.mountPoint, controller, parent, file);
    if ((await readFile(path, 'utf8')).trim() !== value) await writeFile(path, value);
  }
}

/** What the agent and runtimes set of pods; others are left as they are. */
const V2_CONTROLLERS = ['cpu', 'cpuset', 'memory', 'pids', 'io', 'hugetlb'];

/**
 * On v2 a cgroup has only the controllers that all above it hand down: makes the cgroups of a path one after the other, and
 * has each hand down what it has. The last one's own children are the runtime's business.
 */
export async function handDownControllers(mountPoint: string, path: string): Promise<void> {
  let directory = mountPoint;
  for (const name of path.split('/').filter((part) => part !== '')) {
    const words = async (file: string): Promise<readonly string[]> =>
      (await readFile(join(directory, file), 'utf8').catch(() => '')).trim().split(/\s+/);
    const [has, down] = [await words('cgroup.controllers'), await words('cgroup.subtree_control')];
    const missing = V2_CONTROLLERS.filter((controller) => has.includes(controller) && !down.includes(controller));
    if (missing.length > 0)
      await writeFile(
        join(directory, 'cgroup.subtree_control'),
        missing.map((controller) => `+${controller}`).join(' '),
      );
    directory = join(directory, name);
    await mkdir(directory, { recursive: true });
  }
}

async function isUsed(directory: string): Promise<boolean> {
  const processes = await readFile(join(directory, 'cgroup.procs'), 'utf8').catch(() => '');
  if (processes.trim() !== '') return true;
  for (const entry of await readdir(directory, { withFileTypes: true }).catch(() => []))
    if (entry.isDirectory() && (await isUsed(join(directory, entry.name)))) return true;
  return false;
}

async function removeTree(directory: string): Promise<void> {
  const entries = await readdir(directory, { withFileTypes: true }).catch(() => []);
  for (const entry of entries) if (entry.isDirectory()) await removeTree(join(directory, entry.name));
  // What still has processes stays; housekeeping comes again.
  await rmdir(directory).catch(() => undefined);
}
