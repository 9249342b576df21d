/**
 * Builds the parts that protect and measure the node: usage statistics, the eviction manager and the cgroups of allocatable
 * resources.
 */
import { periodically } from '../../api/machinery/periodic.ts';
import type { MetricsRegistry } from '../../api/component/metrics.ts';
import { createCgroupReader } from '../resources/statistics/cgroup-reader.ts';
import type { CgroupManager } from '../host/cgroups/cgroup-resources.ts';
import type { PodCgroups } from '../host/cgroups/pod-cgroups.ts';
import type { VolumeManager } from '../volumes/pod-volumes.ts';
import type { NodeManager } from '../node/status/node-manager.ts';
import type { Housekeeping } from '../pods/housekeeping.ts';
import type { PodTable } from '../pods/pod-table.ts';
import type { PodKiller } from '../pods/workers/kill-pod.ts';
import type { PodManager } from '../pods/workers/pod-manager.ts';
import type { PodWorkers } from '../pods/workers/pod-workers.ts';
import { EvictionManager } from '../resources/eviction/eviction-manager.ts';
import type { EvictionReport } from '../resources/eviction/explain.ts';
import type { NodePressure } from '../resources/eviction/node-pressure.ts';
import { observeSignals } from '../resources/eviction/signals.ts';
import type { EvictionSettings, Signal } from '../resources/eviction/thresholds.ts';
import { registerAgentMetrics } from '../pods/metrics/agent-metrics.ts';
import { registerStateMetrics } from '../pods/metrics/state-metrics.ts';
import { createStatistics } from '../resources/statistics/statistics.ts';
import type { StatisticsPages } from '../resources/statistics/statistics-pages.ts';
import { volumeMeasureMetrics } from '../resources/statistics/storage-metrics.ts';
import { StorageUsage } from '../resources/statistics/storage-usage.ts';
import { SystemContainers } from '../resources/statistics/system-containers.ts';
import { UsageCollector } from '../resources/statistics/usage.ts';
import type { ImageGc } from '../runtime/images/image-gc.ts';
import type { Runtime } from '../runtime/runtime.ts';
import type { Base } from './base.ts';
import type { AgentEvents } from './events.ts';
import type { Part } from './lifecycle.ts';
import { type EnforcedAllocatable, enforceAllocatable } from './node-allocatable.ts';
import type { AgentRegistries } from './registries.ts';

const CGROUP_MOUNT = '/sys/fs/cgroup';
const PROBE_METRICS_PERIOD_MS = 60_000;

interface UsageDeps {
  readonly registries: AgentRegistries;
  readonly runtime: Runtime;
  readonly volumes: VolumeManager;
  readonly cgroups: PodCgroups;
  readonly cgroupManager: CgroupManager;
  readonly table: PodTable;
  readonly events: AgentEvents;
  readonly node: NodeManager;
}

/** The usage of the node and its pods. */
export interface Usage extends Part {
  readonly collector: UsageCollector;
  readonly storage: StorageUsage;
  readonly allocatable: EnforcedAllocatable;
  readonly statistics: StatisticsPages;
}

/** Creates the parts that measure what pods use. Resolves when the cgroup version of the host is known. */
export async function createUsage(base: Base, deps: UsageDeps): Promise<Usage> {
  const { flags, clock, logger, nodeName, rootDirectory, podLogsDirectory } = base;
  const { registries, runtime, table, events, node } = deps;
  const pods = () => table.pods();
  const allocatable = enforceAllocatable(base, deps.cgroupManager, table, (reason, message, type) =>
    events.nodeEvent(node.node(), reason, message, type),
  );
  const reader = await createCgroupReader(CGROUP_MOUNT);
  const collector = new UsageCollector({
    reader,
    runtime,
    clock,
    pods,
    cgroupParent: (pod) => deps.cgroups.parent(pod),
    allPodsCgroup: allocatable.podsCgroup,
  });
  const storage = new StorageUsage({
    runtime,
    clock,
    logger,
    rootDirectory,
    podLogsDirectory,
    volumes: deps.volumes,
    pods,
    periodMs: flags.volumeStatsAggPeriod,
    onVolume: volumeMeasureMetrics(registries.agent),
  });
  const statistics = createStatistics({
    nodeName,
    usage: collector,
    system: new SystemContainers({ reader, clock, runtimeCgroup: flags.runtimeCgroups }),
    storage,
    metrics: registries.agent,
    probeMetrics: registries.probes.registry,
    pods,
    logger,
  });
  const keepProbeMetrics = (signal: AbortSignal): Promise<void> =>
    periodically(() => registries.probes.retain(new Set(pods().map((pod) => pod.metadata.uid))), {
      clock,
      periodMs: PROBE_METRICS_PERIOD_MS,
      signal,
      onError: (error) => logger.error({ err: error }, 'Cannot remove the metrics of probes of removed pods'),
    });
  return {
    collector,
    storage,
    allocatable,
    statistics,
    run: (signal) => Promise.all([allocatable.run(signal), keepProbeMetrics(signal)]),
  };
}

