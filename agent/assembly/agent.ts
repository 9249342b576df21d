/**
 * Puts the parts of the agent together. Each part gets the parts that it uses, so the order of the lines is the order of
 * dependencies: first what holds state and uses nothing, the server last.
 */
import { join, resolve } from 'node:path';
import type { MetricsRegistry } from '../../api/component/metrics.ts';
import type { Client } from '../../api/client/client.ts';
import { approximate, parseQuantity } from '../../api/meta/quantity.ts';
import { createCgroupManager } from '../host/cgroups/cgroup-manager.ts';
import type { CgroupManager } from '../host/cgroups/cgroup-resources.ts';
import { createPodCgroups, type PodCgroups } from '../host/cgroups/pod-cgroups.ts';
import type { NodeShutdown } from '../node/shutdown/node-shutdown.ts';
import type { NodeManager, NodeStatusSource } from '../node/status/node-manager.ts';
import { configz } from '../options/config/configz.ts';
import { flagz } from '../options/config/flagz.ts';
import type { PodTable } from '../pods/pod-table.ts';
import { createPodKiller } from '../pods/workers/kill-pod.ts';
import type { EvictionSettings } from '../resources/eviction/thresholds.ts';
import { NodePressure } from '../resources/eviction/node-pressure.ts';
import { csiCallMetrics, pluginMetrics } from '../resources/statistics/driver-metrics.ts';
import { createHttpObserver } from '../resources/statistics/http-metrics.ts';
import { measuredCgroups, nodeStartMetrics, podMetrics } from '../pods/metrics/state-metrics.ts';
import { volumeMetrics } from '../volumes/volume-metrics.ts';
import { LogRotation } from '../runtime/logs/log-rotation.ts';
import type { Runtime } from '../runtime/runtime.ts';
import { type PodHost, createPodHost } from '../server/pod-host.ts';
import type { AgentServer } from '../server/server.ts';
import { type PodConfig, createPodConfig } from '../sources/pod-config.ts';
import type { StaticObjects } from '../sources/static-objects.ts';
import type { SubmittedPods } from '../sources/submitted-source.ts';
import { PluginManager } from '../volumes/plugins/plugin-manager.ts';
import { assembleServer } from './agent-server.ts';
import type { ApiClients } from './api-clients.ts';
import type { Base } from './base.ts';
import { type Checkpoints, createCheckpoints, restoreNode } from './checkpoints.ts';
import { clusterServices } from './cluster-services.ts';
import { credentialProviders } from './credentials.ts';
import { type AgentEvents, createEvents } from './events.ts';
import { createImages, type Images } from './images.ts';
import type { Lifecycle } from './lifecycle.ts';
import { hostListeners } from './host-listeners.ts';
import { createNetworkPolicies } from './network-policies.ts';
import { createNode } from './node.ts';
import { evictionSettings } from './node-reservations.ts';
import { createNodeShutdown } from './node-shutdown.ts';
import { passPodCidrs } from './pod-cidrs.ts';
import { createPodAddresses } from './pod-addresses.ts';
import { createPodNetwork, type NodePodNetwork } from './pod-network.ts';
import { createPods, type Pods } from './pods.ts';
import { podSources } from './pod-sources.ts';
import { createPodState, type PodState } from './pod-state.ts';
import { createEviction, createUsage, type Eviction, registerPodMetrics, type Usage } from './protection.ts';
import type { AgentRegistries } from './registries.ts';
import { type AssembledResourceManagers, cpuQuota, createResourceManagers } from './resource-managers.ts';
import { createLocalVolumes, createVolumes, type AgentVolumes } from './volumes.ts';

/**
 * The connections to the outside, which are created before all other parts: the container runtime, the API server, the metrics.
 */
interface Outside {
  readonly version: string;
  readonly runtime: Runtime;
  readonly api: ApiClients | undefined;
  readonly registries: AgentRegistries;
}

interface AssembledAgent {
  readonly table: PodTable;
  readonly host: PodHost;
  readonly status: NodeStatusSource;
  readonly server: AgentServer;
  readonly shutdown: NodeShutdown;
}

