/** The managers of resources by the agent's options and gates: host topology in, one object for the core out. */
import { join } from 'node:path';
import type { MetricsRegistry } from '../../api/component/metrics.ts';
import type { Client } from '../../api/machinery/client.ts';
import { ConfigurationError } from '../model/configuration-error.ts';
import type { Container, Pod } from '../model/core-types.ts';
import type { EvictionSettings } from '../resources/eviction/eviction-manager.ts';
import { nodeReservations } from './node-protection.ts';
import { hostCapacity, maxPids } from '../host/host-facts.ts';
import { reservedFor } from '../node/status/reserved.ts';
import { servePodResources } from '../resources/podresources/pod-resources-server.ts';
import { StateError } from '../resources/managers/checkpoint-file.ts';
import { CpuManager, type RunningContainer } from '../resources/managers/cpumanager/cpu-manager.ts';
import { parseCpuSet } from '../resources/managers/cpu-set.ts';
import { ClaimManager } from '../resources/managers/dra/claim-manager.ts';
import { DeviceManager } from '../resources/managers/devicemanager/device-manager.ts';
import { serveRegistration } from '../resources/managers/devicemanager/registration-server.ts';
import { registerManagerMetrics } from '../resources/managers/manager-metrics.ts';
import { MemoryManager } from '../resources/managers/memorymanager/memory-manager.ts';
import {
  checkCpuOptionsFit,
  cpuPolicyOptions,
  PolicyOptionError,
  topologyPolicyOptions,
} from '../resources/managers/policy-options.ts';
import { ResourceManagers } from '../resources/managers/resource-managers.ts';
import { CpuTopology, type HostTopology, readHostTopology } from '../resources/managers/topology/host-topology.ts';
import type { TopologyPolicy } from '../resources/managers/topologymanager/hints.ts';
import { TopologyManager } from '../resources/managers/topologymanager/topology-manager.ts';
import type { LinuxResources, Runtime } from '../runtime/runtime.ts';
import type { Base, Closer } from './base.ts';

export interface ResourceManagerDeps {
  readonly runtime: Runtime;
  readonly metrics: MetricsRegistry;
  readonly client: Client | undefined;
  readonly settings: EvictionSettings;
  /** `undefined` as long as not all sources of pods have answered. */
  readonly activePods: () => readonly Pod[] | undefined;
  readonly podByName: (namespace: string, name: string) => Pod | undefined;
  readonly resourcesOf: (pod: Pod, container: Container) => LinuxResources;
  readonly onNodeChange: () => void;
  readonly onPodsChange: (uids: readonly string[]) => void;
  /** The host's, unless a test has another. */
  readonly topology?: HostTopology;
}

export interface AssembledResourceManagers {
  readonly managers: ResourceManagers;
  readonly devices: DeviceManager;
  readonly claims: ClaimManager;
}

/** Throws `ConfigurationError` where options, state and host do not go together. */
export async function createResourceManagers(
  base: Base,
  deps: ResourceManagerDeps,
  closers: Closer[],
): Promise<AssembledResourceManagers> {
  try {
    return await create(base, deps, closers);
  } catch (error) {
    if (error instanceof StateError || error instanceof PolicyOptionError)
      throw new ConfigurationError(error.message, { cause: error });
    throw error;
  }
}

