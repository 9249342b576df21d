/**
 * What protects the node and tells of it, put together for `main.ts`: figures, the eviction manager, image collection,
 * reserved resources. Flags in, running parts out.
 */
import { registerBuildInfo } from '../../api/component/build-metrics.ts';
import type { Logger } from '../../api/component/logger.ts';
import { MetricsRegistry } from '../../api/component/metrics.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import type { CgroupManager } from '../host/cgroups/cgroup-resources.ts';
import { NodeAllocatable } from '../host/cgroups/node-allocatable.ts';
import type { PodCgroups } from '../host/cgroups/pod-cgroups.ts';
import type { AgentCore } from '../pods/core.ts';
import type { Pod, PodEventRecorder, VolumeManager } from '../model/core-types.ts';
import { EvictionManager, type EvictionSettings } from '../resources/eviction/eviction-manager.ts';
import type { EvictionReport } from '../resources/eviction/explain.ts';
import { observeSignals } from '../resources/eviction/signals.ts';
import { DEFAULT_HARD, parseThresholds, type Signal, type Threshold } from '../resources/eviction/thresholds.ts';
import { ImageGc } from '../runtime/images/image-gc.ts';
import { importedImages } from '../runtime/images/imported-images.ts';
import { hostCapacity, maxPids } from '../host/host-facts.ts';
import { type Capacity, podLimits, reservationLimits, reservedFor, withEviction } from '../node/status/reserved.ts';
import type { AgentFlags } from '../options/agent-options.ts';
import type { PodManager } from '../pods/workers/pod-manager.ts';
import type { PodWorkers } from '../pods/workers/pod-workers.ts';
import type { Runtime } from '../runtime/runtime.ts';
import type { StatisticsPages } from '../resources/statistics/statistics-pages.ts';
import { type CertificateObservers, certificateMetrics } from '../node/certificates/certificate-metrics.ts';
import { registerAgentMetrics } from '../resources/statistics/agent-metrics.ts';
import { createCgroupReader } from '../resources/statistics/cgroup-reader.ts';
import { createProbeMetrics, type ProbeMetrics } from '../resources/statistics/probe-metrics.ts';
import { createStatistics } from '../resources/statistics/statistics.ts';
import { StorageUsage } from '../resources/statistics/storage-usage.ts';
import { UsageCollector } from '../resources/statistics/usage.ts';

const CGROUP_MOUNT = '/sys/fs/cgroup';
const QOS_PERIOD_MS = 60_000;
const TIDY_PERIOD_MS = 60_000;

/** The agent's two pages of counters. */
export interface AgentRegistries {
  readonly own: MetricsRegistry;
  readonly probes: ProbeMetrics;
  readonly certificates: CertificateObservers;
}

/** `version` is the kubelet's: `v1.36.2`. */
export function createRegistries(clock: Clock, version: string): AgentRegistries {
  const own = new MetricsRegistry();
  registerBuildInfo(own, {
    gitVersion: version,
    platform: `linux/${process.arch === 'x64' ? 'amd64' : process.arch}`,
  });
  return { own, probes: createProbeMetrics(clock.now()), certificates: certificateMetrics(own, clock) };
}

/** Throws `ThresholdError`. */
export function evictionSettings(flags: AgentFlags): EvictionSettings {
  return {
    thresholds: parseThresholds({
      hard: { ...(flags.mergeDefaultEvictionSettings ? DEFAULT_HARD : {}), ...flags.evictionHard },
      soft: flags.evictionSoft,
      softGracePeriod: flags.evictionSoftGracePeriod,
      minimumReclaim: flags.evictionMinimumReclaim,
      enforcePods: flags.enforceNodeAllocatable.includes('pods'),
    }),
    transitionPeriodMs: flags.evictionPressureTransitionPeriod,
    maxPodGracePeriodSeconds: flags.evictionMaxPodGracePeriod,
    localStorage: flags.localStorageCapacityIsolation,
  };
}

