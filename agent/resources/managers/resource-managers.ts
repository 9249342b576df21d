/**
 * Combines the managers of CPUs, memory, devices, topology and resource claims: one admission, one view of all allocations,
 * one release.
 */
import type { Logger } from '../../../api/component/logger.ts';
import { initAndMainContainers } from '../../../api/kinds/pod-containers.ts';
import { background } from '../../../api/machinery/background.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { SerialQueue } from '../../../api/machinery/serial-queue.ts';
import { WakeableLoop } from '../../../api/machinery/wakeable-loop.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import type { Container, ContainerStatusJson, Pod } from '../../base/model/pod.ts';
import type { ResourceAccounts } from '../podresources/pod-resources-server.ts';
import type { Refusal } from '../../base/model/refusal.ts';
import type { CpuManager, RunningContainers } from './cpumanager/cpu-manager.ts';
import { sortedCpus } from './cpu-set.ts';
import type { ClaimManager } from './dra/claim-manager.ts';
import type { DeviceManager } from './devicemanager/device-manager.ts';
import type { DeviceCapacity } from './devicemanager/plugin-resources.ts';
import type { DeviceRunOptions } from '../../runtime/kuberuntime/device-options.ts';
import { AdmissionError } from './hint-provider.ts';
import type { MemoryManager } from './memorymanager/memory-manager.ts';
import type { TopologyManager } from './topologymanager/topology-manager.ts';

/** The CPUs and NUMA nodes on which a container's processes run. */
interface ContainerPlacement {
  /** A CPU list; empty if the cgroup is not restricted. */
  readonly cpus: string;
  readonly mems: string;
  /** The container has its CPUs exclusively and therefore needs no CPU quota. */
  readonly isExclusive: boolean;
}

interface ResourceManagersOptions {
  readonly topology: TopologyManager;
  readonly cpus: CpuManager;
  readonly memory: MemoryManager;
  readonly devices: DeviceManager;
  readonly claims: ClaimManager;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The uids of pods that may hold resources. `undefined` until all pod sources have reported. */
  readonly activePods: () => ReadonlySet<string> | undefined;
  /** The value of the ResourceHealthStatus feature gate. */
  readonly reportsHealth: boolean;
}

const SWEEP_MS = 60_000;

/** The managers as the rest of the agent uses them. */
export class ResourceManagers {
  readonly #options: ResourceManagersOptions;
  /** Serializes admissions, because each must see the allocations of the one before it. */
  readonly #admissions = new SerialQueue();
  /** The uids of pods under admission. They are active, although no other component knows them yet. */
  readonly #admitting = new Set<string>();

  constructor(options: ResourceManagersOptions) {
    this.#options = options;
    // Devices come first because they are the scarcest resource.
    for (const provider of [options.devices, options.cpus, options.memory]) options.topology.addProvider(provider);
  }

  /**
   * Returns `undefined` if the pod requests no resource that is allocated exclusively. Otherwise resolves to the reason
   * of the rejection, or to `undefined` if the pod is admitted.
   */
  admit(pod: Pod): Promise<Refusal | undefined> | undefined {
    const { cpus, memory, devices } = this.#options;
    const wants = initAndMainContainers(pod.spec).some((container) =>
      [cpus, memory, devices].some((manager) => manager.wants(pod, container)),
    );
    if (!wants) return undefined;
    this.#admitting.add(pod.metadata.uid);
    return this.#admissions.run(() => this.#admitNow(pod));
  }

