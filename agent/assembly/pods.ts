/**
 * Builds the parts that run pods: probes, the container runtime's manager, the steps of the workers, the sync loop and
 * housekeeping.
 */
import { join } from 'node:path';
import type { Client } from '../../api/client/client.ts';
import { hasAppArmor } from '../host/host-facts.ts';
import type { PodConfig } from '../sources/pod-config.ts';
import type { NodeShutdown } from '../node/shutdown/node-shutdown.ts';
import type { NodeManager } from '../node/status/node-manager.ts';
import { Housekeeping } from '../pods/housekeeping.ts';
import { LoudCommands } from '../pods/prober/loud-commands.ts';
import { type ProbeManager, createProbeManager } from '../pods/prober/probe-manager.ts';
import { createPreemption } from '../pods/preemption.ts';
import { SyncLoop } from '../pods/sync-loop.ts';
import type { PodKiller } from '../pods/workers/kill-pod.ts';
import { createPodAdmission } from '../pods/workers/pod-admission.ts';
import { PodAllocations } from '../pods/workers/pod-allocation.ts';
import { PodSync } from '../pods/workers/pod-sync.ts';
import type { PodCgroups } from '../host/cgroups/pod-cgroups.ts';
import type { NodePressure } from '../resources/eviction/node-pressure.ts';
import { measuredSyncer, relistMetrics } from '../pods/metrics/measured-syncer.ts';
import { imageVolumeMetrics, startMetrics } from '../resources/statistics/instrumented-runtime.ts';
import { resizeMetrics } from '../pods/metrics/resize-metrics.ts';
import { hookMetrics, podEventMetrics, type podMetrics, preemptionMetrics } from '../pods/metrics/state-metrics.ts';
import { KubeRuntime } from '../runtime/kuberuntime/kube-runtime.ts';
import { mayUseSwap } from '../runtime/kuberuntime/resources.ts';
import { runtimeHandlerOf } from '../runtime/kuberuntime/runtime-class.ts';
import { Pleg } from '../runtime/pleg/pleg.ts';
import { type Runtime, RuntimeError } from '../runtime/runtime.ts';
import { RuntimeState } from '../runtime/runtime-state.ts';
import { type MirrorPods, createMirrorPods } from '../sources/mirror-pods.ts';
import type { Base } from './base.ts';
import type { ClusterServices } from './cluster-services.ts';
import type { AgentEvents } from './events.ts';
import type { Images } from './images.ts';
import type { Part } from './lifecycle.ts';
import type { NetworkPolicies } from './network-policies.ts';
import type { PodState } from './pod-state.ts';
import type { AgentRegistries } from './registries.ts';
import type { AssembledResourceManagers } from './resource-managers.ts';
import { userNamespaces } from './user-namespaces.ts';
import type { AgentVolumes } from './volumes.ts';

const PROBE_OUTPUT_BYTES = 16 * 1024;

interface PodsDeps {
  readonly runtime: Runtime;
  readonly client: Client | undefined;
  readonly registries: AgentRegistries;
  readonly metrics: ReturnType<typeof podMetrics>;
  readonly events: AgentEvents;
  readonly node: NodeManager;
  readonly podConfig: PodConfig;
  readonly state: PodState;
  readonly volumes: AgentVolumes;
  readonly resources: AssembledResourceManagers;
  readonly cgroups: PodCgroups;
  readonly images: Images;
  readonly services: ClusterServices;
  readonly network: NetworkPolicies;
  readonly pressure: NodePressure;
  readonly killer: PodKiller;
  readonly shutdown: Pick<NodeShutdown, 'refusal'>;
}

/** The parts that run pods. `run` resolves when all their loops have stopped. */
export interface Pods extends Part {
  readonly pleg: Pleg;
  readonly runtimeState: RuntimeState;
  readonly housekeeping: Housekeeping;
}

