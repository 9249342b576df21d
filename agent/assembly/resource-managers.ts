/** Creates the resource managers from the options, the feature gates and the topology of the host. */
import { join } from 'node:path';
import type { MetricsRegistry } from '../../api/component/metrics.ts';
import type { Client } from '../../api/client/client.ts';
import { ConfigurationError } from '../base/model/configuration-error.ts';
import type { Pod } from '../base/model/pod.ts';
import type { AgentFlags } from '../options/agent-options.ts';
import type { PodTable } from '../pods/pod-table.ts';
import type { EvictionSettings } from '../resources/eviction/thresholds.ts';
import { nodeReservations } from './node-reservations.ts';
import { hasUnifiedCgroups, hostCapacity, maxPids } from '../host/host-facts.ts';
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
import { draCallMetrics } from '../resources/statistics/driver-metrics.ts';
import { linuxResources, type ResourceFacts } from '../runtime/kuberuntime/resources.ts';
import type { Runtime } from '../runtime/runtime.ts';
import type { Base } from './base.ts';
import type { Part } from './lifecycle.ts';

interface ResourceManagerDeps {
  readonly runtime: Runtime;
  readonly metrics: MetricsRegistry;
  readonly client: Client | undefined;
  readonly settings: EvictionSettings;
  readonly table: Pick<PodTable, 'active' | 'byName' | 'sourcesReady'>;
  readonly onNodeChange: () => void;
  readonly onPodsChange: (uids: readonly string[]) => void;
  /** Replaces the topology of this host. */
  readonly topology?: HostTopology;
}

/** The managers of CPUs, memory, devices and claims, with their servers as one part. */
export interface AssembledResourceManagers extends Part {
  readonly managers: ResourceManagers;
  readonly devices: DeviceManager;
  readonly claims: ClaimManager;
  /** Returns what the limits of containers are computed from, besides their pods. */
  readonly containerResources: () => ResourceFacts;
}

type ManagerMetrics = ReturnType<typeof registerManagerMetrics>;

interface ServedManagers extends Pick<AssembledResourceManagers, 'managers' | 'devices'> {
  readonly metrics: ManagerMetrics;
}

/**
 * Creates the managers and starts their servers. Throws `ConfigurationError` if options, state and host do not fit together.
 */
export async function createResourceManagers(
  base: Base,
  deps: ResourceManagerDeps,
): Promise<AssembledResourceManagers> {
  try {
    return await create(base, deps);
  } catch (error) {
    if (error instanceof StateError || error instanceof PolicyOptionError)
      throw new ConfigurationError(error.message, { cause: error });
    throw error;
  }
}

async function create(base: Base, deps: ResourceManagerDeps): Promise<AssembledResourceManagers> {
  const { clock, logger, rootDirectory } = base;
  const { gates } = base.effective;
  const host =
    deps.topology ?? readHostTopology({ root: '/sys/devices/system', memoryBytes: hostCapacity().memoryBytes });
  const metrics = registerManagerMetrics(deps.metrics);
  const policy: TopologyPolicy = gates.enabled('TopologyManager')
    ? (base.flags.topologyManagerPolicy as TopologyPolicy)
    : 'none';
  const topology = createTopologyManager(base, host, policy, metrics);
  const devices = await DeviceManager.start({
    directory: join(rootDirectory, 'device-plugins'),
    clock,
    logger,
    numaNodes: host.numaNodes.map(({ id }) => id),
    affinity: topology,
    onNodeChange: deps.onNodeChange,
    onPodsChange: deps.onPodsChange,
    observe: (event, resource, tookMs) => metrics.device(event, resource, tookMs),
  });
  const cpus = await createCpuManager(base, host, topology, policy);
  const memory = await createMemoryManager(base, deps, host, topology);
  const claims = await ClaimManager.start({
    rootDirectory,
    client: deps.client,
    nodeName: base.nodeName,
    onPodsChange: deps.onPodsChange,
    clock,
    logger,
    observe: (operation, failed, tookMs) => metrics.claim(operation, failed, tookMs),
    observeCalls: draCallMetrics(deps.metrics, clock),
  });
  metrics.follow(cpus, memory, claims);
  const activePods = (): readonly Pod[] | undefined => (deps.table.sourcesReady() ? deps.table.active() : undefined);
  const managers = new ResourceManagers({
    topology,
    cpus,
    memory,
    devices,
    claims,
    clock,
    logger,
    activePods: () => {
      const pods = activePods();
      return pods === undefined ? undefined : new Set(pods.map(({ metadata }) => metadata.uid));
    },
    reportsHealth: gates.enabled('ResourceHealthStatus'),
  });
  const containerResources = resourceFacts(base, managers);
  const close = await serve(base, deps, { managers, devices, metrics });
  return {
    managers,
    devices,
    claims,
    containerResources,
    run: async (signal) => {
      const running = () => runningContainers(deps, activePods() ?? [], containerResources);
      await Promise.all([managers.run(running, signal), claims.run(signal)]);
    },
    close,
  };
}