  async #admitNow(pod: Pod): Promise<Refusal | undefined> {
    const { topology, logger } = this.#options;
    const { uid } = pod.metadata;
    let holds = true;
    try {
      this.#sweep();
      // A pod that ran before the agent restarted keeps its resources even if the admission fails.
      holds = this.#holders().has(uid);
      await topology.admit(pod);
      return undefined;
    } catch (error) {
      if (!holds) topology.release(uid);
      if (error instanceof AdmissionError) return { reason: error.reason, message: error.message };
      logger.warn(
        { err: error, pod: pod.metadata.name, namespace: pod.metadata.namespace },
        'Cannot allocate the resources of a pod',
      );
      const why = errorMessage(error);
      return { reason: 'UnexpectedAdmissionError', message: `Allocate failed due to ${why}, which is unexpected` };
    } finally {
      this.#admitting.delete(uid);
    }
  }

  /** Returns the number of devices by resource that pods have. */
  allocatedDevices(): ReadonlyMap<string, number> {
    return this.#options.devices.allocatedCounts();
  }

  /** Releases the resources of a terminated pod. Idempotent. */
  release(podUid: string): void {
    this.#options.topology.release(podUid);
    background(this.#options.claims.release(podUid), {
      logger: this.#options.logger,
      what: 'Releasing the resource claims of a pod',
      fields: { podUid },
    });
  }

  /** Returns the CPUs and NUMA nodes that a container may use. */
  placement(pod: Pod, container: Container): ContainerPlacement {
    const { cpus, memory } = this.#options;
    const { uid } = pod.metadata;
    return {
      cpus: cpus.cpus(uid, container.name),
      mems: memory.numaNodes(uid, container.name),
      isExclusive: cpus.hasExclusive(uid, container.name),
    };
  }

  /** Whether any container of the pod has exclusive CPUs. */
  hasExclusiveCpus(pod: Pod): boolean {
    return this.#options.cpus.hasExclusive(pod.metadata.uid);
  }

  /**
   * Prepares the devices of the pod's resource claims before its containers start. Throws the error that keeps the pod
   * from starting.
   */
  prepare(pod: Pod): Promise<void> {
    return this.#options.claims.prepare(pod);
  }

  /** Returns what the container needs for its devices of plugins and of claims. */
  async deviceOptions(pod: Pod, container: Container): Promise<DeviceRunOptions> {
    const run = await this.#options.devices.runOptions(pod, container);
    const claimed = this.#options.claims.cdiDevices(pod, container);
    return claimed.length === 0 ? run : { ...run, cdiDevices: [...new Set([...run.cdiDevices, ...claimed])] };
  }

  /** Returns the capacity of the resources of device plugins. */
  capacity(): DeviceCapacity {
    return this.#options.devices.capacity();
  }

  /** Returns the health of the devices of a container, or `undefined` if it has none or the health is not reported. */
  deviceHealth(pod: Pod, container: string): ContainerStatusJson['allocatedResourcesStatus'] {
    const { reportsHealth, devices, claims } = this.#options;
    if (!reportsHealth) return undefined;
    const ofPlugins = devices.deviceHealth(pod.metadata.uid, container);
    const ofClaims = claims.deviceHealth(pod, container);
    return ofPlugins === undefined ? ofClaims : [...ofPlugins, ...(ofClaims ?? [])];
  }

  /** Returns the view of what is allocated that the pod resources API serves. */
  accounts(): ResourceAccounts {
    const { cpus, memory, devices, claims } = this.#options;
    return {
      containerDevices: (uid, container) => devices.containerDevices(uid, container),
      allocatableDevices: () => devices.allocatableDevices(),
      exclusiveCpus: (uid, container) => cpus.exclusiveCpus(uid, container),
      allocatableCpus: () => (cpus.isStatic ? sortedCpus(cpus.allocatable()) : []),
      memoryBlocks: (uid, container) => memory.blocks(uid, container),
      allocatableMemory: () => memory.allocatable(),
      claimedDevices: (pod, container) => claims.claimed(pod, container),
    };
  }

  /** Keeps the CPU sets of running containers up to date, and releases the resources of pods that no longer exist. */
  async run(running: RunningContainers, signal: AbortSignal): Promise<void> {
    const { clock, logger, cpus } = this.#options;
    const sweeps = new WakeableLoop({
      clock,
      onError: (error) => logger.error({ err: error }, 'Cannot release the resources of pods that no longer exist'),
    });
    const sweep = (): Promise<number> => {
      this.#sweep();
      return Promise.resolve(SWEEP_MS);
    };
    await Promise.all([cpus.run(running, signal), sweeps.run(signal, sweep)]);
  }

  /** Returns the uids of pods that hold resources. */
  #holders(): ReadonlySet<string> {
    const { cpus, memory, devices, claims } = this.#options;
    return new Set([...cpus.pods(), ...memory.pods(), ...devices.pods(), ...claims.pods()]);
  }

  /**
   * Releases the resources of pods that no longer exist and were not released, for example because they terminated
   * while the agent did not run.
   */
  #sweep(): void {
    const { activePods, logger } = this.#options;
    const active = activePods();
    if (active === undefined) return;
    for (const uid of this.#holders()) {
      if (active.has(uid) || this.#admitting.has(uid)) continue;
      logger.info({ podUid: uid }, 'Releasing the resources of a pod that no longer exists');
      this.release(uid);
    }
  }
}