async function create(base: Base, deps: ResourceManagerDeps, closers: Closer[]): Promise<AssembledResourceManagers> {
  const { flags, clock, logger, rootDirectory, signal } = base;
  const { gates } = base.effective;
  const host =
    deps.topology ?? readHostTopology({ root: '/sys/devices/system', memoryBytes: hostCapacity().memoryBytes });
  const figures = registerManagerMetrics(deps.metrics);
  const policy: TopologyPolicy = gates.enabled('TopologyManager')
    ? (flags.topologyManagerPolicy as TopologyPolicy)
    : 'none';
  const topology = new TopologyManager({
    policy,
    scope: flags.topologyManagerScope === 'pod' ? 'pod' : 'container',
    options: topologyPolicyOptions(flags.topologyManagerPolicyOptions, {
      alpha: gates.enabled('TopologyManagerPolicyAlphaOptions'),
      beta: gates.enabled('TopologyManagerPolicyBetaOptions'),
    }),
    numaNodes: host.numaNodes,
    clock,
    observe: (admission) => figures.admission(admission),
  });
  const devices = await DeviceManager.start({
    directory: join(rootDirectory, 'device-plugins'),
    clock,
    logger,
    numaNodes: host.numaNodes.map(({ id }) => id),
    affinity: topology,
    onNodeChange: deps.onNodeChange,
    onPodsChange: deps.onPodsChange,
    observe: (event, resource, tookMs) => figures.device(event, resource, tookMs),
  });
  const cpus = await createCpuManager(base, deps, host, topology, policy);
  const memory = await MemoryManager.start({
    policy: gates.enabled('MemoryManager') && flags.memoryManagerPolicy === 'Static' ? 'Static' : 'None',
    rootDirectory,
    logger,
    numaNodes: host.numaNodes,
    reserved: flags.reservedMemory,
    nodeReserved: nodeReservations(
      flags,
      deps.settings.thresholds,
    )({
      cpus: host.cpus.size,
      memoryBytes: hostCapacity().memoryBytes,
      storageBytes: 0,
      pids: maxPids(),
    }),
    affinity: topology,
  });
  const claims = await ClaimManager.start({
    rootDirectory,
    client: deps.client,
    clock,
    logger,
    observe: (operation, failed, tookMs) => figures.claim(operation, failed, tookMs),
  });
  figures.follow(cpus, memory, claims);
  const managers = new ResourceManagers({
    topology,
    cpus,
    memory,
    devices,
    claims,
    clock,
    logger,
    activePods: () => {
      const pods = deps.activePods();
      return pods === undefined ? undefined : new Set(pods.map(({ metadata }) => metadata.uid));
    },
    tellsHealth: gates.enabled('ResourceHealthStatus'),
  });
  if (gates.enabled('DevicePlugins')) {
    await devices.removeSockets();
    const directory = join(rootDirectory, 'device-plugins');
    closers.push(await serveRegistration({ directory, devices, logger, signal }));
  }
  if (gates.enabled('KubeletPodResources'))
    closers.push(
      await servePodResources({
        rootDirectory,
        clock,
        accounts: managers.accounts(),
        activePods: () => deps.activePods() ?? [],
        podByName: deps.podByName,
        observe: (endpoint, failed) => figures.podResources(endpoint, failed),
      }),
    );
  return { managers, devices, claims };
}

function createCpuManager(
  { flags, clock, logger, rootDirectory, effective: { gates } }: Base,
  deps: ResourceManagerDeps,
  host: HostTopology,
  affinity: TopologyManager,
  topologyPolicy: TopologyPolicy,
): Promise<CpuManager> {
  const topology = new CpuTopology(host);
  const reserved = reservedFor({ kube: flags.kubeReserved, system: flags.systemReserved, cpus: flags.reservedCpus });
  const options = cpuPolicyOptions(flags.cpuManagerPolicyOptions, {
    alpha: gates.enabled('CPUManagerPolicyAlphaOptions'),
    beta: gates.enabled('CPUManagerPolicyBetaOptions'),
  });
  checkCpuOptionsFit(options, {
    sockets: topology.sockets.length,
    numaNodes: topology.numaNodes.length,
    topologyPolicy,
  });
  return CpuManager.start({
    policy: gates.enabled('CPUManager') && flags.cpuManagerPolicy === 'static' ? 'static' : 'none',
    rootDirectory,
    clock,
    logger,
    topology,
    options,
    affinity,
    reservedCpus: parseCpuSet(flags.reservedCpus),
    // To a whole one, and what rounding of fractions leaves is nothing.
    reservedCount: Math.ceil(Math.round((reserved['cpu'] ?? 0) * 1000) / 1000),
    running: () => runningContainers(deps),
    reconcileMs: flags.cpuManagerReconcilePeriod,
  });
}

async function runningContainers(deps: ResourceManagerDeps): Promise<readonly RunningContainer[]> {
  const byUid = new Map((deps.activePods() ?? []).map((pod) => [pod.metadata.uid, pod]));
  const statuses = await deps.runtime.listContainers();
  return statuses.flatMap(({ id, name, state, labels, resources }) => {
    const pod = byUid.get(labels['io.kubernetes.pod.uid'] ?? '');
    const container = [...(pod?.spec.containers ?? []), ...(pod?.spec.initContainers ?? [])].find(
      (entry) => entry.name === name,
    );
    if (pod === undefined || container === undefined || state !== 'running') return [];
    return [
      {
        podUid: pod.metadata.uid,
        name,
        id,
        cpus: resources?.cpusetCpus,
        update: () => deps.runtime.updateResources(id, deps.resourcesOf(pod, container)),
      },
    ];
  });
}
