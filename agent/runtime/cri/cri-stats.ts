/** Translates the resource usage that a CRI runtime reports into the boundary's form. Pure. */
import type { FilesystemUsage } from '../runtime.ts';
import type { ContainerId } from '../runtime-identity.ts';
import type { ContainerStats } from '../runtime-stats.ts';
import type { Incoming } from './schema.ts';

const NS_PER_MS = 1e6;

const number = (value: Incoming<'UInt64Value'> | null | undefined): number => value?.value ?? 0;

/** Returns the usage of a container. Values that the runtime does not report are 0. */
export function containerStatsOf(stats: Incoming<'ContainerStats'>): ContainerStats {
  const { cpu, memory, writableLayer } = stats;
  return {
    id: (stats.attributes?.id ?? '') as ContainerId,
    labels: stats.attributes?.labels ?? {},
    timestampMs: (cpu?.timestamp ?? memory?.timestamp ?? 0) / NS_PER_MS,
    cpuUsageCoreNs: number(cpu?.usageCoreNanoSeconds),
    memoryWorkingSetBytes: number(memory?.workingSetBytes),
    memoryUsageBytes: number(memory?.usageBytes),
    memoryRssBytes: number(memory?.rssBytes),
    pageFaults: number(memory?.pageFaults),
    majorPageFaults: number(memory?.majorPageFaults),
    writableLayerBytes: number(writableLayer?.usedBytes),
    writableLayerInodes: number(writableLayer?.inodesUsed),
  };
}

/** Returns the usage of a filesystem of images or containers. */
export function filesystemOf(usage: Incoming<'FilesystemUsage'>): FilesystemUsage {
  return {
    mountpoint: usage.fsId?.mountpoint ?? '',
    usedBytes: number(usage.usedBytes),
    inodesUsed: number(usage.inodesUsed),
  };
}