/** Builds all parts and adds them to the lifecycle, which the caller starts. */
export async function assembleAgent(base: Base, outside: Outside, lifecycle: Lifecycle): Promise<AssembledAgent> {
  const nodeParts = await createNodeParts(base, outside, lifecycle);
  const stateParts = createStateParts(base, outside, nodeParts);
  const resourceParts = await createResourceParts(base, { ...outside, ...nodeParts, ...stateParts }, lifecycle);
  const podParts = await createPodParts(base, outside, { ...nodeParts, ...stateParts, ...resourceParts }, lifecycle);
  const { node } = nodeParts;
  const { submitted, state } = stateParts;
  const { pods, shutdown, eviction } = podParts;
  const { runtime, registries } = outside;
  const host = createPodHost({
    ...{ runtime, table: state.table, pleg: pods.pleg, clock: base.clock },
    devicePluginSocket: base.effective.gates.enabled('DevicePlugins')
      ? join(base.rootDirectory, 'device-plugins/kubelet.sock')
      : undefined,
  });
  const cgroupDriver = await runtime.cgroupDriver();
  const detected = cgroupDriver === undefined ? {} : { cgroupDriver };
  const localVolumes = createLocalVolumes(base);
  lifecycle.add(localVolumes);
  const server = await assembleServer({
    ...base,
    localVolumes,
    certificateDirectory: resolve(base.flags.certDir),
    api: outside.api,
    host,
    hostIps: () => node.hostIps(),
    submitted,
    statistics: resourceParts.usage.statistics,
    explainEviction: (supposed) => eviction.explain(supposed),
    observe: createHttpObserver(registries.agent, base.clock),
    registries,
    onServingKeyChange: () => node.changed(),
    config: () => configz(base.effective, detected),
    flagz: () => flagz(base.effective),
    gates: base.effective.gates,
    version: outside.version,
    runtime,
    random: Math.random,
  });
  const { enableServer } = base.flags;
  const status = nodeStatus(
    { ...podParts, ...resourceParts },
    {
      serverPort: () => (enableServer ? server.port : base.flags.port),
      servingKeys: () => (enableServer ? [server.servingKey()] : []),
    },
  );
  lifecycle.add({ run: (signal) => node.run(status, signal) });
  lifecycle.add(server);
  await pods.runtimeState.check();
  await node.prepare(status);
  return { table: state.table, host, status, server, shutdown };
}

/** The node and the events about it. */
interface NodeParts {
  readonly settings: EvictionSettings;
  readonly events: AgentEvents;
  readonly node: NodeManager;
  readonly checkpoints: Checkpoints | undefined;
  /** Reads what pods need. Stores it, so that they can start while the API server is not available. */
  readonly podClient: Client | undefined;
}

async function createNodeParts(
  base: Base,
  { version, runtime, api, registries }: Outside,
  lifecycle: Lifecycle,
): Promise<NodeParts> {
  const settings = evictionSettings(base.flags);
  const events = createEvents(base, api?.events);
  const onStep = nodeStartMetrics(registries.agent, base.clock);
  const checkpoints = createCheckpoints(base, api?.client);
  const node = createNode(base, {
    ...{ version, runtime, client: api?.heartbeats, settings, events, onStep },
    onRead: (read) => checkpoints?.pods.saveNode(read),
  });
  if (checkpoints !== undefined) lifecycle.add(checkpoints);
  await restoreNode(node, checkpoints);
  return { settings, events, node, checkpoints, podClient: checkpoints?.client ?? api?.client };
}

/** The desired pods, their workers and statuses. */
interface StateParts {
  readonly podConfig: PodConfig;
  readonly submitted: SubmittedPods | undefined;
  readonly statics: StaticObjects;
  readonly state: PodState;
  readonly podMetrics: ReturnType<typeof podMetrics>;
}

function createStateParts(
  base: Base,
  { api, registries }: Outside,
  { events, node, checkpoints }: NodeParts,
): StateParts {
  const client = api?.client;
  const { sources, submitted, statics } = podSources(base, client, checkpoints?.pods, {
    onBadManifest: (_file, message) => events.nodeEvent(node.node(), 'FailedManifest', message),
    nodeSynced: () => node.synced(),
  });
  const podConfig = createPodConfig({ sources, clock: base.clock, logger: base.logger });
  const metrics = podMetrics(registries.agent, base.clock);
  const state = createPodState(base, { client, podConfig, onStatusSent: (tookMs) => metrics.statusSent(tookMs) });
  return { podConfig, submitted, statics, state, podMetrics: metrics };
}