/** Creates the sync loop, the pod workers and what they use. Resolves when the runtime has answered once. */
export async function createPods(base: Base, deps: PodsDeps): Promise<Pods> {
  const { clock, logger } = base;
  const { runtime, client, registries, events, node, podConfig } = deps;
  const { desired, workers, statuses } = deps.state;
  const probes = createProbes(base, deps);
  const { name: runtimeName } = await runtime.info();
  const kubeRuntime = await createKubeRuntime(base, deps, { probes, runtimeName });
  const runtimeState = new RuntimeState({ runtime, clock, logger, onChange: () => node.changed() });
  const mirrors: MirrorPods | undefined =
    client && createMirrorPods({ client, logger, node: () => (node.registered ? node.node() : undefined) });
  const allocations = createAllocations(base, deps);
  const sync = new PodSync({
    allocations,
    runtime,
    runtimeName,
    kubeRuntime,
    pods: desired,
    volumes: deps.volumes.manager,
    probes,
    statuses,
    objects: deps.volumes.objects,
    services: deps.services.lister,
    cgroups: deps.cgroups,
    mirrors,
    node,
    events,
    clock,
    logger,
    networkProblem: () => runtimeState.networkProblem(),
    resources: deps.resources.managers,
    onContainerEnded: (pod, container) => deps.metrics.containerEnded(pod, container),
    onRejected: ({ metadata }, reason) => deps.metrics.startups.rejected(metadata.uid, reason),
  });
  const pleg = new Pleg({
    ...relistMetrics(registries.agent, clock),
    runtime,
    clock,
    logger,
    onEvent: (event) => (event.type === 'removed' ? undefined : workers.wake(event.podUid)),
  });
  const syncLoop = createSyncLoop(base, deps, { sync, mirrors, allocations });
  const housekeeping = createHousekeeping(base, deps, { kubeRuntime, probes, allocations, syncLoop });
  const syncer = measuredSyncer(sync, {
    ...{ metrics: registries.agent, clock, startups: deps.metrics.startups },
    status: (uid) => statuses.get(uid),
  });
  return {
    pleg,
    runtimeState,
    housekeeping,
    run: (signal) =>
      Promise.all([
        workers.run(syncer, signal),
        syncLoop.run(podConfig, signal),
        pleg.run(signal),
        runtimeState.run(signal),
        statuses.run(signal),
        housekeeping.run(signal),
      ]),
    close: () => probes.close(),
  };
}

function createProbes(
  { clock, logger }: Base,
  { runtime, events, registries, state: { statuses, workers } }: PodsDeps,
): ProbeManager {
  const loud = new LoudCommands(clock);
  const probes = createProbeManager({
    clock,
    events,
    status: (uid) => statuses.get(uid),
    exec: async (id, command, timeoutMs) => {
      const options = { timeoutMs, maxOutputBytes: PROBE_OUTPUT_BYTES };
      const result = await loud.run(id, () => runtime.execSync(id, command, options));
      return { exitCode: result.exitCode, output: Buffer.concat([result.stdout, result.stderr]).toString('utf8') };
    },
    isTimeout: (error) => error instanceof RuntimeError && error.code === 'timeout',
    random: Math.random,
    logger,
    observe: (probe) => registries.probes.observe(probe),
  });
  probes.onChange(({ podUid, kind, result }) => {
    if (kind !== 'liveness') statuses.applyProbeResults(podUid, probes);
    // The success of a liveness probe changes nothing.
    if (kind !== 'liveness' || result === 'failure') workers.wake(podUid);
  });
  return probes;
}

async function createKubeRuntime(
  base: Base,
  { runtime, client, events, node, volumes, resources, cgroups, images, services, network, registries }: PodsDeps,
  { probes, runtimeName }: { readonly probes: ProbeManager; readonly runtimeName: string },
): Promise<KubeRuntime> {
  const { flags, clock, logger, rootDirectory, podLogsDirectory } = base;
  return new KubeRuntime({
    runtime,
    clock,
    logger,
    events,
    images: images.manager,
    network,
    probes: (kind, id) => probes.result(kind, `${runtimeName}://${id}`),
    backOff: restartBackOff(base),
    containerLogsDirectory: containerLogsDirectory(base),
    observeHook: hookMetrics(registries.agent),
    starts: startMetrics(registries.agent),
    onImageVolumes: imageVolumeMetrics(registries.agent),
    config: {
      settings: {
        rootDirectory,
        podLogsDirectory,
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
        resources: resources.containerResources,
        cgroupParent: (pod) => cgroups.parent(pod),
        runtimeHandler: (pod) => runtimeHandlerOf(pod, client),
      },
      objects: volumes.objects,
      services: services.lister,
      volumes: volumes.manager,
      userNamespaces: await userNamespaces(base),
      hostIps: () => node.hostIps(),
      allocatable: () => node.allocatable(),
      devices: (pod, container) => resources.managers.deviceOptions(pod, container),
    },
  });
}

