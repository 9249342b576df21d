/**
 * Reads the current usage of the node, its pods and their containers: from cgroup files, or from the runtime's statistics
 * where cgroup files are not accessible. A snapshot is taken on request and shared by all requests within a short time.
 */
import { runningContainers } from '../../runtime/kuberuntime/running-containers.ts';
import { readFile } from 'node:fs/promises';
import type { Clock } from '../../../api/machinery/clock.ts';
import { cgroupPath } from '../../host/cgroups/cgroup-path.ts';
import type { Pod } from '../../base/model/pod.ts';
import type { Runtime } from '../../runtime/runtime.ts';
import type { ContainerStats } from '../../runtime/runtime-stats.ts';
import { type InterfaceCounters, parseNetDev } from './cgroup-files.ts';
import type { CgroupReader, CgroupUsage } from './cgroup-usage.ts';
import { type CpuSample, nextCpuSample } from './cpu-rate.ts';
import { type ProcessUsage, processUsage } from './process-usage.ts';

/** The usage of one running container. */
export interface ContainerUsage {
  readonly name: string;
  /** The container id without the runtime's prefix. */
  readonly id: string;
  readonly image: string;
  readonly startedAtMs: number;
  /** Empty if the cgroup is not found. */
  readonly cgroup: string;
  readonly timeMs: number;
  readonly usage: CgroupUsage;
  readonly nanoCores: number | undefined;
}

/** The usage of one pod with running containers. */
export interface PodUsage {
  readonly pod: Pod;
  readonly cgroup: string;
  readonly timeMs: number;
  /** The usage of the pod's own cgroup, or the sum of its containers if the pod has none. */
  readonly usage: CgroupUsage;
  readonly nanoCores: number | undefined;
  readonly containers: readonly ContainerUsage[];
  /**
   * The interfaces of the pod's network namespace; empty on the host's network, and if no process of the first container is
   * found.
   */
  readonly interfaces: readonly InterfaceCounters[];
}

/** The usage of a cgroup that is neither a pod's nor a container's. */
export interface GroupUsage {
  readonly cgroup: string;
  readonly usage: CgroupUsage;
  readonly createdAtMs: number | undefined;
}

/** The usage of everything on the node at one time. */
export interface UsageSnapshot {
  readonly timeMs: number;
  readonly node: CgroupUsage;
  readonly nodeNanoCores: number | undefined;
  /** The usage of all pods together; `undefined` if they have no common cgroup or it cannot be read. */
  readonly allPods: (GroupUsage & { readonly nanoCores: number | undefined }) | undefined;
  /** The usage of the burstable and of the best-effort pods; empty if the agent manages no such cgroups. */
  readonly qosClasses: readonly GroupUsage[];
  readonly pods: readonly PodUsage[];
}

interface UsageOptions {
  readonly reader: CgroupReader;
  readonly runtime: Pick<Runtime, 'containerStats'>;
  readonly clock: Clock;
  /** The pods with their current statuses. */
  readonly pods: () => readonly Pod[];
  /** Returns the pod's cgroup as named by the pod cgroup manager; empty if the pod has none. */
  readonly cgroupParent: (pod: Pod) => string;
  /** The cgroup of all pods: `/kubepods`, `kubepods.slice`, or empty. */
  readonly allPodsCgroup: string;
  /** `/proc` by default. */
  readonly procDirectory?: string;
}

const FIRST_RATE_WAIT_MS = 1_000;
/** Matches the cgroup of a QoS class, such as `burstable`, or `kubepods-burstable.slice` with systemd. */
const QOS_CLASS = /(^|-)(burstable|besteffort)(\.slice)?$/;

/** Owns the last snapshot and the CPU times from which rates are computed. */
export class UsageCollector {
  readonly #options: UsageOptions;
  readonly #proc: string;
  #cpuSamples = new Map<string, CpuSample>();
  #cgroupPaths = new Map<string, string>();
  #lastSnapshot: { readonly atMs: number; readonly snapshot: Promise<UsageSnapshot> } | undefined;

  constructor(options: UsageOptions) {
    this.#options = options;
    this.#proc = options.procDirectory ?? '/proc';
  }

  get cgroupVersion(): 1 | 2 {
    return this.#options.reader.version;
  }

  /**
   * Returns a snapshot that is at most `maxAgeMs` old. With `rates`, waits for a second snapshot if there is no recent
   * one to compute rates from.
   */
  async snapshot(maxAgeMs: number, { rates = false }: { readonly rates?: boolean } = {}): Promise<UsageSnapshot> {
    const { clock } = this.#options;
    const found = await this.#recentSnapshot(maxAgeMs);
    const complete =
      found.nodeNanoCores !== undefined &&
      found.pods.every((pod) => pod.containers.every((container) => container.nanoCores !== undefined));
    if (!rates || complete) return found;
    await clock.sleep(FIRST_RATE_WAIT_MS);
    return this.#recentSnapshot(0);
  }

