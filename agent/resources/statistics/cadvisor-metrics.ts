/**
 * Writes `/metrics/cadvisor`: the kernel's counters of each cgroup, with cAdvisor's metric names and labels, which
 * existing dashboards query. Metrics whose values are unknown are left out. Pure: the statistics component passes in a
 * usage snapshot.
 */
import { Exposition, type Labels } from './exposition.ts';
import type { CgroupUsage } from './cgroup-usage.ts';
import type { NodeStorage, PodStorage } from './storage-usage.ts';
import type { InterfaceCounters } from './cgroup-files.ts';
import type { UsageSnapshot } from './usage.ts';

export interface CadvisorFacts {
  readonly usage: UsageSnapshot;
  readonly storage: { readonly node: NodeStorage; readonly pods: ReadonlyMap<string, PodStorage> };
  readonly interfaces: readonly InterfaceCounters[];
  readonly machine: {
    readonly bootId: string;
    readonly machineId: string;
    readonly systemUuid: string;
    readonly cpus: number;
    readonly physicalCores: number;
    readonly sockets: number;
    readonly memoryBytes: number;
    readonly swapBytes: number;
    readonly kernelVersion: string;
    readonly osVersion: string;
  };
  readonly bootedAtMs: number;
}

type Read = (usage: CgroupUsage) => number | undefined;

const seconds = (ns: number): number => ns / 1e9;

/** The name, the help text and the function that reads the value. */
const COUNTERS: readonly (readonly [string, string, Read])[] = [
  [
    'container_cpu_user_seconds_total',
    'Cumulative user cpu time consumed in seconds.',
    ({ cpu }) => seconds(cpu.userNs),
  ],
  [
    'container_cpu_system_seconds_total',
    'Cumulative system cpu time consumed in seconds.',
    ({ cpu }) => seconds(cpu.systemNs),
  ],
  [
    'container_cpu_cfs_periods_total',
    'Number of elapsed enforcement period intervals.',
    ({ cpu }) => (cpu.quotaUs > 0 ? cpu.periods : undefined),
  ],
  [
    'container_cpu_cfs_throttled_periods_total',
    'Number of throttled period intervals.',
    ({ cpu }) => (cpu.quotaUs > 0 ? cpu.throttledPeriods : undefined),
  ],
  [
    'container_cpu_cfs_throttled_seconds_total',
    'Total time duration the container has been throttled.',
    ({ cpu }) => (cpu.quotaUs > 0 ? seconds(cpu.throttledNs) : undefined),
  ],
  [
    'container_cpu_cfs_burst_periods_total',
    'Number of periods when burst occurs.',
    ({ cpu }) => (cpu.quotaUs > 0 ? cpu.burstPeriods : undefined),
  ],
  [
    'container_cpu_cfs_burst_seconds_total',
    'Total time duration the container has been bursted.',
    ({ cpu }) => (cpu.quotaUs > 0 ? seconds(cpu.burstNs) : undefined),
  ],
  ['container_memory_failcnt', 'Number of memory usage hits limits', ({ memory }) => memory.failures],
  [
    'container_oom_events_total',
    'Count of out of memory events observed for the container',
    ({ memory }) => memory.oomKills,
  ],
];