function createAllocations(
  { flags }: Base,
  { node, events, resources, registries, state: { table, workers } }: PodsDeps,
): PodAllocations {
  return new PodAllocations({
    node: () => node.node(),
    events,
    others: (pod) => table.active().filter((other) => other.metadata.uid !== pod.metadata.uid),
    mayUseSwap: (pod) => mayUseSwap(pod, resources.containerResources().swap?.behavior),
    cpuManagerPolicy: flags.cpuManagerPolicy,
    memoryManagerPolicy: flags.memoryManagerPolicy,
    observe: resizeMetrics(registries.agent),
    onRoom: (deferred) => deferred.forEach((uid) => workers.wake(uid)),
  });
}

function createSyncLoop(
  { flags, logger }: Base,
  {
    state: { table, desired, workers, statuses },
    node,
    pressure,
    killer,
    shutdown,
    resources,
    events,
    registries,
    metrics,
  }: PodsDeps,
  steps: {
    readonly sync: PodSync;
    readonly mirrors: MirrorPods | undefined;
    readonly allocations: PodAllocations;
  },
): SyncLoop {
  return new SyncLoop({
    logger,
    table,
    desired,
    workers,
    statuses,
    ...steps,
    startups: metrics.startups,
    resources: resources.managers,
    preemption: createPreemption({ workers, killer, events, logger, onPreempted: preemptionMetrics(registries.agent) }),
    admission: createPodAdmission({
      node: () => node.node(),
      allowedUnsafeSysctls: flags.allowedUnsafeSysctls,
      allocatedDevices: () => resources.managers.allocatedDevices(),
      pressure: (kind) => pressure.has(kind),
      appArmor: hasAppArmor,
      shutdown: () => shutdown.refusal(),
    }),
  });
}

function createHousekeeping(
  base: Base,
  { runtime, registries, events, node, state: { table, desired, workers, statuses }, volumes, cgroups }: PodsDeps,
  parts: {
    readonly kubeRuntime: KubeRuntime;
    readonly probes: ProbeManager;
    readonly allocations: PodAllocations;
    readonly syncLoop: SyncLoop;
  },
): Housekeeping {
  const { flags, clock, logger, rootDirectory, podLogsDirectory } = base;
  return new Housekeeping({
    clock,
    logger,
    runtime,
    table,
    desired,
    workers,
    statuses,
    volumes: volumes.manager,
    cgroups,
    ...parts,
    podLogsDirectory,
    podsDirectory: join(rootDirectory, 'pods'),
    containerLogsDirectory: containerLogsDirectory(base),
    deadContainers: {
      keptPerContainer: flags.maximumDeadContainersPerContainer,
      keptInTotal: flags.maximumDeadContainers,
      minAgeMs: flags.minimumContainerTtlDuration,
    },
    nodeEvent: (reason, message) => events.nodeEvent(node.node(), reason, message),
    observe: podEventMetrics(registries.agent),
  });
}

/**
 * Returns the directory of links to container logs, which log agents read, or `undefined` if no links are to be made there.
 * Only an agent with the default directory of pod logs uses it, because a host has one such directory.
 */
function containerLogsDirectory({ flags }: Base): string | undefined {
  return flags.podLogsDir === '/var/log/pods' ? '/var/log/containers' : undefined;
}

/** Returns the first and the longest delay between restarts of a container that crashes. */
function restartBackOff({ flags, effective: { gates } }: Base): { readonly initialMs: number; readonly maxMs: number } {
  const isShort = gates.enabled('ReduceDefaultCrashLoopBackOffDecay');
  const maxMs = gates.enabled('KubeletCrashLoopBackOffMax') ? flags.maxContainerRestartPeriod : 300_000;
  return { initialMs: Math.min(isShort ? 1000 : 10_000, maxMs), maxMs: isShort ? Math.min(60_000, maxMs) : maxMs };
}
