/**
 * Manages the cgroups of pods: `kubepods`, below it `burstable`, `besteffort` and the cgroups of Guaranteed pods, and below
 * those two the cgroups of the other pods. A pod's cgroup has the CPU, memory, process and huge page limits of the whole
 * pod.
 */
import { isDeepStrictEqual } from 'node:util';
import type { Pod } from '../../base/model/pod.ts';
import {
  areAllLimited,
  bytesOf,
  cpuQuotaUs,
  cpuShares,
  limitsOf,
  milliOf,
  pageSizeName,
  podResources,
  qosClass,
  requestsOf,
} from '../../runtime/kuberuntime/resources.ts';
import type { CgroupManager, CgroupResources } from './cgroup-resources.ts';

/** The cgroups of all pods of this node. Callers run one operation of a pod at a time. */
export interface PodCgroups {
  /** Returns the cgroup parent of the sandbox for the runtime; empty if the agent manages no cgroups of pods. */
  parent(pod: Pod): string;
  /**
   * Assumes that the cgroup of a running pod has the limits that follow from the pod's resources, for a pod of an earlier
   * process. Does nothing if this process has set the limits.
   */
  assume(pod: Pod): void;
  /** Creates or updates the cgroup. `keepRoom` raises limits and lowers none: containers have yet to shrink. */
  ensure(pod: Pod, options?: { readonly keepRoom: boolean }): Promise<void>;
  /** Whether the known limits of the cgroup differ from those that follow from the pod's resources. False if none are known. */
  isBehind(pod: Pod): boolean;
  /** The memory limit in bytes to which the next `ensure` lowers the cgroup; `undefined` if it does not lower it. */
  loweredMemory(pod: Pod): number | undefined;
  remove(pod: Pod): Promise<void>;
  /**
   * Removes cgroups of unwanted pods that were empty at the last call too, since another agent of this host may be creating
   * one. Resolves to whether there are some for the next call.
   */
  cleanOrphans(wanted: () => ReadonlySet<string>): Promise<boolean>;
}

interface PodCgroupOptions {
  readonly manager: CgroupManager;
  /** The value of `--cgroups-per-qos`. */
  readonly perQos: boolean;
  readonly podPidsLimit: number;
  readonly cpuQuota: boolean;
  readonly cpuPeriodUs: number;
  /** A container of the pod has exclusively allocated CPUs, so the pod has no quota. */
  readonly hasExclusiveCpus?: (pod: Pod) => boolean;
}

const noPodCgroups: PodCgroups = {
  parent: () => '',
  assume: () => undefined,
  ensure: () => Promise.resolve(),
  isBehind: () => false,
  loweredMemory: () => undefined,
  remove: () => Promise.resolve(),
  cleanOrphans: () => Promise.resolve(false),
};

const CLASSES = [['kubepods'], ['kubepods', 'burstable'], ['kubepods', 'besteffort']] as const;
const HUGE_PAGES = 'hugepages-';

/** Returns the parts of a pod's cgroup below the root: `kubepods`, `burstable`, `pod<uid>`. */
export function podCgroupParts(pod: Pod): readonly string[] {
  const qos = qosClass(pod);
  return ['kubepods', ...(qos === 'Guaranteed' ? [] : [qos.toLowerCase()]), `pod${pod.metadata.uid}`];
}

/** Creates the manager of the cgroups of pods. Without `--cgroups-per-qos` it manages nothing, and its `parent` is empty. */
export function createPodCgroups(options: PodCgroupOptions): PodCgroups {
  return options.perQos ? new ManagedPodCgroups(options) : noPodCgroups;
}

class ManagedPodCgroups implements PodCgroups {
  readonly #options: PodCgroupOptions;
  /** Cgroups of unwanted pods that were empty at the last call. */
  #idle = new Set<string>();
  /** The limits of each pod's cgroup, by the pod's uid. */
  readonly #applied = new Map<string, CgroupResources>();

  constructor(options: PodCgroupOptions) {
    this.#options = options;
  }

  parent(pod: Pod): string {
    return this.#options.manager.name(podCgroupParts(pod));
  }

