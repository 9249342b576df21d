/**
 * Limits all pods together to the node's allocatable resources, and the cgroups of `--kube-reserved-cgroup` and
 * `--system-reserved-cgroup` to the reservations. Adjusts the shares of the QoS classes to the requests of their pods.
 */
import type { Logger } from '../../../api/component/logger.ts';
import type { Pod } from '../../base/model/pod.ts';
import { cpuShares, milliOf, podResources, qosClass, requestsOf } from '../../runtime/kuberuntime/resources.ts';
import type { CgroupManager, CgroupResources } from './cgroup-resources.ts';

/** Limits of one cgroup for all pods or for reserved processes. A value of 0 leaves the setting of the cgroup unchanged. */
export interface CgroupLimits {
  /** Thousandths of a CPU. */
  readonly milliCpu: number;
  readonly memoryBytes: number;
  readonly pids: number;
}

/** Writes the limits of `--enforce-node-allocatable`. Never throws: the cgroup manager logs what it cannot set. */
export class NodeAllocatable {
  readonly #manager: CgroupManager;
  readonly #logger: Logger;
  /** The missing cgroups that are already logged. */
  readonly #missing = new Set<string>();

  constructor({ manager, logger }: { readonly manager: CgroupManager; readonly logger: Logger }) {
    this.#manager = manager;
    this.#logger = logger;
  }

  /** The cgroup of all pods. */
  get podsCgroup(): string {
    return this.#manager.name(['kubepods']);
  }

  /** Limits all pods together by their common cgroup. */
  async enforcePods(limits: CgroupLimits): Promise<void> {
    await this.#manager.set(this.podsCgroup, resourcesOf(limits));
  }

  /**
   * Limits a cgroup of `--kube-reserved-cgroup` or `--system-reserved-cgroup`, which the administrator creates. Resolves to
   * whether it exists.
   */
  async enforce(name: string, limits: CgroupLimits): Promise<boolean> {
    if (await this.#manager.update(name, resourcesOf(limits))) return true;
    if (this.#missing.has(name)) return false;
    this.#missing.add(name);
    this.#logger.warn(
      { cgroup: name },
      'A reserved cgroup does not exist, so its reservation has no effect; create it before the agent starts',
    );
    return false;
  }

  /**
   * Sets the shares of the burstable class to the sum of its pods' requests, and those of the best-effort class to the minimum.
   */
  async updateQosShares(pods: readonly Pod[]): Promise<void> {
    const burstable = pods
      .filter((pod) => qosClass(pod) === 'Burstable')
      .reduce((sum, pod) => sum + milliOf(podResources(pod, requestsOf)['cpu']), 0);
    await this.#manager.set(this.#manager.name(['kubepods', 'burstable']), { cpuShares: cpuShares(burstable) });
    await this.#manager.set(this.#manager.name(['kubepods', 'besteffort']), { cpuShares: cpuShares(0) });
  }
}

function resourcesOf({ milliCpu, memoryBytes, pids }: CgroupLimits): CgroupResources {
  return {
    ...(milliCpu > 0 ? { cpuShares: cpuShares(milliCpu) } : {}),
    ...(memoryBytes > 0 ? { memoryBytes } : {}),
    ...(pids > 0 ? { pids } : {}),
  };
}