/** For the node's status: what of a capacity pods do not get. */
export function nodeReservations(
  flags: AgentFlags,
  thresholds: readonly Threshold[],
): (capacity: Capacity) => Readonly<Record<string, number>> {
  const reserved = reservedFor({ kube: flags.kubeReserved, system: flags.systemReserved, cpus: flags.reservedCpus });
  return (capacity) =>
    flags.experimentalAllocatableIgnoreEviction ? reserved : withEviction(reserved, thresholds, capacity);
}

export interface ProtectionDeps {
  readonly flags: AgentFlags;
  readonly settings: EvictionSettings;
  readonly registries: AgentRegistries;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly nodeName: string;
  readonly rootDirectory: string;
  readonly podLogsDirectory: string;
  readonly runtime: Runtime;
  readonly volumes: VolumeManager;
  readonly cgroups: PodCgroups;
  readonly cgroupManager: CgroupManager;
  readonly pods: PodManager;
  readonly workers: PodWorkers;
  readonly events: PodEventRecorder;
  readonly aboutNode: (reason: string, message: string) => void;
  /** Forgets what was recorded of pulls of other images. */
  readonly pruneImages: (ids: ReadonlySet<string>, atMs: number) => Promise<void>;
  /** There when the first look is taken. */
  readonly core: () => AgentCore;
  readonly nodeChanged: () => void;
}

export interface Protection {
  readonly statistics: StatisticsPages;
  pressure(kind: 'memory' | 'disk' | 'pid'): boolean;
  explainEviction(signal: Signal | undefined): Promise<EvictionReport>;
  /** A pod is about to use the image. */
  imageUsed(id: string): void;
  run(signal: AbortSignal): Promise<void>;
}

export async function createProtection(deps: ProtectionDeps): Promise<Protection> {
  const { flags, clock, logger, registries, settings } = deps;
  const allocatable = await createAllocatable(deps);
  const enforced = flags.enforceNodeAllocatable.includes('pods') && flags.cgroupsPerQos;
  const pods = (): readonly Pod[] => deps.core().pods();
  const usage = new UsageCollector({
    reader: allocatable.reader,
    runtime: deps.runtime,
    clock,
    pods,
    cgroupParent: (pod) => deps.cgroups.parent(pod),
    allPodsCgroup: flags.cgroupsPerQos ? allocatable.cgroups.podsCgroup : '',
  });
  const storage = new StorageUsage({
    runtime: deps.runtime,
    clock,
    logger,
    rootDirectory: deps.rootDirectory,
    podLogsDirectory: deps.podLogsDirectory,
    volumes: deps.volumes,
    pods,
    periodMs: flags.volumeStatsAggPeriod,
  });
  const imageGc = createImageGc(deps, storage);
  const evictions = registries.own.counter({
    name: 'kubelet_evictions',
    help: 'Cumulative number of pod evictions by eviction signal',
    labels: ['eviction_signal'],
  });
  const manager = new EvictionManager({
    settings,
    clock,
    logger,
    observe: () =>
      observeSignals({
        node: () => usage.node(),
        allPods: () => usage.allPods(),
        storage: () => storage.node(),
        allocatableMemoryBytes: () => (enforced ? allocatable.limits().memoryBytes : 0),
      }),
    usage: (maxAgeMs) => usage.snapshot(maxAgeMs),
    storage: (maxAgeMs) => storage.pods(maxAgeMs),
    activePods: () => deps.core().activePods(),
    evict: async (pod, { gracePeriodSeconds, message }) => {
      await deps.workers.kill(pod, { gracePeriodSeconds, status: { reason: 'Evicted', message } });
      // What it wrote, to memory too, is free when its volumes are gone.
      await deps.workers.finished(pod.metadata.uid);
    },
    events: deps.events,
    aboutNode: deps.aboutNode,
    deleteDeadContainers: () => deps.core().collectContainers({ terminatedPods: true }),
    deleteUnusedImages: () => imageGc.deleteUnused(),
    onConditionsChange: deps.nodeChanged,
    onEviction: (signal) => evictions.with(signal).inc(),
  });
  registerAgentMetrics(registries.own, {
    nodeName: deps.nodeName,
    cgroupVersion: usage.cgroupVersion,
    startedAtMs: clock.now(),
    pods,
    mirrorCount: () => deps.pods.mirrors().length,
    workerState: (uid) => deps.workers.state(uid),
    activePods: () => deps.core().activePods(),
  });
  return {
    statistics: createStatistics({
      nodeName: deps.nodeName,
      usage,
      storage,
      metrics: registries.own,
      probeMetrics: registries.probes.registry,
      pods,
    }),
    pressure: (kind) => manager.pressure(kind),
    explainEviction: (signal) => manager.explain({ signal }),
    imageUsed: (id) => imageGc.used(id),
    async run(signal) {
      const tidy = async (): Promise<void> => {
        while (!signal.aborted) {
          registries.probes.retain(new Set(pods().map((pod) => pod.metadata.uid)));
          await clock.sleep(TIDY_PERIOD_MS, signal).catch(() => undefined);
        }
      };
      await Promise.all([manager.run(signal), imageGc.run(signal), allocatable.run(signal), tidy()]);
    },
  };
}

