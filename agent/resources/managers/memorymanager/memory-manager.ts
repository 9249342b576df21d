/**
 * Allocates memory of NUMA nodes to Guaranteed containers by its policy, and provides the NUMA nodes of each container to
 * the runtime. With the policy `None`, only the state file records the policy.
 */
import type { Logger } from '../../../../api/component/logger.ts';
import type { Clock } from '../../../../api/machinery/clock.ts';
import type { Container, Pod } from '../../../base/model/pod.ts';
import type { AffinityStore } from '../hint-provider.ts';
import { PolicyManager } from '../policy-manager.ts';
import type { NumaNode } from '../topology/host-topology.ts';
import { type MemoryBlock, MemoryState } from './memory-state.ts';
import { emptyMachineState, reservedMemory } from './reserved-memory.ts';
import { StaticMemoryPolicy } from './static-policy.ts';

/** The policy and what it depends on. */
export interface MemoryManagerOptions {
  readonly policy: 'None' | 'Static';
  readonly rootDirectory: string;
  readonly logger: Logger;
  readonly clock: Clock;
  readonly numaNodes: readonly NumaNode[];
  /** The value of `--reserved-memory`. */
  readonly reserved: string;
  /** The bytes that the node reserves, by resource. */
  readonly nodeReserved: Readonly<Record<string, number>>;
  readonly affinity: AffinityStore;
}

/** Owns the memory allocations of the node. */
export class MemoryManager extends PolicyManager<StaticMemoryPolicy, MemoryState> {
  private constructor(logger: Logger, state: MemoryState, policy: StaticMemoryPolicy | undefined) {
    super({ policy, state, logger, name: 'memory manager' });
  }

  /** Loads the state and creates the policy. Throws `StateError`. */
  static async start(options: MemoryManagerOptions): Promise<MemoryManager> {
    const { policy, rootDirectory, clock, logger, numaNodes, reserved, nodeReserved, affinity } = options;
    const isStatic = policy === 'Static';
    const empty = isStatic ? emptyMachineState(numaNodes, reservedMemory(reserved, numaNodes, nodeReserved)) : {};
    const state = await MemoryState.load({ directory: rootDirectory, policy, clock, logger });
    const manager = new MemoryManager(
      logger,
      state,
      isStatic ? new StaticMemoryPolicy({ state, affinity, empty }) : undefined,
    );
    await state.save();
    return manager;
  }

  wants(pod: Pod, container: Container): boolean {
    return Object.keys(this.policy?.wanted(pod, container) ?? {}).length > 0;
  }

  /** Returns the container's NUMA nodes for the runtime, such as `0,1`; empty if the policy sets none. */
  numaNodes(podUid: string, container: string): string {
    const nodes = new Set((this.state.blocks(podUid, container) ?? []).flatMap(({ numaAffinity }) => numaAffinity));
    return [...nodes].sort((left, right) => left - right).join(',');
  }

  blocks(podUid: string, container: string): readonly MemoryBlock[] {
    return this.state.blocks(podUid, container) ?? [];
  }

  allocatable(): readonly MemoryBlock[] {
    return this.policy?.allocatable() ?? [];
  }

  counts(): { readonly requests: number; readonly errors: number } {
    return this.allocationCounts();
  }
}
