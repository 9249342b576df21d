/**
 * Holds all pods together to what is allocatable, and, where they are named, the cgroups of the agent and the system to what
 * is reserved for them; keeps the shares of the QoS classes in step with what their pods request.
 */
import type { Logger } from '../../../api/component/logger.ts';
import type { Pod } from '../../model/core-types.ts';
import { cpuShares, milliOf, podResources, qosClass, requestsOf } from '../../runtime/kuberuntime/resources.ts';
import type { CgroupManager, CgroupResources } from './cgroup-resources.ts';

export interface CgroupLimits {
  /** 0: none. */
  readonly milliCpu: number;
  readonly memoryBytes: number;
  readonly pids: number;
}

export class NodeAllocatable {
  readonly #manager: CgroupManager;
  readonly #logger: Logger;
  /** Cgroups that are not there, each said once. */
  readonly #missing = new Set<string>();

  constructor({ manager, logger }: { readonly manager: CgroupManager; readonly logger: Logger }) {
    this.#manager = manager;
    this.#logger = logger;
  }

  /** The cgroup of all pods. */
  get podsCgroup(): string {
    return this.#manager.name(['kubepods']);
  }

  async enforcePods(limits: CgroupLimits): Promise<void> {
    await this.#manager.set(this.podsCgroup, resourcesOf(limits));
  }

  /** `--kube-reserved-cgroup`, `--system-reserved-cgroup`: whoever wants them held has made them. */
  async enforce(name: string, limits: CgroupLimits): Promise<void> {
    if ((await this.#manager.update(name, resourcesOf(limits))) || this.#missing.has(name)) return;
    this.#missing.add(name);
    this.#logger.warn(
      { cgroup: name },
      'There is no such cgroup: what is reserved for it is not held. Make it before the agent starts',
    );
  }

  /** Burstable pods have as much weight as they request together, those without requests the least. */
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
