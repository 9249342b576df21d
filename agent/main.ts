/**
 * The node agent, put together: flags in, a running agent out. The only place where its parts meet. `close` ends the agent
 * and leaves every container running; the next start takes them up again.
 */
import { mkdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { type Logger, silentLogger } from '../api/component/logger.ts';
import type { Verbosity } from '../api/component/logging.ts';
import type { MetricsRegistry } from '../api/component/metrics.ts';
import { type Clock, systemClock } from '../api/machinery/clock.ts';
import { loadKubeconfig } from '../api/machinery/kubeconfig.ts';
import { approximate, parseQuantity } from '../api/meta/quantity.ts';
import { assembleServer } from './assembly/agent-server.ts';
import { type ApiClients, connectApi } from './assembly/api-clients.ts';
import { type AgentEvents, eventRecorder } from './assembly/api-readers.ts';
import type { Base, Closer, Closing } from './assembly/base.ts';
import { clusterServices } from './assembly/cluster-services.ts';
import { createCheckpoints, restoreNode } from './assembly/checkpoints.ts';
import { credentialProviders } from './assembly/credentials.ts';
import { createImages } from './assembly/images.ts';
import { createNode } from './assembly/node.ts';
import { createNodeShutdown, withShutdown } from './assembly/node-shutdown.ts';
import { passPodCidrs } from './assembly/pod-cidrs.ts';
import { podSources } from './assembly/pod-sources.ts';
import { type AssembledResourceManagers, createResourceManagers } from './assembly/resource-managers.ts';
import { userNamespaces } from './assembly/user-namespaces.ts';
import { createVolumes } from './assembly/volumes.ts';
import type { CsiVolumes } from './volumes/csi/csi-volumes.ts';
import { createCgroupManager } from './host/cgroups/cgroup-manager.ts';
import { createPodCgroups } from './host/cgroups/pod-cgroups.ts';
import { configz } from './options/config/configz.ts';
import { flagz } from './options/config/flagz.ts';
import { type EffectiveOptions, effectiveOptions } from './options/config/effective-options.ts';
import { AgentCore } from './pods/core.ts';
import type { NodeInfo } from './model/core-types.ts';
import { loadPreloadedImages } from './runtime/images/imported-images.ts';
import { runtimeHandlerOf } from './runtime/kuberuntime/runtime-class.ts';
import { KubeRuntime } from './runtime/kuberuntime/kube-runtime.ts';
import { linuxResources, mayUseSwap, type ResourceFacts } from './runtime/kuberuntime/resources.ts';
import { LogRotation } from './runtime/logs/log-rotation.ts';
import type { NodeShutdown } from './node/shutdown/node-shutdown.ts';
import { hasAppArmor, hasUnifiedCgroups, hostCapacity, hostName } from './host/host-facts.ts';
import type { AgentFlags } from './options/agent-options.ts';
import {
  type AgentRegistries,
  createProtection,
  createRegistries,
  evictionSettings,
  type Protection,
} from './assembly/node-protection.ts';
import { Pleg } from './runtime/pleg/pleg.ts';
import { PluginManager } from './volumes/plugins/plugin-manager.ts';
import { createMirrorPods } from './sources/mirror-pods.ts';
import { createPodConfig } from './sources/pod-config.ts';
import { createPodAdmission } from './pods/workers/pod-admission.ts';
import { PodAllocations } from './pods/workers/pod-allocation.ts';
import { PodManager } from './pods/workers/pod-manager.ts';
import { PodSync } from './pods/workers/pod-sync.ts';
import { PodWorkers } from './pods/workers/pod-workers.ts';
import { createProbeManager } from './pods/prober/probe-manager.ts';
import { RuntimeError, type Runtime } from './runtime/runtime.ts';
import { RuntimeState } from './runtime/runtime-state.ts';
import { selectRuntime } from './runtime/select-runtime.ts';
import { acquireLockFile } from './host/process/lock-file.ts';
import { applyProcessSettings, checkHost, setKernelParameters } from './host/process/host-demands.ts';
import { waitForPods } from './host/process/run-once.ts';
import type { AgentServer } from './server/server.ts';
import { measuredSyncer, relistMetrics } from './resources/statistics/measured-syncer.ts';
import { createHttpObserver } from './resources/statistics/http-metrics.ts';
import { instrumentRuntime } from './resources/statistics/instrumented-runtime.ts';
import {
  measuredCgroups,
  nodeStartMetrics,
  podEventMetrics,
  podMetrics,
  registerStateMetrics,
} from './resources/statistics/state-metrics.ts';
import { clientMetrics } from './resources/statistics/client-metrics.ts';
import { volumeMetrics } from './resources/statistics/volume-metrics.ts';
import { createStatusManager } from './pods/status/status-manager.ts';

/** The release of Kubernetes whose agent this one stands in for. */
export const AGENT_VERSION = 'v1.36.2';

export interface AgentOptions {
  /** Flags by their names in `agentFlags`; the others have their defaults. */
  readonly flags?: Partial<AgentFlags>;
  /** What `effectiveOptions` made of flags and files, instead of `flags`. */
  readonly effective?: EffectiveOptions;
  /** This process is the agent and nothing else: it may be locked, rated and limited as the flags say. */
  readonly ownsProcess?: boolean;
  /** Gives up a start that is still waiting for something. */
  readonly signal?: AbortSignal;
  readonly clock?: Clock;
  readonly logger?: Logger;
  /** Of the logger; `/debug/flags/v` changes it. */
  readonly verbosity?: Verbosity;
  /** Instead of the one that the flags name. */
  readonly runtime?: Runtime;
}

export interface Agent {
  readonly nodeName: string;
  readonly port: number;
  readonly core: AgentCore;
  /** What `/metrics` shows. */
  readonly metrics: MetricsRegistry;
  /** Resolves, with the reason, when the agent has nothing more to do: run once, or somebody else wants its lock. Rejects when it cannot run once. */
  readonly done: Promise<string>;
  /** Ends the pods as at a shutdown of the host, by priority; the node takes no others. */
  stopPods(): Promise<void>;
  /** Ends the agent; containers run on. */
  close(how?: Closing): Promise<void>;
}

/** The name that a node registers with. */
export function nodeNameOf(flags: Pick<AgentFlags, 'hostnameOverride'>): string {
  return (flags.hostnameOverride === '' ? hostName() : flags.hostnameOverride).trim().toLowerCase();
}

/** Resolves when the agent's ports listen and its loops run. Throws with one line for a person; nothing is left running then. */
export async function startAgent(options: AgentOptions = {}): Promise<Agent> {
  const { clock = systemClock, logger = silentLogger } = options;
  const values = options.flags ?? {};
  const effective = options.effective ?? (await effectiveOptions({ values, given: new Set(Object.keys(values)) }));
  const { flags } = effective;
  for (const warning of effective.warnings) logger.warn({}, warning);
  const nodeName = nodeNameOf(flags);
  const rootDirectory = resolve(flags.rootDir);
  const abort = new AbortController();
  options.signal?.addEventListener('abort', () => abort.abort(options.signal?.reason), { once: true });
  const base: Base = {
    flags,
    effective,
    clock,
    logger,
    verbosity: options.verbosity,
    nodeName,
    rootDirectory,
    signal: abort.signal,
  };
  const closers: Closer[] = [];
  const close = async (how: Closing = { hostCleared: false }): Promise<void> => {
    abort.abort(new Error('the agent is stopping'));
    for (const closer of closers.toReversed()) await closer(how);
  };
  const done = Promise.withResolvers<string>();
  // Who does not ask for the end need not hear that there was none.
  done.promise.catch(() => undefined);
  try {
    if (options.ownsProcess === true)
      await takeProcess(base, () => done.resolve('somebody else wants the lock file'), closers);
    const demands = {
      failSwapOn: flags.failSwapOn,
      failCgroupV1: flags.failCgroupV1,
      protectKernelDefaults: flags.protectKernelDefaults,
      logger,
    };
    await checkHost(demands);
    if (flags.kubeconfig !== '' && flags.bootstrapKubeconfig === '' && !flags.runonce)
      await loadKubeconfig(flags.kubeconfig);
    await mkdir(rootDirectory, { recursive: true, mode: 0o750 });
    const connected = options.runtime ?? (await connectRuntime(base));
    if (options.runtime === undefined) closers.push(() => connected.close());
    // Not before the kubeconfig is readable and the runtime answers: an agent that cannot start leaves its host as it is.
    if (options.ownsProcess === true) await setKernelParameters(demands);
    const registries = createRegistries(clock, AGENT_VERSION);
    const runtime = instrumentRuntime(connected, registries.own, clock);
    if (flags.imagesDir !== '') await loadPreloadedImages(resolve(flags.imagesDir), runtime, rootDirectory, logger);
    const api = await connectApi({
      ...base,
      version: AGENT_VERSION,
      certificateDirectory: resolve(flags.certDir),
      random: Math.random,
      observe: clientMetrics(registries.own),
      certificates: registries.certificates.client,
    });
    if (api !== undefined) closers.push(() => api.close());
    const { core, server, shutdown, running } = await assemble(base, { runtime, api, registries }, closers);
    closers.push(() => running);
    closers.push(() => server.close());
    if (flags.runonce) done.resolve(waitForPods(core, clock, abort.signal));
    return {
      nodeName,
      port: server.port,
      core,
      metrics: registries.own,
      done: done.promise,
      stopPods: () => shutdown.stopPods(),
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

function connectRuntime({ flags, clock, logger, nodeName, rootDirectory }: Base): Promise<Runtime> {
  return selectRuntime({
    kind: flags.containerRuntime,
    imageEndpoint: flags.imageServiceEndpoint,
    requestTimeoutMs: flags.runtimeRequestTimeout,
    dockerEndpoint: flags.dockerEndpoint,
    criEndpoint: flags.containerRuntimeEndpoint,
    nodeName,
    rootDirectory,
    sandboxImage: flags.podInfraContainerImage,
    hairpin: flags.hairpinMode !== 'none',
    awaitsPodCidr: flags.kubeconfig !== '' && flags.podCidr === '',
    clock,
    logger,
  });
}

/** Before anything else: the lock, then what the kernel shall think of this process. */
async function takeProcess(
  { flags, clock, logger, signal }: Base,
  onContention: () => void,
  closers: Closer[],
): Promise<void> {
  if (flags.lockFile !== '') {
    const release = await acquireLockFile({
      path: resolve(flags.lockFile),
      clock,
      logger,
      signal,
      onContention: flags.exitOnLockContention ? onContention : undefined,
    });
    closers.push(release);
  }
  await applyProcessSettings({ oomScoreAdj: flags.oomScoreAdj, maxOpenFiles: flags.maxOpenFiles, logger });
}

/** What there is before the parts are put together. */
interface Outside {
  readonly runtime: Runtime;
  readonly api: ApiClients | undefined;
  readonly registries: AgentRegistries;
}

async function assemble(
  base: Base,
  { runtime, api, registries }: Outside,
  closers: Closer[],
): Promise<{
  readonly core: AgentCore;
  readonly server: AgentServer;
  readonly shutdown: NodeShutdown;
  readonly running: Promise<unknown>;
}> {
  const { flags, clock, logger, rootDirectory, signal } = base;
  const client = api?.client;
  const events = eventRecorder(base, api?.events, closers);
  const settings = evictionSettings(flags);
  const parts: {
    core?: AgentCore;
    protection?: Protection;
    csi?: CsiVolumes;
    resources?: AssembledResourceManagers;
    workers?: PodWorkers;
  } = {};
  const node = createNode(base, AGENT_VERSION, runtime, api?.heartbeats, settings, events, {
    volumesInUse: () => parts.csi?.volumesInUse() ?? [],
    onStep: nodeStartMetrics(registries.own, clock),
    deviceCapacity: () => parts.resources?.managers.capacity() ?? { capacity: {}, allocatable: {} },
  });
  const pods = new PodManager();
  const checkpoints = createCheckpoints(base, client, closers);
  await restoreNode(node, checkpoints);
  // What pods are given is remembered on its way.
  const podClient = checkpoints?.client ?? client;
  const {
    manager: volumes,
    objects,
    tokens,
    csi,
    csiDrivers,
    onObjectsChange,
    run: runVolumes,
  } = await createVolumes(base, { client, podClient, node, events, observe: volumeMetrics(registries.own) }, closers);
  parts.csi = csi;
  const allocatable = (): Readonly<Record<string, string>> => node.allocatable();
  const podFigures = podMetrics(registries.own, clock);
  const statuses = createStatusManager({
    onCaughtUp: (tookMs) => podFigures.caughtUp(tookMs),
    client,
    clock,
    logger,
    safety: {
      podCouldHaveRunningContainers: (pod) => parts.core?.podCouldHaveRunningContainers(pod) ?? true,
      podIsFinished: (pod) => parts.core?.podIsFinished(pod) ?? false,
    },
    mirrorOf: (pod) => pods.mirrorOf(pod),
  });
  const probes = createProbeManager({
    clock,
    events,
    status: (uid) => statuses.get(uid),
    exec: async (id, command, timeoutMs) => {
      const result = await runtime.execSync(id, command, { timeoutMs, maxOutputBytes: 16 * 1024 });
      return { exitCode: result.exitCode, output: Buffer.concat([result.stdout, result.stderr]).toString('utf8') };
    },
    isTimeout: (error) => error instanceof RuntimeError && error.code === 'timeout',
    random: Math.random,
    logger,
    observe: (probe) => registries.probes.observe(probe),
  });
  closers.push(() => probes.close());
  const cpuQuota = { cpuQuota: flags.cpuCfsQuota, cpuPeriodUs: flags.cpuCfsQuotaPeriod * 1000 };
  const { name: runtimeName } = await runtime.info();
  const cgroupDriver = (await runtime.cgroupDriver()) ?? (flags.cgroupDriver === 'systemd' ? 'systemd' : 'cgroupfs');
  const { memoryBytes: memoryCapacityBytes, hugePages, swapBytes } = hostCapacity();
  const swap = hasUnifiedCgroups() ? { behavior: flags.memorySwapBehavior, capacityBytes: swapBytes } : undefined;
  const resources = await createResourceManagers(
    base,
    {
      runtime,
      metrics: registries.own,
      client,
      settings,
      activePods: () => (parts.core?.sourcesReady() === true ? parts.core.activePods() : undefined),
      podByName: (namespace, name) => parts.core?.podByName(namespace, name),
      resourcesOf: (pod, container) => linuxResources(pod, container, containerResources()),
      onNodeChange: () => node.changed(),
      onPodsChange: (uids) => uids.forEach((uid) => parts.workers?.wake(uid)),
    },
    closers,
  );
  const { managers } = resources;
  parts.resources = resources;
  const containerResources = (): ResourceFacts => ({
    memoryCapacityBytes,
    ...cpuQuota,
    hugePageSizes: [...hugePages.keys()],
    swap,
    oomGroup: hasUnifiedCgroups() && !flags.singleProcessOomKill,
    placement: (pod, container) => managers.placement(pod, container),
  });
  const cgroupManager = await createCgroupManager({
    driver: cgroupDriver,
    root: flags.cgroupRoot,
    mountPoint: '/sys/fs/cgroup',
    logger,
  });
  const podCgroups = createPodCgroups({
    manager: cgroupManager,
    hasExclusiveCpus: (pod) => managers.hasExclusiveCpus(pod),
    perQos: flags.cgroupsPerQos,
    podPidsLimit: flags.podPidsLimit,
    ...cpuQuota,
  });
  const cgroups = measuredCgroups(podCgroups, registries.own, clock);
  const providers = await credentialProviders(base, podClient, tokens);
  const { manager: images, prune: pruneImages } = await createImages(base, {
    runtime,
    events,
    objects,
    providers,
    metrics: registries.own,
    onUsed: (id) => parts.protection?.imageUsed(id),
  });
  const services = await clusterServices(base, client, checkpoints?.pods, node);
  closers.push((how) => services.close(how));
  const containerLogsDirectory = flags.podLogsDir === '/var/log/pods' ? '/var/log/containers' : undefined;
  const kubeRuntime = new KubeRuntime({
    runtime,
    clock,
    logger,
    events,
    images,
    probes: (kind, id) => probes.result(kind, `${runtimeName}://${id}`),
    backOff: restartBackOff(base),
    containerLogsDirectory,
    config: {
      settings: {
        rootDirectory,
        podLogsDirectory: resolve(flags.podLogsDir),
        dns: {
          get clusterDns() {
            return services.nameServers();
          },
          get clusterDomain() {
            return services.clusterDomain();
          },
          resolvConf: flags.resolvConf,
        },
        security: { seccompDirectory: join(rootDirectory, 'seccomp'), seccompDefault: flags.seccompDefault },
        envFiles: base.effective.gates.enabled('EnvFiles'),
        resources: containerResources,
        cgroupParent: (pod) => cgroups.parent(pod),
        runtimeHandler: (pod) => runtimeHandlerOf(pod, client),
      },
      objects,
      services: services.lister,
      volumes,
      userNamespaces: await userNamespaces(base),
      hostIps: () => node.hostIps(),
      allocatable,
      devices: (pod, container) => managers.deviceOptions(pod, container),
    },
  });
  const runtimeState = new RuntimeState({ runtime, clock, logger, onChange: () => node.changed() });
  const mirrors =
    client === undefined
      ? undefined
      : createMirrorPods({ client, logger, node: () => (node.registered ? node.node() : undefined) });
  const allocations = new PodAllocations({
    node: () => node.node(),
    events,
    others: (pod) => (parts.core?.activePods() ?? []).filter((other) => other.metadata.uid !== pod.metadata.uid),
    mayUseSwap: (pod) => mayUseSwap(pod, swap?.behavior),
    cpuManagerPolicy: flags.cpuManagerPolicy,
    memoryManagerPolicy: flags.memoryManagerPolicy,
  });
  const sync = new PodSync({
    allocations,
    runtime,
    runtimeName,
    kubeRuntime,
    pods,
    volumes,
    probes,
    statuses,
    objects,
    services: services.lister,
    cgroups,
    mirrors,
    node,
    events,
    clock,
    logger,
    networkProblem: () => runtimeState.networkProblem(),
    resources: managers,
    onContainerEnded: (pod, container) => podFigures.ended(pod, container),
  });
  const workers = new PodWorkers({
    clock,
    logger,
    syncer: measuredSyncer(sync, { metrics: registries.own, clock, status: (uid) => statuses.get(uid) }),
    resyncMs: flags.syncFrequency,
    random: Math.random,
  });
  // A pod that waits for a config map or secret need not wait any longer.
  onObjectsChange((uids) => {
    for (const uid of uids) workers.wake(uid);
  });
  parts.workers = workers;
  const pleg = new Pleg({
    onRelist: relistMetrics(registries.own, clock),
    runtime,
    clock,
    logger,
    onEvent: (event) => (event.type === 'removed' ? undefined : workers.wake(event.podUid)),
  });
  const { sources, submitted } = podSources(base, client, checkpoints?.pods, (_file, message) =>
    badManifest(events, node, message),
  );
  const shutdown = createNodeShutdown(base, {
    registry: registries.own,
    workers,
    activePods: () => parts.core?.activePods() ?? [],
    aboutNode: (reason, message) => events.aboutNode(node.node(), reason, message, 'Normal'),
    nodeChanged: () => node.changed(),
  });
  const pressure = (kind: 'memory' | 'disk' | 'pid'): boolean => parts.protection?.pressure(kind) ?? false;
  const core = new AgentCore({
    allocations,
    clock,
    logger,
    runtime,
    runtimeState,
    kubeRuntime,
    pods,
    workers,
    sync,
    pleg,
    podConfig: createPodConfig({ sources, clock, logger }),
    volumes,
    probes,
    statuses,
    cgroups,
    mirrors,
    admission: createPodAdmission({
      node: () => node.node(),
      allowedUnsafeSysctls: flags.allowedUnsafeSysctls,
      pressure,
      appArmor: hasAppArmor,
      shutdown: () => shutdown.refusal(),
    }),
    resources: managers,
    podLogsDirectory: resolve(flags.podLogsDir),
    podsDirectory: join(rootDirectory, 'pods'),
    containerLogsDirectory,
    deadContainers: {
      keptPerContainer: flags.maximumDeadContainersPerContainer,
      keptInTotal: flags.maximumDeadContainers,
      minAgeMs: flags.minimumContainerTtlDuration,
    },
    pressure,
    observe: podEventMetrics(registries.own),
  });
  parts.core = core;
  registerStateMetrics(registries.own, {
    gates: base.effective.gates.all,
    pods: () => core.pods(),
    mountedVolumes: (uid) => new Set(volumes.podVolumes(uid).map(({ name }) => name)),
  });
  const protection = await createProtection({
    flags,
    settings,
    registries,
    clock,
    logger,
    nodeName: base.nodeName,
    rootDirectory,
    podLogsDirectory: resolve(flags.podLogsDir),
    runtime,
    volumes,
    cgroups,
    cgroupManager,
    pods,
    workers,
    events,
    aboutNode: (reason, message) => events.aboutNode(node.node(), reason, message),
    pruneImages,
    core: () => core,
    nodeChanged: () => node.changed(),
  });
  parts.protection = protection;
  node.connect(withShutdown(core, shutdown));
  passPodCidrs({ node, runtime, onTaken: () => runtimeState.check(), clock, logger, signal });
  const server = await assembleServer({
    ...base,
    certificateDirectory: resolve(flags.certDir),
    client,
    host: core,
    hostIps: () => node.hostIps(),
    submitted,
    statistics: protection.statistics,
    explainEviction: (supposed) => protection.explainEviction(supposed),
    observe: createHttpObserver(registries.own, clock),
    certificates: registries.certificates.server,
    config: () => configz(base.effective),
    flagz: () => flagz(base.effective),
    gates: base.effective.gates,
    version: AGENT_VERSION,
    runtime,
    random: Math.random,
  });
  await runtimeState.check();
  await node.prepare();
  const logs = new LogRotation({
    runtime,
    clock,
    logger,
    maxSizeBytes: approximate(parseQuantity(flags.containerLogMaxSize)),
    maxFiles: flags.containerLogMaxFiles,
    checkMs: flags.containerLogMonitorInterval,
    workers: flags.containerLogMaxWorkers,
  });
  const plugins = new PluginManager({
    rootDirectory,
    handlers: {
      CSIPlugin: csiDrivers,
      DevicePlugin: resources.devices.handler(),
      DRAPlugin: resources.claims.handler(),
    },
    clock,
    logger,
  });
  const loops = [
    node.run(signal),
    core.run(signal),
    protection.run(signal),
    logs.run(signal),
    plugins.run(signal),
    runVolumes(signal),
    managers.run(signal),
    shutdown.run(signal),
  ];
  const running = Promise.all(loops).catch((error: unknown) => {
    if (!signal.aborted) logger.error({ err: error }, 'A loop of the agent broke');
  });
  return { core, server, shutdown, running };
}

/** A manifest that will not do is an event about the node: there is no pod to speak of. */
function badManifest(events: AgentEvents, node: NodeInfo, message: string): void {
  events.aboutNode(node.node(), 'FailedManifest', message);
}

/** First and longest wait between restarts of a container that crashes. */
function restartBackOff({ flags, effective: { gates } }: Base): { readonly initialMs: number; readonly maxMs: number } {
  const isShort = gates.enabled('ReduceDefaultCrashLoopBackOffDecay');
  const maxMs = gates.enabled('KubeletCrashLoopBackOffMax') ? flags.maxContainerRestartPeriod : 300_000;
  return { initialMs: Math.min(isShort ? 1000 : 10_000, maxMs), maxMs: isShort ? Math.min(60_000, maxMs) : maxMs };
}
