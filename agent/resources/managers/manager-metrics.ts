/** Registers the metrics of the resource managers, under the kubelet's names. */
import type { MetricsRegistry } from '../../../api/component/metrics.ts';
import type { CpuManager } from './cpumanager/cpu-manager.ts';
import type { ClaimManager } from './dra/claim-manager.ts';
import type { MemoryManager } from './memorymanager/memory-manager.ts';

interface ManagerMetrics {
  admission(admission: { readonly tookMs: number; readonly refused: boolean }): void;
  /** The resources of a container or pod are on one NUMA node, or could not be. */
  aligned(scope: 'container' | 'pod', isAligned: boolean): void;
  device(event: 'registration' | 'allocation', resource: string, tookMs: number): void;
  podResources(
    endpoint: 'list' | 'get' | 'get_allocatable',
    request: { readonly version: 'v1' | 'v1alpha1'; readonly failed: boolean },
  ): void;
  claim(operation: string, failed: boolean, tookMs: number): void;
  /** Registers gauges that read the managers' state at each scrape. */
  follow(cpus: CpuManager, memory: MemoryManager, claims: ClaimManager): void;
}

/** Registers the counters of allocations that were aligned, and of allocations that could not be. */
function alignedMetrics(metrics: MetricsRegistry) {
  const labels = ['scope', 'boundary'];
  return {
    aligned: metrics.counter({
      name: 'kubelet_container_aligned_compute_resources_count',
      help: 'Allocations of CPUs, memory and devices that are aligned, by scope and boundary.',
      labels,
    }),
    failed: metrics.counter({
      name: 'kubelet_container_aligned_compute_resources_failure_count',
      help: 'Allocations of CPUs, memory and devices that could not be aligned, by scope and boundary.',
      labels,
    }),
  };
}

/** 0.05 ms, doubled fourteen times. */
const ADMISSION_BUCKETS_MS = Array.from({ length: 15 }, (_, index) => 0.05 * 2 ** index);
/**
 * The bounds of the buckets in seconds: from 0.1 to 40, which is about the deadline of a call, in equal factors. They are
 * constants, because Go's power function has other last digits, which are in the names of the buckets.
 */
export const DRA_BUCKETS: readonly number[] = [
  ...[0.1, 0.1534127404634391, 0.23535468936502524, 0.36106407876409946, 0.5539182980610752, 0.849781240983936],
  ...[1.303672689737678, 1.9999999999999993, 3.0682548092687805, 4.7070937873005025, 7.221281575281985],
  ...[11.078365961221499, 16.995624819678714, 26.07345379475354, 39.99999999999997],
];
const DEVICE_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

type Counter = (name: string, help: string, labels?: readonly string[]) => ReturnType<MetricsRegistry['counter']>;

/** Registers the metrics and returns the observers that the managers call. */
export function registerManagerMetrics(metrics: MetricsRegistry): ManagerMetrics {
  const counter: Counter = (name, help, labels = []) => metrics.counter({ name, help, labels });
  const claims = metrics.histogram({
    name: 'dra_operations_duration_seconds',
    help: 'Latency histogram in seconds for the duration of handling all ResourceClaims referenced by a pod when the pod starts or stops. Identified by the name of the operation (PrepareResources or UnprepareResources) and separated by the success of the operation.',
    labels: ['is_error', 'operation_name'],
    buckets: DRA_BUCKETS,
  });
  return {
    ...topologyMetrics(metrics, counter),
    aligned: topologyAlignment(metrics),
    ...deviceMetrics(metrics, counter),
    ...podResourcesMetrics(counter),
    claim: (operation, failed, tookMs) => claims.with(String(failed), operation).observe(tookMs / 1000),
    follow: (cpus, memory, prepared) => followManagers(metrics, cpus, memory, prepared),
  };
}

function topologyMetrics(metrics: MetricsRegistry, counter: Counter): Pick<ManagerMetrics, 'admission'> {
  const requests = counter(
    'kubelet_topology_manager_admission_requests_total',
    'The number of admission requests where resources have to be aligned.',
  ).with();
  const errors = counter(
    'kubelet_topology_manager_admission_errors_total',
    'The number of admission request failures where resources could not be aligned.',
  ).with();
  const durations = metrics
    .histogram({
      name: 'kubelet_topology_manager_admission_duration_ms',
      help: 'Duration in milliseconds to serve a pod admission request.',
      buckets: ADMISSION_BUCKETS_MS,
    })
    .with();
  return {
    admission({ tookMs, refused }) {
      requests.inc();
      if (refused) errors.inc();
      durations.observe(tookMs);
    },
  };
}

function topologyAlignment(metrics: MetricsRegistry): ManagerMetrics['aligned'] {
  const { aligned, failed } = alignedMetrics(metrics);
  return (scope, isAligned) => (isAligned ? aligned : failed).with(scope, 'numa_node').inc();
}

