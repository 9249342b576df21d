/** The metrics of `/metrics/cadvisor`: cAdvisor's names and help texts, and where the value of each comes from. */
import type { CgroupUsage } from './cgroup-usage.ts';
import type { DeviceIo, InterfaceCounters } from './cgroup-files.ts';
import type { DiskCounters } from './host-filesystems.ts';
import type { ProcessUsage } from './process-usage.ts';

type Read = (usage: CgroupUsage) => number | undefined;

/** Converts nanoseconds to seconds. */
export const seconds = (ns: number): number => ns / 1e9;

/** Name, help and value of the counters of a cgroup. A counter whose value is `undefined` is left out. */
export const COUNTERS: readonly (readonly [string, string, Read])[] = [
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
  ...(['cpu', 'io', 'memory'] as const).flatMap((resource): readonly (readonly [string, string, Read])[] => {
    const name = resource === 'memory' ? 'memory' : resource.toUpperCase();
    return [
      [
        `container_pressure_${resource}_stalled_seconds_total`,
        `Total time duration no tasks in the container could make progress due to ${name} congestion.`,
        ({ [resource]: { pressure } }) => (pressure === undefined ? undefined : seconds(pressure.full.total)),
      ],
      [
        `container_pressure_${resource}_waiting_seconds_total`,
        `Total time duration tasks in the container have waited due to ${name} congestion.`,
        ({ [resource]: { pressure } }) => (pressure === undefined ? undefined : seconds(pressure.some.total)),
      ],
    ];
  }),
];

/** Name, help and value of the gauges of a cgroup. */
export const GAUGES: readonly (readonly [string, string, Read])[] = [
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
  ['container_threads', 'Number of threads running inside the container', ({ processes }) => processes.current],
  [
    'container_threads_max',
    'Maximum number of threads allowed inside the container, infinity if value is zero',
    ({ processes }) => processes.max ?? 0,
  ],
];

/** Name, help and value of the settings of a cgroup, which are written without a timestamp. */
export const SETTINGS: typeof GAUGES = [
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
];

const family = (type: 'counter' | 'gauge', name: string, help: string) => ({ name, type, help }) as const;

/** The CPU time of a cgroup, in seconds. */
export const CPU = family('counter', 'container_cpu_usage_seconds_total', 'Cumulative cpu time consumed in seconds.');
/** Page faults, minor and major, of a container and of its whole hierarchy. */
export const FAILURES = family(
  'counter',
  'container_memory_failures_total',
  'Cumulative count of memory allocation failures.',
);
/** The time of the snapshot. */
export const SEEN = family('gauge', 'container_last_seen', 'Last time a container was seen by the exporter');
/** The start of a container. */
export const STARTED = family(
  'gauge',
  'container_start_time_seconds',
  'Start time of the container since unix epoch in seconds.',
);
/** The capacity of persistent memory modules, which is reported as 0. */
export const NVM = family(
  'gauge',
  'machine_nvm_capacity',
  'NVM capacity value labeled by NVM mode (memory mode or app direct mode).',
);
/** The usage and size of a filesystem of a container or of the host. */
export const FS = {
  usage: family(
    'gauge',
    'container_fs_usage_bytes',
    'Number of bytes that are consumed by the container on this filesystem.',
  ),
  limit: family(
    'gauge',
    'container_fs_limit_bytes',
    'Number of bytes that can be consumed by the container on this filesystem.',
  ),
  inodes: family('gauge', 'container_fs_inodes_total', 'Number of Inodes'),
  inodesFree: family('gauge', 'container_fs_inodes_free', 'Number of available Inodes'),
} as const;

/** Metrics that cAdvisor writes with the same value for every container in the kubelet, where its load reader does not run. */
export const CONSTANTS: readonly (readonly [string, string, number])[] = [
  // -1 means that the container has no health check of the runtime.
  ['container_health_state', "The result of the container's health check", -1],
  ['container_cpu_load_average_10s', 'Value of container cpu load average over the last 10 seconds.', 0],
  ['container_cpu_load_d_average_10s', 'Value of container cpu load.d average over the last 10 seconds.', 0],
];
/** The number of tasks in each state, which is 0 without the load reader. */
export const TASKS = family('gauge', 'container_tasks_state', 'Number of tasks in given state');
/** The states of tasks. */
export const TASK_STATES = ['iowaiting', 'running', 'sleeping', 'stopped', 'uninterruptible'] as const;