const GAUGES: readonly (readonly [string, string, Read])[] = [
  ['container_memory_cache', 'Number of bytes of page cache memory.', ({ memory }) => memory.cacheBytes],
  ['container_memory_kernel_usage', 'Size of kernel memory allocated in bytes.', ({ memory }) => memory.kernelBytes],
  ['container_memory_mapped_file', 'Size of memory mapped files in bytes.', ({ memory }) => memory.mappedBytes],
  ['container_memory_max_usage_bytes', 'Maximum memory usage recorded in bytes', ({ memory }) => memory.maxUsageBytes],
  ['container_memory_rss', 'Size of RSS in bytes.', ({ memory }) => memory.rssBytes],
  ['container_memory_swap', 'Container swap usage in bytes.', ({ memory }) => memory.swapBytes],
  [
    'container_memory_total_active_file_bytes',
    'Current total active file in bytes.',
    ({ memory }) => memory.activeFileBytes,
  ],
  [
    'container_memory_total_inactive_file_bytes',
    'Current total inactive file in bytes.',
    ({ memory }) => memory.inactiveFileBytes,
  ],
  [
    'container_memory_usage_bytes',
    'Current memory usage in bytes, including all memory regardless of when it was accessed',
    ({ memory }) => memory.usageBytes,
  ],
  ['container_memory_working_set_bytes', 'Current working set in bytes.', ({ memory }) => memory.workingSetBytes],
  [
    'container_spec_cpu_period',
    'CPU period of the container.',
    ({ cpu }) => (cpu.periodUs > 0 ? cpu.periodUs : undefined),
  ],
  ['container_spec_cpu_quota', 'CPU quota of the container.', ({ cpu }) => (cpu.quotaUs > 0 ? cpu.quotaUs : undefined)],
  ['container_spec_cpu_shares', 'CPU share of the container.', ({ cpu }) => (cpu.shares > 0 ? cpu.shares : undefined)],
  ['container_spec_memory_limit_bytes', 'Memory limit for the container.', ({ memory }) => memory.limitBytes ?? 0],
  [
    'container_spec_memory_reservation_limit_bytes',
    'Memory reservation limit for the container.',
    ({ memory }) => memory.reservationBytes ?? 0,
  ],
  [
    'container_spec_memory_swap_limit_bytes',
    'Memory swap limit for the container.',
    ({ memory }) => memory.swapLimitBytes ?? 0,
  ],
  ['container_processes', 'Number of processes running inside the container.', ({ processes }) => processes.current],
  ['container_threads', 'Number of threads running inside the container', ({ processes }) => processes.current],
  [
    'container_threads_max',
    'Maximum number of threads allowed inside the container, infinity if value is zero',
    ({ processes }) => processes.max ?? 0,
  ],
];

const CPU = {
  name: 'container_cpu_usage_seconds_total',
  type: 'counter',
  help: 'Cumulative cpu time consumed in seconds.',
} as const;
const FAILURES = {
  name: 'container_memory_failures_total',
  type: 'counter',
  help: 'Cumulative count of memory allocation failures.',
} as const;
const SEEN = {
  name: 'container_last_seen',
  type: 'gauge',
  help: 'Last time a container was seen by the exporter',
} as const;
const STARTED = {
  name: 'container_start_time_seconds',
  type: 'gauge',
  help: 'Start time of the container since unix epoch in seconds.',
} as const;
const FS_USAGE = {
  name: 'container_fs_usage_bytes',
  type: 'gauge',
  help: 'Number of bytes that are consumed by the container on this filesystem.',
} as const;
const FS_LIMIT = {
  name: 'container_fs_limit_bytes',
  type: 'gauge',
  help: 'Number of bytes that can be consumed by the container on this filesystem.',
} as const;
const FS_INODES = { name: 'container_fs_inodes_total', type: 'gauge', help: 'Number of Inodes' } as const;
const FS_INODES_FREE = { name: 'container_fs_inodes_free', type: 'gauge', help: 'Number of available Inodes' } as const;
const FS_READS = {
  name: 'container_fs_reads_total',
  type: 'counter',
  help: 'Cumulative count of reads completed',
} as const;
const FS_WRITES = {
  name: 'container_fs_writes_total',
  type: 'counter',
  help: 'Cumulative count of writes completed',
} as const;
const FS_READ_BYTES = {
  name: 'container_fs_reads_bytes_total',
  type: 'counter',
  help: 'Cumulative count of bytes read',
} as const;
const FS_WRITE_BYTES = {
  name: 'container_fs_writes_bytes_total',
  type: 'counter',
  help: 'Cumulative count of bytes written',
} as const;

