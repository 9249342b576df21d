/**
 * The pods' cgroups: `kubepods`, one below it a QoS class, one below that a pod, with shares, quota, memory, processes and huge
 * pages of the whole pod. How they are named and written is the cgroup manager's business.
 */
import type { Container, Pod } from '../../model/core-types.ts';
import {
  bytesOf,
  cpuQuotaUs,
  cpuShares,
  limitsOf,
  milliOf,
  pageSizeName,
  podLevel,
  podResources,
  qosClass,
  requestsOf,
} from '../../runtime/kuberuntime/resources.ts';
import type { CgroupManager, CgroupResources } from './cgroup-resources.ts';

export interface PodCgroups {
  /** What the runtime takes as the sandbox's parent; '' where the agent keeps no hierarchy. */
  parent(pod: Pod): string;
  ensure(pod: Pod): Promise<void>;
  remove(pod: Pod): Promise<void>;
  /**
   * Removes cgroups of pods that are not wanted once they are found: what stays empty, since another agent of this host may be
   * making one.
   */
  cleanOrphans(wanted: () => ReadonlySet<string>): Promise<void>;
}

export interface PodCgroupOptions {
  readonly manager: CgroupManager;
  /** `--cgroups-per-qos`. */
  readonly perQos: boolean;
  readonly podPidsLimit: number;
  readonly cpuQuota: boolean;
  readonly cpuPeriodUs: number;
  /** A container of the pod has processors of its own: the pod has no quota. */
  readonly hasExclusiveCpus?: (pod: Pod) => boolean;
}

export const noPodCgroups: PodCgroups = {
  parent: () => '',
  ensure: () => Promise.resolve(),
  remove: () => Promise.resolve(),
  cleanOrphans: () => Promise.resolve(),
};

const CLASSES = [['kubepods'], ['kubepods', 'burstable'], ['kubepods', 'besteffort']] as const;
const HUGE_PAGES = 'hugepages-';

/** The parts of a pod's cgroup below the root: `kubepods`, `burstable`, `pod<uid>`. */
export function podCgroupParts(pod: Pod): readonly string[] {
  const qos = qosClass(pod);
  return ['kubepods', ...(qos === 'Guaranteed' ? [] : [qos.toLowerCase()]), `pod${pod.metadata.uid}`];
}

const allOf = (pod: Pod): readonly Container[] => [...pod.spec.containers, ...(pod.spec.initContainers ?? [])];

export function createPodCgroups(options: PodCgroupOptions): PodCgroups {
  return options.perQos ? new ManagedPodCgroups(options) : noPodCgroups;
}

class ManagedPodCgroups implements PodCgroups {
  readonly #options: PodCgroupOptions;
  /** Cgroups that nobody wanted and nobody used at the last look. */
  #idle = new Set<string>();

  constructor(options: PodCgroupOptions) {
    this.#options = options;
  }

  parent(pod: Pod): string {
    return this.#options.manager.name(podCgroupParts(pod));
  }

  async ensure(pod: Pod): Promise<void> {
    await this.#options.manager.set(this.parent(pod), this.#resources(pod));
  }

  async remove(pod: Pod): Promise<void> {
    await this.#options.manager.remove(this.parent(pod));
  }

  async cleanOrphans(wanted: () => ReadonlySet<string>): Promise<void> {
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
  }

  #resources(pod: Pod): CgroupResources {
    const { cpuQuota, cpuPeriodUs: periodUs, podPidsLimit, hasExclusiveCpus } = this.#options;
    const requests = podResources(pod, requestsOf);
    const limits = podResources(pod, limitsOf);
    const everyLimited = (name: string): boolean =>
      milliOf(podLevel(pod, 'limits')[name]) > 0 ||
      allOf(pod).every((container) => milliOf(limitsOf(container)[name]) > 0);
    const isHeld = cpuQuota && everyLimited('cpu') && hasExclusiveCpus?.(pod) !== true;
    const pages = Object.entries(requests).filter(([name]) => name.startsWith(HUGE_PAGES));
    return {
      cpuShares: cpuShares(milliOf(requests['cpu'])),
      cpuQuota: { quotaUs: isHeld ? cpuQuotaUs(milliOf(limits['cpu']), periodUs) : 0, periodUs },
      memoryBytes: everyLimited('memory') ? bytesOf(limits['memory']) : 0,
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