type ReadDisk = (counters: DiskCounters) => number;

/** The counters of the block device of a filesystem. As in cAdvisor, milliseconds are divided as if they were nanoseconds. */
export const DISKS: readonly (readonly ['counter' | 'gauge', string, string, ReadDisk])[] = [
  ['counter', 'container_fs_reads_total', 'Cumulative count of reads completed', ({ reads }) => reads],
  ['counter', 'container_fs_sector_reads_total', 'Cumulative count of sector reads completed', (of) => of.sectorsRead],
  ['counter', 'container_fs_reads_merged_total', 'Cumulative count of reads merged', (of) => of.readsMerged],
  [
    'counter',
    'container_fs_read_seconds_total',
    'Cumulative count of seconds spent reading',
    (of) => seconds(of.readMs),
  ],
  ['counter', 'container_fs_writes_total', 'Cumulative count of writes completed', ({ writes }) => writes],
  [
    'counter',
    'container_fs_sector_writes_total',
    'Cumulative count of sector writes completed',
    (of) => of.sectorsWritten,
  ],
  ['counter', 'container_fs_writes_merged_total', 'Cumulative count of writes merged', (of) => of.writesMerged],
  [
    'counter',
    'container_fs_write_seconds_total',
    'Cumulative count of seconds spent writing',
    (of) => seconds(of.writeMs),
  ],
  ['gauge', 'container_fs_io_current', 'Number of I/Os currently in progress', (of) => of.inProgress],
  [
    'counter',
    'container_fs_io_time_seconds_total',
    'Cumulative count of seconds spent doing I/Os',
    (of) => seconds(of.ioMs),
  ],
  [
    'counter',
    'container_fs_io_time_weighted_seconds_total',
    'Cumulative weighted I/O time in seconds',
    (of) => seconds(of.weightedIoMs),
  ],
];

/** The I/O of each device. */
export const IO: readonly (readonly [string, string, (device: DeviceIo) => number])[] = [
  ['container_fs_reads_total', 'Cumulative count of reads completed', ({ reads }) => reads],
  ['container_fs_writes_total', 'Cumulative count of writes completed', ({ writes }) => writes],
  ['container_fs_reads_bytes_total', 'Cumulative count of bytes read', ({ readBytes }) => readBytes],
  ['container_fs_writes_bytes_total', 'Cumulative count of bytes written', ({ writeBytes }) => writeBytes],
];

/** Metrics of the processes and open files of a container. */
export const PROCESSES: readonly (readonly [string, string, (usage: ProcessUsage) => number | undefined])[] = [
  ['container_processes', 'Number of processes running inside the container.', ({ processes }) => processes],
  [
    'container_file_descriptors',
    'Number of open file descriptors for the container.',
    ({ openFiles }) => openFiles?.descriptors,
  ],
  ['container_sockets', 'Number of open sockets for the container.', ({ openFiles }) => openFiles?.sockets],
];
/** The soft limits of the first process of a container. */
export const ULIMITS = family(
  'gauge',
  'container_ulimits_soft',
  'Soft ulimit values for the container root process. Unlimited if -1, except priority and nice',
);

/** Suffix, help and value of the counters of an interface of a pod. */
export const NETWORK: readonly (readonly [string, string, (entry: InterfaceCounters) => number])[] = [
  ['receive_bytes', 'bytes received', (entry) => entry.rxBytes],
  ['receive_errors', 'errors encountered while receiving', (entry) => entry.rxErrors],
  ['receive_packets_dropped', 'packets dropped while receiving', (entry) => entry.rxDropped],
  ['receive_packets', 'packets received', (entry) => entry.rxPackets],
  ['transmit_bytes', 'bytes transmitted', (entry) => entry.txBytes],
  ['transmit_errors', 'errors encountered while transmitting', (entry) => entry.txErrors],
  ['transmit_packets_dropped', 'packets dropped while transmitting', (entry) => entry.txDropped],
  ['transmit_packets', 'packets transmitted', (entry) => entry.txPackets],
];