  /** Reads the usage of the node alone, from the root cgroup; all counters are 0 if it cannot be read. */
  async node(): Promise<CgroupUsage> {
    return (await this.#options.reader.read('/')) ?? NO_USAGE;
  }

  /** Counts the processes directly in each cgroup of the snapshot, by the path of the cgroup. */
  async processes({ allPods, qosClasses, pods }: UsageSnapshot): Promise<ReadonlyMap<string, ProcessUsage>> {
    const groups = [...(allPods === undefined ? [] : [allPods]), ...qosClasses, ...pods];
    const containers = pods.flatMap((pod) => pod.containers);
    const counted = new Map<string, ProcessUsage>();
    for (const cgroup of ['/', ...[...groups, ...containers].map((group) => group.cgroup)])
      if (cgroup !== '')
        counted.set(cgroup, await processUsage(await this.#options.reader.processes(cgroup), this.#proc));
    return counted;
  }

  /** Returns the usage of all pods together, by their common cgroup; `undefined` if they have none or it cannot be read. */
  async allPods(): Promise<CgroupUsage | undefined> {
    const { allPodsCgroup, reader } = this.#options;
    return allPodsCgroup === '' ? undefined : reader.read(cgroupPath(allPodsCgroup));
  }

  #recentSnapshot(maxAgeMs: number): Promise<UsageSnapshot> {
    const atMs = this.#options.clock.monotonic();
    if (this.#lastSnapshot !== undefined && atMs - this.#lastSnapshot.atMs <= maxAgeMs)
      return this.#lastSnapshot.snapshot;
    const snapshot = this.#takeSnapshot();
    const entry = { atMs, snapshot };
    this.#lastSnapshot = entry;
    // The caller gets the failure. The next call measures again.
    snapshot.catch(() => {
      if (this.#lastSnapshot === entry) this.#lastSnapshot = undefined;
    });
    return snapshot;
  }

  async #takeSnapshot(): Promise<UsageSnapshot> {
    const { clock, allPodsCgroup } = this.#options;
    const samples = new Map<string, CpuSample>();
    const paths = new Map<string, string>();
    const running = this.#options.pods().filter((pod) => runningContainers(pod).length > 0);
    const pods = await Promise.all(running.map((pod) => this.#podUsage(pod, samples, paths)));
    const node = await this.node();
    const all = allPodsCgroup === '' ? undefined : await this.#groupUsage(cgroupPath(allPodsCgroup));
    const snapshot: UsageSnapshot = {
      timeMs: clock.now(),
      node,
      nodeNanoCores: this.#rate('/', node, samples),
      allPods: all && { ...all, nanoCores: this.#rate(allPodsCgroup, all.usage, samples) },
      qosClasses: all === undefined ? [] : await this.#qosClasses(all.cgroup),
      pods,
    };
    this.#cpuSamples = samples;
    this.#cgroupPaths = paths;
    return snapshot;
  }

  async #groupUsage(cgroup: string): Promise<GroupUsage | undefined> {
    const { reader } = this.#options;
    const usage = await reader.read(cgroup);
    return usage && { cgroup, usage, createdAtMs: await reader.createdAtMs(cgroup) };
  }

  async #qosClasses(parent: string): Promise<readonly GroupUsage[]> {
    const names = (await this.#options.reader.children(parent)).filter((name) => QOS_CLASS.test(name));
    const groups = await Promise.all(names.map((name) => this.#groupUsage(`${parent}/${name}`)));
    return groups.filter((group) => group !== undefined);
  }

  async #podUsage(pod: Pod, samples: Map<string, CpuSample>, paths: Map<string, string>): Promise<PodUsage> {
    const { clock, reader, runtime } = this.#options;
    const parent = this.#options.cgroupParent(pod);
    const cgroup = parent === '' ? '' : cgroupPath(parent);
    const running = runningContainers(pod);
    const cgroups = await this.#locate(cgroup, running, paths);
    let runtimeStats: Promise<readonly ContainerStats[]> | undefined;
    const containers = await Promise.all(
      running.map(async (container): Promise<ContainerUsage | undefined> => {
        const containerCgroup = cgroups.get(container.id) ?? '';
        let usage = containerCgroup === '' ? undefined : await reader.read(containerCgroup);
        if (usage === undefined) {
          // Without statistics of the runtime, the container has no usage.
          runtimeStats ??= runtime.containerStats({ podUid: pod.metadata.uid }).catch(() => []);
          const stats = (await runtimeStats).find((entry) => entry.id === container.id);
          usage = stats === undefined ? undefined : usageFromRuntime(stats);
        }
        if (usage === undefined) return undefined;
        return {
          ...container,
          cgroup: containerCgroup,
          timeMs: clock.now(),
          usage,
          nanoCores: this.#rate(container.id, usage, samples),
        };
      }),
    );
    const present = containers.filter((container) => container !== undefined);
    const ofCgroup = cgroup === '' ? undefined : await reader.read(cgroup);
    const usage = ofCgroup ?? sumUsage(present.map((container) => container.usage));
    const [first] = present;
    return {
      pod,
      cgroup: ofCgroup === undefined ? '' : cgroup,
      timeMs: clock.now(),
      usage,
      nanoCores: this.#rate(pod.metadata.uid, usage, samples),
      containers: present,
      interfaces:
        pod.spec.hostNetwork === true || first === undefined || first.cgroup === ''
          ? []
          : await this.#interfaces(first.cgroup),
    };
  }

  /**
   * Finds the cgroups of containers, adds their paths to `paths` by container id, and returns `paths`. A container's cgroup is
   * a child of the pod's and is named after the container id, such as `docker-<id>.scope` with systemd.
   */
  async #locate(
    cgroup: string,
    containers: readonly { readonly id: string }[],
    paths: Map<string, string>,
  ): Promise<ReadonlyMap<string, string>> {
    const cachedPaths = containers.map((container) => this.#cgroupPaths.get(container.id));
    if (cgroup !== '' && cachedPaths.some((path) => path === undefined)) {
      for (const name of await this.#options.reader.children(cgroup)) {
        const unit = name.endsWith('.scope') ? name.slice(0, -'.scope'.length) : name;
        const id = unit.split(/[^0-9a-zA-Z_.]/).at(-1);
        const match = containers.find((container) => container.id === id || container.id === name);
        if (match !== undefined) paths.set(match.id, `${cgroup}/${name}`);
      }
    }
    containers.forEach((container, index) => {
      const path = cachedPaths[index];
      if (path !== undefined) paths.set(container.id, path);
    });
    return paths;
  }

  async #interfaces(cgroup: string): Promise<readonly InterfaceCounters[]> {
    const [pid] = await this.#options.reader.processes(cgroup);
    if (pid === undefined) return [];
    return interfacesOf(`${this.#proc}/${pid}/net/dev`);
  }

  #rate(key: string, { cpu }: CgroupUsage, samples: Map<string, CpuSample>): number | undefined {
    const sample = nextCpuSample(this.#cpuSamples.get(key), cpu.usageNs, this.#options.clock.monotonic());
    samples.set(key, sample);
    return sample.nanoCores;
  }
}

/** Reads the counters of a `net/dev` file. Returns none if the file cannot be read. */
export async function interfacesOf(path: string): Promise<readonly InterfaceCounters[]> {
  // A process that has exited has no interfaces.
  return parseNetDev(await readFile(path, 'utf8').catch(() => ''));
}

/** A usage whose counters are 0, without limits and pressure. */
export const NO_USAGE: CgroupUsage = {
  cpu: {
    usageNs: 0,
    userNs: 0,
    systemNs: 0,
    periods: 0,
    throttledPeriods: 0,
    throttledNs: 0,
    burstPeriods: 0,
    burstNs: 0,
    quotaUs: 0,
    periodUs: 0,
    shares: 0,
    pressure: undefined,
  },
  memory: {
    usageBytes: 0,
    workingSetBytes: 0,
    rssBytes: 0,
    cacheBytes: 0,
    mappedBytes: 0,
    swapBytes: 0,
    kernelBytes: 0,
    maxUsageBytes: 0,
    activeFileBytes: 0,
    inactiveFileBytes: 0,
    pageFaults: 0,
    majorPageFaults: 0,
    failures: 0,
    oomKills: 0,
    limitBytes: undefined,
    reservationBytes: undefined,
    swapLimitBytes: undefined,
    swapMaxBytes: undefined,
    pressure: undefined,
  },
  io: { devices: [], pressure: undefined },
  processes: { current: 0, max: undefined },
};

function usageFromRuntime(stats: ContainerStats): CgroupUsage {
  return {
    ...NO_USAGE,
    cpu: { ...NO_USAGE.cpu, usageNs: stats.cpuUsageCoreNs },
    memory: {
      ...NO_USAGE.memory,
      usageBytes: stats.memoryUsageBytes,
      workingSetBytes: stats.memoryWorkingSetBytes,
      rssBytes: stats.memoryRssBytes,
      pageFaults: stats.pageFaults,
      majorPageFaults: stats.majorPageFaults,
    },
  };
}

function sumUsage(parts: readonly CgroupUsage[]): CgroupUsage {
  const sum = (of: (usage: CgroupUsage) => number): number => parts.reduce((total, usage) => total + of(usage), 0);
  return {
    ...NO_USAGE,
    cpu: { ...NO_USAGE.cpu, usageNs: sum((usage) => usage.cpu.usageNs) },
    memory: {
      ...NO_USAGE.memory,
      usageBytes: sum((usage) => usage.memory.usageBytes),
      workingSetBytes: sum((usage) => usage.memory.workingSetBytes),
      rssBytes: sum((usage) => usage.memory.rssBytes),
      pageFaults: sum((usage) => usage.memory.pageFaults),
      majorPageFaults: sum((usage) => usage.memory.majorPageFaults),
    },
    processes: { current: sum((usage) => usage.processes.current), max: undefined },
  };
}