const NETWORK: readonly (readonly [string, string, (entry: InterfaceCounters) => number])[] = [
  ['receive_bytes', 'bytes received', (entry) => entry.rxBytes],
  ['receive_errors', 'errors encountered while receiving', (entry) => entry.rxErrors],
  ['receive_packets_dropped', 'packets dropped while receiving', (entry) => entry.rxDropped],
  ['receive_packets', 'packets received', (entry) => entry.rxPackets],
  ['transmit_bytes', 'bytes transmitted', (entry) => entry.txBytes],
  ['transmit_errors', 'errors encountered while transmitting', (entry) => entry.txErrors],
  ['transmit_packets_dropped', 'packets dropped while transmitting', (entry) => entry.txDropped],
  ['transmit_packets', 'packets transmitted', (entry) => entry.txPackets],
];

interface Names {
  readonly container: string;
  readonly id: string;
  readonly image: string;
  readonly name: string;
  readonly namespace: string;
  readonly pod: string;
}

const none = { container: '', image: '', name: '', namespace: '', pod: '' };

export function cadvisorMetrics(facts: CadvisorFacts): string {
  const { usage, storage } = facts;
  const page = new Exposition();
  writeMachine(page, facts);
  const root: Names = { ...none, id: '/' };
  writeUsage(page, usage.node, root, usage.timeMs, facts.bootedAtMs);
  writeNetwork(page, facts.interfaces, root, usage.timeMs);
  const { root: rootFs, images } = storage.node;
  for (const filesystem of [
    rootFs,
    ...(images.filesystem !== undefined && images.filesystem.device !== rootFs?.device ? [images.filesystem] : []),
  ]) {
    if (filesystem === undefined) continue;
    const labels = withLabel(root, 'device', deviceName(filesystem.device));
    page.add(FS_LIMIT, filesystem.capacityBytes, labels, usage.timeMs);
    page.add(FS_USAGE, filesystem.usedBytes, labels, usage.timeMs);
    page.add(FS_INODES, filesystem.inodes, labels, usage.timeMs);
    page.add(FS_INODES_FREE, filesystem.inodesFree, labels, usage.timeMs);
  }
  if (usage.allPods !== undefined)
    writeUsage(page, usage.allPods.usage, { ...none, id: usage.allPods.cgroup }, usage.timeMs, undefined);
  for (const entry of usage.pods) {
    const names = { namespace: entry.pod.metadata.namespace, pod: entry.pod.metadata.name };
    const podId = entry.cgroup === '' ? `/pod${entry.pod.metadata.uid}` : entry.cgroup;
    writeUsage(
      page,
      entry.usage,
      { ...none, ...names, id: podId },
      entry.timeMs,
      Date.parse(entry.pod.status?.startTime ?? ''),
    );
    writeNetwork(page, entry.interfaces, { ...none, ...names, id: podId }, entry.timeMs);
    const written = storage.pods.get(entry.pod.metadata.uid);
    for (const container of entry.containers) {
      const labels: Names = {
        container: container.name,
        id: container.cgroup === '' ? `${podId}/${container.id}` : container.cgroup,
        image: container.image,
        name: container.id,
        ...names,
      };
      writeUsage(page, container.usage, labels, container.timeMs, container.startedAtMs);
      const disk = written?.containers.get(container.name);
      if (disk !== undefined)
        page.add(
          FS_USAGE,
          disk.layer.usedBytes + disk.logs.usedBytes,
          withLabel(labels, 'device', deviceName(storage.node.containers.filesystem?.device ?? 0)),
          usage.timeMs,
        );
    }
  }
  page.add(
    {
      name: 'container_scrape_error',
      type: 'gauge',
      help: '1 if there was an error while getting container metrics, 0 otherwise',
    },
    0,
  );
  page.add(
    {
      name: 'machine_scrape_error',
      type: 'gauge',
      help: '1 if there was an error while getting machine metrics, 0 otherwise.',
    },
    0,
  );
  return page.text();
}