function createImageGc(
  { flags, runtime, clock, logger, rootDirectory, pruneImages, aboutNode, registries }: ProtectionDeps,
  storage: StorageUsage,
): ImageGc {
  const removed = registries.own.counter({
    name: 'kubelet_image_garbage_collected_total',
    help: 'Total number of images garbage collected by the kubelet, whether through disk usage or image age.',
    labels: ['reason'],
  });
  return new ImageGc({
    policy: {
      highThresholdPercent: flags.imageGcHighThreshold,
      lowThresholdPercent: flags.imageGcLowThreshold,
      minAgeMs: flags.minimumImageTtlDuration,
      maxAgeMs: flags.imageMaximumGcAge,
    },
    runtime,
    clock,
    logger,
    space: async () => (await storage.node()).images.filesystem,
    kept: async () => new Set([...(await importedImages(rootDirectory)), flags.podInfraContainerImage]),
    aboutNode,
    onRemoved: (reason) => removed.with(reason).inc(),
    onListed: pruneImages,
  });
}

async function createAllocatable(deps: ProtectionDeps): Promise<{
  readonly reader: Awaited<ReturnType<typeof createCgroupReader>>;
  readonly cgroups: NodeAllocatable;
  readonly limits: () => ReturnType<typeof podLimits>;
  run(signal: AbortSignal): Promise<void>;
}> {
  const { flags, logger, clock } = deps;
  const reader = await createCgroupReader(CGROUP_MOUNT);
  const cgroups = new NodeAllocatable({ manager: deps.cgroupManager, logger });
  const reserved = reservedFor({ kube: flags.kubeReserved, system: flags.systemReserved, cpus: flags.reservedCpus });
  const limits = (): ReturnType<typeof podLimits> => {
    const { cpus, memoryBytes } = hostCapacity();
    return podLimits(reserved, { cpus, memoryBytes, storageBytes: 0, pids: maxPids() });
  };
  const wanted = (name: string): boolean => flags.enforceNodeAllocatable.includes(name);
  return {
    reader,
    cgroups,
    limits,
    async run(signal) {
      if (!flags.cgroupsPerQos) return;
      while (!signal.aborted) {
        if (wanted('pods')) await cgroups.enforcePods(limits());
        for (const [name, cgroup, amounts] of [
          ['kube-reserved', flags.kubeReservedCgroup, flags.kubeReserved],
          ['system-reserved', flags.systemReservedCgroup, flags.systemReserved],
        ] as const) {
          if (cgroup === '') continue;
          const whole = reservationLimits(amounts);
          if (wanted(name)) await cgroups.enforce(cgroup, whole);
          // Of what can be given less of without harm only.
          else if (wanted(`${name}-compressible`)) await cgroups.enforce(cgroup, { ...whole, memoryBytes: 0, pids: 0 });
        }
        await cgroups.updateQosShares(deps.core().activePods());
        await clock.sleep(QOS_PERIOD_MS, signal).catch(() => undefined);
      }
    },
  };
}