/** Follows the alignment of CPUs by the static policy, whose series exist with the policy only. */
function followCpuAlignment(metrics: MetricsRegistry, cpus: CpuManager): void {
  const { wholeCores: hasPolicy } = cpus.counts();
  if (hasPolicy === undefined) return;
  const { aligned, failed } = alignedMetrics(metrics);
  const [cores, coreFailures] = [aligned, failed].map((family) => family.with('container', 'physical_cpu'));
  const caches = aligned.with('container', 'uncore_cache');
  const perNode = metrics.gauge({
    name: 'kubelet_cpu_manager_allocation_per_numa',
    help: 'Number of exclusively allocated CPUs of each NUMA node.',
    labels: ['numa_node'],
  });
  const published = { cores: 0, coreFailures: 0, caches: 0 };
  metrics.collect(() => {
    const { requests, errors, wholeCores, uncoreAligned, perNumaNode } = cpus.counts();
    for (const [node, count] of perNumaNode) perNode.with(String(node)).set(count);
    caches.inc(uncoreAligned - published.caches);
    published.caches = uncoreAligned;
    if (wholeCores !== true) return;
    cores?.inc(requests - errors - published.cores);
    coreFailures?.inc(errors - published.coreFailures);
    Object.assign(published, { cores: requests - errors, coreFailures: errors });
  });
}

function deviceMetrics(metrics: MetricsRegistry, counter: Counter): Pick<ManagerMetrics, 'device'> {
  const registrations = counter(
    'kubelet_device_plugin_registration_total',
    'Cumulative number of device plugin registrations. Broken down by resource name.',
    ['resource_name'],
  );
  const allocations = metrics.histogram({
    name: 'kubelet_device_plugin_alloc_duration_seconds',
    help: 'Duration in seconds to serve a device plugin Allocation request. Broken down by resource name.',
    labels: ['resource_name'],
    buckets: DEVICE_BUCKETS,
  });
  return {
    device(event, resource, tookMs) {
      if (event === 'registration') registrations.with(resource).inc();
      else allocations.with(resource).observe(tookMs / 1000);
    },
  };
}

function podResourcesMetrics(counter: Counter): Pick<ManagerMetrics, 'podResources'> {
  const labels = ['server_api_version'];
  const requests = counter(
    'kubelet_pod_resources_endpoint_requests_total',
    'Cumulative number of requests to the PodResource endpoint. Broken down by server api version.',
    labels,
  );
  const endpoints = new Map(
    (['list', 'get', 'get_allocatable'] as const).map((endpoint) => {
      const nameOf = (kind: string): string => `kubelet_pod_resources_endpoint_${kind}_${endpoint}`;
      const help = `Number of requests to the PodResource ${endpoint} endpoint`;
      const counters = {
        requests: counter(nameOf('requests'), `${help}.`, labels),
        errors: counter(nameOf('errors'), `${help} which returned error.`, labels),
      };
      return [endpoint, counters] as const;
    }),
  );
  return {
    podResources(endpoint, { version, failed }) {
      requests.with(version).inc();
      // As in the kubelet, requests of the older version count in the total alone.
      if (version === 'v1alpha1') return;
      endpoints.get(endpoint)?.requests.with(version).inc();
      if (failed) endpoints.get(endpoint)?.errors.with(version).inc();
    },
  };
}

/** Registers the managers' own counters. */
function followManagers(metrics: MetricsRegistry, cpus: CpuManager, memory: MemoryManager, claims: ClaimManager): void {
  const inUse = metrics.gauge({
    name: 'dra_resource_claims_in_use',
    help: 'The number of ResourceClaims that are currently in use on the node, by driver name (driver_name label value) and across all drivers (special value <any> for driver_name). Note that the sum of all by-driver counts is not the total number of in-use ResourceClaims because the same ResourceClaim might use devices from different drivers. Instead, use the count for the <any> driver_name.',
    labels: ['driver_name'],
  });
  const reported = new Set(['<any>']);
  metrics.collect(() => {
    const counts = claims.inUse();
    for (const driver of counts.keys()) reported.add(driver);
    for (const driver of reported)
      inUse.with(driver).set(driver === '<any>' ? claims.count : (counts.get(driver) ?? 0));
  });
  followCpuAlignment(metrics, cpus);
  const counted = (name: string, help: string, read: () => number): void => {
    const counter = metrics.counter({ name, help }).with();
    let published = 0;
    metrics.collect(() => {
      const current = read();
      counter.inc(current - published);
      published = current;
    });
  };
  const gauge = (name: string, help: string, read: () => number): void => {
    const series = metrics.gauge({ name, help }).with();
    metrics.collect(() => series.set(read()));
  };
  counted(
    'kubelet_cpu_manager_pinning_requests_total',
    'The number of cpu core allocations which required pinning.',
    () => cpus.counts().requests,
  );
  counted(
    'kubelet_cpu_manager_pinning_errors_total',
    'The number of cpu core allocations which required pinning failed.',
    () => cpus.counts().errors,
  );
  gauge(
    'kubelet_cpu_manager_shared_pool_size_millicores',
    'The size of the shared CPU pool for non-guaranteed QoS pods, in millicores.',
    () => cpus.counts().sharedMilli,
  );
  gauge(
    'kubelet_cpu_manager_exclusive_cpu_allocation_count',
    'The total number of CPUs exclusively allocated to containers running on this node',
    () => cpus.counts().exclusive,
  );
  counted(
    'kubelet_memory_manager_pinning_requests_total',
    'The number of memory pages allocations which required pinning.',
    () => memory.counts().requests,
  );
  counted(
    'kubelet_memory_manager_pinning_errors_total',
    'The number of memory pages allocations which required pinning that failed.',
    () => memory.counts().errors,
  );
}