/** Starts the servers of device plugins and of the PodResources API; the result closes them. */
async function serve(
  { rootDirectory, clock, logger, signal, effective: { gates } }: Base,
  { table }: ResourceManagerDeps,
  { managers, devices, metrics }: ServedManagers,
): Promise<() => Promise<void>> {
  const closers: (() => unknown)[] = [];
  const close = async (): Promise<void> => {
    for (const each of closers.toReversed()) await each();
  };
  try {
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
          activePods: () => (table.sourcesReady() ? table.active() : []),
          podByName: (namespace, name) => table.byName(namespace, name),
          observe: (endpoint, request) => metrics.podResources(endpoint, request),
        }),
      );
  } catch (error) {
    await close();
    throw error;
  }
  return close;
}

function createTopologyManager(
  { flags, clock, effective: { gates } }: Base,
  host: HostTopology,
  policy: TopologyPolicy,
  metrics: ManagerMetrics,
): TopologyManager {
  return new TopologyManager({
    policy,
    scope: flags.topologyManagerScope === 'pod' ? 'pod' : 'container',
    options: topologyPolicyOptions(flags.topologyManagerPolicyOptions, {
      alpha: gates.enabled('TopologyManagerPolicyAlphaOptions'),
      beta: gates.enabled('TopologyManagerPolicyBetaOptions'),
    }),
    numaNodes: host.numaNodes,
    clock,
    observe: (admission) => metrics.admission(admission),
    onAligned: (scope, isAligned) => metrics.aligned(scope, isAligned),
  });
}

function createMemoryManager(
  { flags, clock, logger, rootDirectory, effective: { gates } }: Base,
  { settings }: ResourceManagerDeps,
  host: HostTopology,
  affinity: TopologyManager,
): Promise<MemoryManager> {
  const capacity = {
    cpus: host.cpus.size,
    memoryBytes: hostCapacity().memoryBytes,
    storageBytes: 0,
    pids: maxPids(),
  };
  return MemoryManager.start({
    policy: gates.enabled('MemoryManager') && flags.memoryManagerPolicy === 'Static' ? 'Static' : 'None',
    rootDirectory,
    clock,
    logger,
    numaNodes: host.numaNodes,
    reserved: flags.reservedMemory,
    nodeReserved: nodeReservations(flags, settings.thresholds)(capacity),
    affinity,
  });
}

/** Returns the function that reports the capacity of the host, the settings of cgroups, and what the managers allocated. */
function resourceFacts({ flags }: Base, managers: ResourceManagers): () => ResourceFacts {
  const { memoryBytes, hugePages, swapBytes } = hostCapacity();
  const swap = hasUnifiedCgroups() ? { behavior: flags.memorySwapBehavior, capacityBytes: swapBytes } : undefined;
  return () => ({
    memoryCapacityBytes: memoryBytes,
    ...cpuQuota(flags),
    hugePageSizes: [...hugePages.keys()],
    swap,
    oomGroup: hasUnifiedCgroups() && !flags.singleProcessOomKill,
    placement: (pod, container) => managers.placement(pod, container),
  });
}

/** Returns the CFS quota of containers from `--cpu-cfs-quota` and `--cpu-cfs-quota-period`, whose value is in milliseconds. */
export function cpuQuota(flags: AgentFlags): { readonly cpuQuota: boolean; readonly cpuPeriodUs: number } {
  return { cpuQuota: flags.cpuCfsQuota, cpuPeriodUs: flags.cpuCfsQuotaPeriod * 1000 };
}

function createCpuManager(
  { flags, clock, logger, rootDirectory, effective: { gates } }: Base,
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
    // Rounds up to whole CPUs, but not because of a rounding error of the fractions.
    reservedCount: Math.ceil(Math.round((reserved['cpu'] ?? 0) * 1000) / 1000),
    reconcileMs: flags.cpuManagerReconcilePeriod,
  });
}

async function runningContainers(
  { runtime }: ResourceManagerDeps,
  activePods: readonly Pod[],
  facts: () => ResourceFacts,
): Promise<readonly RunningContainer[]> {
  const byUid = new Map(activePods.map((pod) => [pod.metadata.uid, pod]));
  const statuses = await runtime.listContainers();
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
        update: () => runtime.updateResources(id, linuxResources(pod, container, facts())),
      },
    ];
  });
}