/** The parts that pods use: volumes, resources of the host, images. */
interface ResourceParts {
  readonly volumes: AgentVolumes;
  readonly resources: AssembledResourceManagers;
  readonly cgroups: PodCgroups;
  readonly usage: Usage;
  readonly images: Images;
}

async function createResourceParts(
  base: Base,
  parts: Outside & NodeParts & StateParts,
  lifecycle: Lifecycle,
): Promise<ResourceParts> {
  const { runtime, api, registries, settings, events, node, podClient, statics } = parts;
  const { table, workers } = parts.state;
  const client = api?.client;
  const metrics = registries.agent;
  const wake = (uids: Iterable<string>): void => {
    for (const uid of uids) workers.wake(uid);
  };
  const volumes = lifecycle.add(
    await createVolumes(base, {
      ...{ client, podClient, statics, node, events },
      observe: volumeMetrics(metrics),
      observeCsi: csiCallMetrics(metrics, base.clock),
      onObjectsChange: wake,
    }),
  );
  const resources = lifecycle.add(
    await createResourceManagers(base, {
      ...{ runtime, metrics, client, settings, table },
      onNodeChange: () => node.changed(),
      onPodsChange: wake,
    }),
  );
  const { cgroupManager, cgroups } = await createCgroups(base, { runtime, metrics, resources });
  const usage = lifecycle.add(
    await createUsage(base, {
      ...{ registries, runtime, cgroups, cgroupManager, table, events, node },
      volumes: volumes.manager,
    }),
  );
  const providers = await credentialProviders(base, podClient, volumes.tokens, metrics);
  const images = lifecycle.add(
    await createImages(base, {
      ...{ runtime, events, node, providers, metrics, startups: parts.podMetrics.startups },
      objects: volumes.objects,
      storage: usage.storage,
    }),
  );
  lifecycle.add(createLogRotation(base, runtime));
  lifecycle.add(createPlugins(base, metrics, volumes, resources));
  return { volumes, resources, cgroups, usage, images };
}

async function createCgroups(
  { flags, clock, logger }: Base,
  {
    runtime,
    metrics,
    resources: { managers },
  }: { readonly runtime: Runtime; readonly metrics: MetricsRegistry; readonly resources: AssembledResourceManagers },
): Promise<{ readonly cgroupManager: CgroupManager; readonly cgroups: PodCgroups }> {
  const cgroupManager = await createCgroupManager({
    driver: (await runtime.cgroupDriver()) ?? (flags.cgroupDriver === 'systemd' ? 'systemd' : 'cgroupfs'),
    root: flags.cgroupRoot,
    mountPoint: '/sys/fs/cgroup',
    logger,
  });
  const cgroups = createPodCgroups({
    manager: cgroupManager,
    hasExclusiveCpus: (pod) => managers.hasExclusiveCpus(pod),
    perQos: flags.cgroupsPerQos,
    podPidsLimit: flags.podPidsLimit,
    ...cpuQuota(flags),
  });
  return { cgroupManager, cgroups: measuredCgroups(cgroups, metrics, clock) };
}

function createLogRotation({ flags, clock, logger }: Base, runtime: Runtime): LogRotation {
  return new LogRotation({
    runtime,
    clock,
    logger,
    maxSizeBytes: approximate(parseQuantity(flags.containerLogMaxSize)),
    maxFiles: flags.containerLogMaxFiles,
    checkMs: flags.containerLogMonitorInterval,
    workers: flags.containerLogMaxWorkers,
  });
}

function createPlugins(
  { rootDirectory, clock, logger }: Base,
  metrics: MetricsRegistry,
  { csiDrivers }: AgentVolumes,
  { devices, claims }: AssembledResourceManagers,
): PluginManager {
  const handlers = { CSIPlugin: csiDrivers, DevicePlugin: devices.handler(), DRAPlugin: claims.handler() };
  const plugins = new PluginManager({ rootDirectory, handlers, clock, logger });
  pluginMetrics(metrics, () => plugins.sockets());
  return plugins;
}