interface EvictionDeps {
  readonly settings: EvictionSettings;
  readonly pressure: NodePressure;
  readonly metrics: MetricsRegistry;
  readonly usage: Usage;
  readonly table: PodTable;
  readonly killer: PodKiller;
  readonly housekeeping: Housekeeping;
  readonly imageGc: ImageGc;
  readonly events: AgentEvents;
  readonly node: NodeManager;
}

/** The eviction manager as a part, with the report that `orchlet agent explain-eviction` prints. */
export interface Eviction extends Part {
  explain(signal: Signal | undefined): Promise<EvictionReport>;
}

/** Creates the eviction manager, which measures and evicts while the part runs. */
export function createEviction({ clock, logger }: Base, deps: EvictionDeps): Eviction {
  const { settings, pressure, metrics, usage, table, killer, housekeeping, imageGc, events, node } = deps;
  const evictions = metrics.counter({
    name: 'kubelet_evictions',
    help: 'Cumulative number of pod evictions by eviction signal',
    labels: ['eviction_signal'],
  });
  const ages = metrics.histogram({
    name: 'kubelet_eviction_stats_age_seconds',
    help: 'Age in seconds of the measurements by which a pod was chosen for eviction, by eviction signal.',
    labels: ['eviction_signal'],
  });
  const manager = new EvictionManager({
    settings,
    pressure,
    clock,
    logger,
    observe: () =>
      observeSignals({
        node: () => usage.collector.node(),
        allPods: () => usage.collector.allPods(),
        storage: () => usage.storage.node(),
        allocatableMemoryBytes: () => usage.allocatable.memoryBytes(),
      }),
    usage: (maxAgeMs) => usage.collector.snapshot(maxAgeMs),
    storage: (maxAgeMs) => usage.storage.pods(maxAgeMs),
    activePods: () => table.active(),
    evict: (pod, { gracePeriodSeconds, message, isDisruption }) => {
      const status = { reason: 'Evicted', message, ...(isDisruption ? { disruption: message } : {}) };
      return killer.kill(pod, { gracePeriodSeconds, status });
    },
    cleanedUp: (pod, limits) => killer.cleanedUp(pod, limits),
    events,
    nodeEvent: (reason, message) => events.nodeEvent(node.node(), reason, message),
    deleteDeadContainers: () => housekeeping.collectContainers({ terminatedPods: true }),
    deleteUnusedImages: () => imageGc.deleteUnused(),
    onConditionsChange: () => node.changed(),
    onRanked: (signal, ageMs) => ages.with(signal).observe(ageMs / 1000),
    onEviction: (signal) => evictions.with(signal).inc(),
  });
  return { explain: (signal) => manager.explain({ signal }), run: (signal) => manager.run(signal) };
}

interface PodMetricsDeps {
  readonly metrics: MetricsRegistry;
  readonly usage: Usage;
  readonly table: PodTable;
  readonly desired: PodManager;
  readonly workers: PodWorkers;
  readonly volumes: VolumeManager;
}

/** Registers the metrics that are computed at each scrape from the pods, their workers and their volumes. */
export function registerPodMetrics({ nodeName, clock, effective }: Base, deps: PodMetricsDeps): void {
  const { metrics, usage, table, desired, workers, volumes } = deps;
  registerAgentMetrics(metrics, {
    nodeName,
    cgroupVersion: usage.collector.cgroupVersion,
    startedAtMs: clock.now(),
    pods: () => table.pods(),
    mirrorCount: () => desired.mirrors().length,
    workingPods: () => workers.pods(),
    workerState: (uid) => workers.state(uid),
    activePods: () => table.active(),
  });
  registerStateMetrics(metrics, {
    gates: effective.gates.all,
    pods: () => table.pods(),
    mountedVolumes: (uid) => new Set(volumes.podVolumes(uid).map(({ name }) => name)),
  });
}
