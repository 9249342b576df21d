/**
 * Allocates CPUs to containers by its policy, provides each container's CPU set to the runtime, and updates running
 * containers when the shared pool changes. With the policy `none`, every container may use all CPUs, and only the state
 * file records the policy.
 */
import type { Logger } from '../../../../api/component/logger.ts';
import type { Clock } from '../../../../api/machinery/clock.ts';
import { WakeableLoop } from '../../../../api/machinery/wakeable-loop.ts';
import type { Container, Pod } from '../../../base/model/pod.ts';
import { type CpuSet, formatCpuSet, NO_CPUS, sortedCpus } from '../cpu-set.ts';
import { PolicyManager } from '../policy-manager.ts';
import type { CpuTopology } from '../topology/host-topology.ts';
import { CpuState } from './cpu-state.ts';
import { StaticCpuPolicy, type StaticCpuPolicyOptions } from './static-policy.ts';

/** The policy and what it depends on. `reconcileMs` is the interval at which running containers are checked. */
export interface CpuManagerOptions extends Omit<StaticCpuPolicyOptions, 'state'> {
  readonly policy: 'none' | 'static';
  readonly rootDirectory: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly reconcileMs: number;
}

/** Returns the running containers, each with a function that updates its CPU set in the runtime. */
export type RunningContainers = () => Promise<readonly RunningContainer[]>;

/** A container to which the runtime applies a CPU set. `update` sends the allocated one. */
export interface RunningContainer {
  readonly podUid: string;
  readonly name: string;
  readonly id: string;
  /** The CPU set that the runtime currently applies, if it reports it. */
  readonly cpus: string | undefined;
  update(): Promise<void>;
}

interface CpuCounts {
  readonly requests: number;
  readonly errors: number;
  readonly exclusive: number;
  readonly sharedMilli: number;
  /** The exclusive CPUs of each NUMA node; empty without the static policy. */
  readonly perNumaNode: ReadonlyMap<number, number>;
  /** Whether allocations are of whole cores only. Absent without the static policy. */
  readonly wholeCores: boolean | undefined;
  /** How often all CPUs of an allocation shared one cache. */
  readonly uncoreAligned: number;
}

/** Owns the CPU allocations of the node. */
export class CpuManager extends PolicyManager<StaticCpuPolicy, CpuState> {
  readonly #options: CpuManagerOptions;
  readonly #topology: CpuTopology;
  /** The CPU set that was last applied to a container, by container id. */
  readonly #applied = new Map<string, string>();
  readonly #loop: WakeableLoop;

  private constructor(options: CpuManagerOptions, state: CpuState) {
    const policy = options.policy === 'static' ? new StaticCpuPolicy({ ...options, state }) : undefined;
    super({ policy, state, logger: options.logger, name: 'CPU manager' });
    this.#options = options;
    this.#loop = new WakeableLoop({
      clock: options.clock,
      onError: (error) => options.logger.warn({ err: error }, 'Cannot reconcile the CPU sets of containers'),
    });
    this.#topology = options.topology;
  }

  /** Loads the state and creates the policy. Throws `StateError` or `PolicyOptionError`. */
  static async start(options: CpuManagerOptions): Promise<CpuManager> {
    const state = await CpuState.load({ ...options, directory: options.rootDirectory });
    const manager = new CpuManager(options, state);
    await state.save();
    return manager;
  }

  wants(pod: Pod, container: Container): boolean {
    return (this.policy?.exclusiveCount(pod, container) ?? 0) > 0;
  }

  /** Wakes the loop that writes the CPU sets of running containers, because the shared pool has changed. */
  protected override onChange(): void {
    this.#loop.wake();
  }

  /** Returns the container's CPU list for the runtime; empty if the policy sets none. */
  cpus(podUid: string, container: string): string {
    if (this.policy === undefined) return '';
    return formatCpuSet(this.state.exclusive(podUid, container) ?? this.state.shared);
  }

  /** Returns the exclusive CPUs in ascending order; empty for a container in the shared pool. */
  exclusiveCpus(podUid: string, container: string): readonly number[] {
    return sortedCpus(this.state.exclusive(podUid, container) ?? NO_CPUS);
  }

  hasExclusive(podUid: string, container?: string): boolean {
    const ofPod = this.state.ofPod(podUid);
    return container === undefined ? ofPod.size > 0 : ofPod.has(container);
  }

  /** Returns all CPUs that the static policy can allocate exclusively. */
  allocatable(): CpuSet {
    return this.#topology.all.difference(this.policy?.reserved ?? NO_CPUS);
  }

  counts(): CpuCounts {
    return {
      ...this.allocationCounts(),
      exclusive: this.state.allExclusive().size,
      sharedMilli: (this.policy?.available().size ?? 0) * 1000,
      perNumaNode: this.policy === undefined ? new Map() : this.#perNumaNode(),
      wholeCores: this.policy === undefined ? undefined : this.#options.options.fullPhysicalCpusOnly,
      uncoreAligned: this.policy?.uncoreAligned ?? 0,
    };
  }

  #perNumaNode(): ReadonlyMap<number, number> {
    const exclusive = this.state.allExclusive();
    const { numaNodes } = this.#topology;
    return new Map(numaNodes.map((node) => [node, this.#topology.cpusIn('numaNode', [node], exclusive).size]));
  }

  /**
   * Reconciles running containers at every period, and shortly after the shared pool has changed, until the signal aborts.
   * Returns at once without the static policy.
   */
  async run(running: RunningContainers, signal: AbortSignal): Promise<void> {
    if (this.policy === undefined) return;
    await this.#loop.run(signal, async () => {
      await this.reconcile(running);
      return this.#options.reconcileMs;
    });
  }

  /** Updates the running containers whose CPU set is not the allocated one. Logs failures and does not reject. */
  async reconcile(running: RunningContainers): Promise<void> {
    const { logger } = this.#options;
    let containers: readonly RunningContainer[];
    try {
      containers = await running();
    } catch (error) {
      logger.debug({ err: error }, 'Cannot read the CPU sets of containers');
      return;
    }
    const ids = new Set(containers.map(({ id }) => id));
    for (const id of this.#applied.keys()) if (!ids.has(id)) this.#applied.delete(id);
    for (const container of containers) {
      const wanted = this.cpus(container.podUid, container.name);
      const applied =
        container.cpus === undefined || container.cpus === '' ? this.#applied.get(container.id) : container.cpus;
      if (applied === wanted) continue;
      try {
        await container.update();
        this.#applied.set(container.id, wanted);
      } catch (error) {
        logger.warn(
          { err: error, container: container.name, podUid: container.podUid },
          'Cannot set the CPUs of a container, retrying',
        );
      }
    }
  }
}