/** The parts that run and stop pods. */
interface PodParts {
  readonly pods: Pods;
  readonly pressure: NodePressure;
  readonly shutdown: NodeShutdown;
  readonly eviction: Eviction;
  readonly podNetwork: NodePodNetwork;
  readonly listeningPorts: NodeStatusSource['listeningPorts'];
}

async function createPodParts(
  base: Base,
  { runtime, api, registries }: Outside,
  parts: NodeParts & StateParts & ResourceParts,
  lifecycle: Lifecycle,
): Promise<PodParts> {
  const { clock, logger, signal } = base;
  const { settings, events, node, checkpoints, state, volumes, usage, images } = parts;
  const { desired, table, workers } = state;
  const client = api?.client;
  const services = lifecycle.add(
    await clusterServices(base, { client, checkpoints: checkpoints?.pods, node, metrics: registries.agent }),
  );
  const policies = lifecycle.add(
    createNetworkPolicies(base, {
      ...{ client, node, events, checkpoints: checkpoints?.pods },
      ownNameServers: () => services.ownNameServers(),
      nodesProvideServices: (aborted) => services.providedByNodes(aborted),
    }),
  );
  const network = lifecycle.add(createPodAddresses(base, { runtime, node, events }, policies));
  const podNetwork = lifecycle.add(
    createPodNetwork(base, {
      ...{ client, node, events, runtime, checkpoints: checkpoints?.pods },
      nodesProvideServices: (aborted) => services.providedByNodes(aborted),
      annotation: (key) => services.annotation(key),
    }),
  );
  const pressure = new NodePressure();
  const killer = createPodKiller({ workers, events, clock });
  const shutdown = lifecycle.add(
    createNodeShutdown(base, {
      registry: registries.agent,
      killer,
      activePods: () => table.active(),
      nodeEvent: (reason, message) => events.nodeEvent(node.node(), reason, message, 'Normal'),
      nodeChanged: () => node.changed(),
    }),
  );
  const pods = lifecycle.add(
    await createPods(base, {
      ...parts,
      ...{ runtime, client, registries, services, network, pressure, killer, shutdown },
      metrics: parts.podMetrics,
    }),
  );
  const eviction = lifecycle.add(
    createEviction(base, {
      ...{ settings, pressure, metrics: registries.agent, usage, table, killer, events, node },
      housekeeping: pods.housekeeping,
      imageGc: images.gc,
    }),
  );
  const { manager } = volumes;
  registerPodMetrics(base, { metrics: registries.agent, usage, table, desired, workers, volumes: manager });
  passPodCidrs({
    node,
    runtime,
    mtu: () => podNetwork.mtu(),
    onAccepted: () => pods.runtimeState.check(),
    clock,
    logger,
    signal,
  });
  const listeningPorts = hostListeners(services, () => table.active(), logger);
  return { pods, pressure, shutdown, eviction, podNetwork, listeningPorts };
}

/** Returns the state of the parts as the node's status shows it. */
function nodeStatus(
  {
    pods: { pleg, runtimeState },
    pressure,
    shutdown,
    podNetwork,
    listeningPorts,
    resources,
    volumes,
  }: Pick<PodParts, 'pods' | 'pressure' | 'shutdown' | 'podNetwork' | 'listeningPorts'> &
    Pick<ResourceParts, 'resources' | 'volumes'>,
  server: Pick<NodeStatusSource, 'serverPort' | 'servingKeys'>,
): NodeStatusSource {
  return {
    ...server,
    listeningPorts,
    runtimeRead: () => pleg.relisted(),
    runtimeErrors() {
      const problem = pleg.health();
      return [...runtimeState.runtimeErrors(), ...(problem === '' ? [] : [`PLEG is not healthy: ${problem}`])];
    },
    networkErrors() {
      const problems = [podNetwork.problem(), runtimeState.networkProblem()].filter((problem) => problem !== '');
      // A node that shuts down is not ready.
      return [...problems, ...(shutdown.isShuttingDown() ? ['node is shutting down'] : [])];
    },
    pressure: (kind) => pressure.has(kind),
    deviceCapacity: () => resources.managers.capacity(),
    volumesInUse: () => volumes.csi.volumesInUse(),
  };
}
