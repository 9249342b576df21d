/**
 * The managers of processors, memory, devices and topology, put together: one admission for all of them, one account of who
 * has what, one release. The core asks before a pod starts, the runtime's configuration asks at each start of a container.
 *
 * Pods are admitted one after the other: what one is given the next one cannot have.
 */
import type { Logger } from '../../api/component/logger.ts';
import { background } from '../../api/machinery/background.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { SerialQueue } from '../../api/machinery/serial-queue.ts';
import { WakeableLoop } from '../../api/machinery/wakeable-loop.ts';
import type { Container, Pod, PodStatus } from '../core-types.ts';
import type { ResourceAccounts } from '../podresources/pod-resources-server.ts';
import type { Refusal } from '../podworkers/pod-admission.ts';
import type { CpuManager } from './cpumanager/cpu-manager.ts';
import { sortedCpus } from './cpu-set.ts';
import type { ClaimManager } from './dra/claim-manager.ts';
import type { DeviceManager } from './devicemanager/device-manager.ts';
import type { DeviceCapacity } from './devicemanager/plugin-resources.ts';
import type { DeviceRunOptions } from './devicemanager/pod-devices.ts';
import { AdmissionError, resourceContainers } from './hint-provider.ts';
import type { MemoryManager } from './memorymanager/memory-manager.ts';
import type { TopologyManager } from './topologymanager/topology-manager.ts';

/** Where a container's processes may run. */
export interface ContainerPlacement {
  /** '' where nothing is to be said. */
  readonly cpus: string;
  readonly mems: string;
  /** The processors are its own: it is not held to a quota of them. */
  readonly isExclusive: boolean;
}

export interface ResourceManagersOptions {
  readonly topology: TopologyManager;
  readonly cpus: CpuManager;
  readonly memory: MemoryManager;
  readonly devices: DeviceManager;
  readonly claims: ClaimManager;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Uids of pods that may have something; `undefined` as long as not all sources of pods have answered. */
  readonly activePods: () => ReadonlySet<string> | undefined;
  /** Gate ResourceHealthStatus. */
  readonly tellsHealth: boolean;
}

const SWEEP_MS = 60_000;

export class ResourceManagers {
  readonly #options: ResourceManagersOptions;
  /** Admissions must not overlap: each must see what the one before it took. */
  readonly #admissions = new SerialQueue();
  /** Pods under admission are active, though no other part knows of them yet. */
  readonly #admitting = new Set<string>();

  constructor(options: ResourceManagersOptions) {
    this.#options = options;
    // Devices first: they are the scarcest.
    for (const provider of [options.devices, options.cpus, options.memory]) options.topology.addProvider(provider);
  }

  /** `undefined`: the pod asks for nothing that is given by account. Else resolves to why it is refused, if it is. */
  admit(pod: Pod): Promise<Refusal | undefined> | undefined {
    const { cpus, memory, devices } = this.#options;
    const wants = resourceContainers(pod).some((container) =>
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
      // A pod that ran before the agent's start keeps what it holds.
      holds = this.#holders().has(uid);
      await topology.admit(pod);
      return undefined;
    } catch (error) {
      if (!holds) topology.release(uid);
      if (error instanceof AdmissionError) return { reason: error.reason, message: error.message };
      logger.warn(
        { error, pod: pod.metadata.name, namespace: pod.metadata.namespace },
        'The resources of a pod cannot be given',
      );
      const why = error instanceof Error ? error.message : String(error);
      return { reason: 'UnexpectedAdmissionError', message: `Allocate failed due to ${why}, which is unexpected` };
    } finally {
      this.#admitting.delete(uid);
    }
  }

  /** The pod has ended: nothing of it runs. Idempotent. */
  release(podUid: string): void {
    this.#options.topology.release(podUid);
    background(this.#options.claims.release(podUid), {
      logger: this.#options.logger,
      what: 'Releasing the resource claims of a pod',
      fields: { podUid },
    });
  }

  placement(pod: Pod, container: Container): ContainerPlacement {
    const { cpus, memory } = this.#options;
    const { uid } = pod.metadata;
    return {
      cpus: cpus.cpus(uid, container.name),
      mems: memory.numaNodes(uid, container.name),
      isExclusive: cpus.hasExclusive(uid, container.name),
    };
  }

  hasExclusiveCpus(pod: Pod): boolean {
    return this.#options.cpus.hasExclusive(pod.metadata.uid);
  }

  /** What the pod's claims name, before its containers start; throws what keeps it from starting. */
  prepare(pod: Pod): Promise<void> {
    return this.#options.claims.prepare(pod);
  }

  async deviceOptions(pod: Pod, container: Container): Promise<DeviceRunOptions> {
    const run = await this.#options.devices.runOptions(pod, container);
    const claimed = this.#options.claims.cdiDevices(pod, container);
    return claimed.length === 0 ? run : { ...run, cdiDevices: [...new Set([...run.cdiDevices, ...claimed])] };
  }

  capacity(): DeviceCapacity {
    return this.#options.devices.capacity();
  }

  fillStatus(pod: Pod, status: PodStatus): void {
    if (this.#options.tellsHealth) this.#options.devices.fillStatus(pod, status);
  }

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

  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger, cpus } = this.#options;
    const sweeps = new WakeableLoop({
      clock,
      onError: (error) => logger.error({ err: error }, 'Resources of pods that are gone could not be released'),
    });
    const sweep = (): Promise<number> => {
      this.#sweep();
      return Promise.resolve(SWEEP_MS);
    };
    await Promise.all([cpus.run(signal), sweeps.run(signal, sweep)]);
  }

  /** Pods that have something. */
  #holders(): ReadonlySet<string> {
    const { cpus, memory, devices, claims } = this.#options;
    return new Set([...cpus.pods(), ...memory.pods(), ...devices.pods(), ...claims.pods()]);
  }

  /** Releases what pods hold that are gone without a release: they ended before a restart of the agent, for example. */
  #sweep(): void {
    const { activePods, logger } = this.#options;
    const active = activePods();
    if (active === undefined) return;
    for (const uid of this.#holders()) {
      if (active.has(uid) || this.#admitting.has(uid)) continue;
      logger.info({ podUid: uid }, 'Releasing the resources of a pod that is gone');
      this.release(uid);
    }
  }
}