/** Formats a device number as the kernel does, such as `8:1`. */
function deviceName(device: number): string {
  return `${(device >> 8) & 0xfff}:${(device & 0xff) | ((device >> 12) & 0xfff00)}`;
}

/** Adds a label. Labels are sorted alphabetically. */
function withLabel(names: Names, label: string, value: string): Labels {
  return Object.fromEntries(Object.entries({ ...names, [label]: value }).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}

function writeUsage(
  page: Exposition,
  usage: CgroupUsage,
  names: Names,
  timeMs: number,
  startedAtMs: number | undefined,
): void {
  const labels = { ...names };
  page.add(CPU, seconds(usage.cpu.usageNs), withLabel(names, 'cpu', 'total'), timeMs);
  for (const [name, help, read] of COUNTERS) {
    const value = read(usage);
    if (value !== undefined) page.add({ name, type: 'counter', help }, value, labels, timeMs);
  }
  for (const [name, help, read] of GAUGES) {
    const value = read(usage);
    if (value !== undefined) page.add({ name, type: 'gauge', help }, value, labels, timeMs);
  }
  for (const [type, value] of [
    ['pgfault', usage.memory.pageFaults],
    ['pgmajfault', usage.memory.majorPageFaults],
  ] as const) {
    for (const scope of ['container', 'hierarchy']) {
      page.add(
        FAILURES,
        value,
        {
          container: names.container,
          failure_type: type,
          id: names.id,
          image: names.image,
          name: names.name,
          namespace: names.namespace,
          pod: names.pod,
          scope,
        },
        timeMs,
      );
    }
  }
  for (const device of usage.io.devices) {
    const withDevice = withLabel(names, 'device', device.device);
    page.add(FS_READS, device.reads, withDevice, timeMs);
    page.add(FS_WRITES, device.writes, withDevice, timeMs);
    page.add(FS_READ_BYTES, device.readBytes, withDevice, timeMs);
    page.add(FS_WRITE_BYTES, device.writeBytes, withDevice, timeMs);
  }
  page.add(SEEN, Math.floor(timeMs / 1000), labels, timeMs);
  if (startedAtMs !== undefined && !Number.isNaN(startedAtMs))
    page.add(STARTED, Math.floor(startedAtMs / 1000), labels, timeMs);
}

function writeNetwork(page: Exposition, interfaces: readonly InterfaceCounters[], names: Names, timeMs: number): void {
  for (const entry of interfaces) {
    const labels = withLabel(names, 'interface', entry.name);
    for (const [name, help, read] of NETWORK) {
      page.add(
        { name: `container_network_${name}_total`, type: 'counter', help: `Cumulative count of ${help}` },
        read(entry),
        labels,
        timeMs,
      );
    }
  }
}

function writeMachine(page: Exposition, { machine }: CadvisorFacts): void {
  page.add(
    {
      name: 'cadvisor_version_info',
      type: 'gauge',
      help: "A metric with a constant '1' value labeled by kernel version, OS version, docker version, cadvisor version & cadvisor revision.",
    },
    1,
    {
      cadvisorRevision: '',
      cadvisorVersion: '',
      dockerVersion: '',
      kernelVersion: machine.kernelVersion,
      osVersion: machine.osVersion,
    },
  );
  const labels = { boot_id: machine.bootId, machine_id: machine.machineId, system_uuid: machine.systemUuid };
  const gauge = (name: string, help: string, value: number): void =>
    page.add({ name, type: 'gauge', help }, value, labels);
  gauge('machine_cpu_cores', 'Number of logical CPU cores.', machine.cpus);
  gauge('machine_cpu_physical_cores', 'Number of physical CPU cores.', machine.physicalCores);
  gauge('machine_cpu_sockets', 'Number of CPU sockets.', machine.sockets);
  gauge('machine_memory_bytes', 'Amount of memory installed on the machine.', machine.memoryBytes);
  gauge('machine_swap_bytes', 'Amount of swap memory available on the machine.', machine.swapBytes);
}