  assume(pod: Pod): void {
    const { uid } = pod.metadata;
    if (!this.#applied.has(uid)) this.#applied.set(uid, this.#resources(pod));
  }

  async ensure(pod: Pod, { keepRoom } = { keepRoom: false }): Promise<void> {
    const before = this.#applied.get(pod.metadata.uid);
    const wanted = this.#resources(pod);
    const resources = keepRoom && before !== undefined ? widest(before, wanted) : wanted;
    await this.#options.manager.set(this.parent(pod), resources);
    this.#applied.set(pod.metadata.uid, resources);
  }

  isBehind(pod: Pod): boolean {
    const before = this.#applied.get(pod.metadata.uid);
    return before !== undefined && !isDeepStrictEqual(before, this.#resources(pod));
  }

  loweredMemory(pod: Pod): number | undefined {
    const before = this.#applied.get(pod.metadata.uid)?.memoryBytes;
    const wanted = this.#resources(pod).memoryBytes ?? 0;
    return before !== undefined && wanted > 0 && (before === 0 || wanted < before) ? wanted : undefined;
  }

  async remove(pod: Pod): Promise<void> {
    this.#applied.delete(pod.metadata.uid);
    await this.#options.manager.remove(this.parent(pod));
  }

  async cleanOrphans(wanted: () => ReadonlySet<string>): Promise<boolean> {
    const { manager } = this.#options;
    const idle = new Set<string>();
    for (const parts of CLASSES) {
      const ofPods = manager.name([...parts, 'pod']).replace(/\.slice$/, '');
      const found = await manager.children(manager.name(parts));
      const isWanted = (name: string): boolean =>
        [...wanted()].some((uid) => manager.name([...parts, `pod${uid}`]) === name);
      for (const name of found) {
        if (!name.startsWith(ofPods) || (await manager.isUsed(name)) || isWanted(name)) continue;
        if (this.#idle.has(name)) await manager.remove(name);
        else idle.add(name);
      }
    }
    this.#idle = idle;
    return idle.size > 0;
  }

  #resources(pod: Pod): CgroupResources {
    const { cpuQuota, cpuPeriodUs: periodUs, podPidsLimit, hasExclusiveCpus } = this.#options;
    const requests = podResources(pod, requestsOf);
    const limits = podResources(pod, limitsOf);
    const hasQuota = cpuQuota && areAllLimited(pod, 'cpu') && hasExclusiveCpus?.(pod) !== true;
    const pages = Object.entries(requests).filter(([name]) => name.startsWith(HUGE_PAGES));
    return {
      cpuShares: cpuShares(milliOf(requests['cpu'])),
      cpuQuota: { quotaUs: hasQuota ? cpuQuotaUs(milliOf(limits['cpu']), periodUs) : 0, periodUs },
      memoryBytes: areAllLimited(pod, 'memory') ? bytesOf(limits['memory']) : 0,
      ...(podPidsLimit > 0 ? { pids: podPidsLimit } : {}),
      ...(pages.length > 0
        ? {
            hugePages: Object.fromEntries(
              pages.map(([name, value]) => [pageSizeName(name.slice(HUGE_PAGES.length)), bytesOf(value)]),
            ),
          }
        : {}),
    };
  }
}

/** Returns the wanted limits with the larger shares, CPU quota and memory limit. 0 means no limit. */
function widest(before: CgroupResources, wanted: CgroupResources): CgroupResources {
  const limit = (a: number, b: number): number => (a === 0 || b === 0 ? 0 : Math.max(a, b));
  const { cpuQuota, memoryBytes, cpuShares: shares } = wanted;
  return {
    ...wanted,
    ...(shares === undefined ? {} : { cpuShares: Math.max(shares, before.cpuShares ?? 0) }),
    ...(cpuQuota === undefined
      ? {}
      : { cpuQuota: { ...cpuQuota, quotaUs: limit(cpuQuota.quotaUs, before.cpuQuota?.quotaUs ?? 0) } }),
    ...(memoryBytes === undefined ? {} : { memoryBytes: limit(memoryBytes, before.memoryBytes ?? 0) }),
  };
}
