/** Translates the resource usage that a CRI runtime reports into the boundary's form. Pure. */
import type { FilesystemUsage } from '../runtime.ts';
import type { ContainerId, SandboxId } from '../runtime-identity.ts';
import type { ContainerStats, SandboxStats } from '../runtime-stats.ts';
import type { Incoming } from './schema.ts';

const NS_PER_MS = 1e6;

const number = (value: Incoming<'UInt64Value'> | null | undefined): number => value?.value ?? 0;

/** Values that the runtime does not report are 0. */
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

/** The default interface comes first and is listed once. */
export function sandboxStatsOf(stats: Incoming<'PodSandboxStats'>): SandboxStats {
  const { attributes, linux } = stats;
  const network = linux?.network;
  const listed = network?.interfaces ?? [];
  const first = network?.defaultInterface;
  const interfaces =
    first === null || first === undefined ? listed : [first, ...listed.filter(({ name }) => name !== first.name)];
  return {
    id: (attributes?.id ?? '') as SandboxId,
    pod: {
      name: attributes?.metadata?.name ?? '',
      namespace: attributes?.metadata?.namespace ?? '',
      uid: attributes?.metadata?.uid ?? '',
      attempt: attributes?.metadata?.attempt ?? 0,
    },
    interfaces: interfaces.map((entry) => ({
      name: entry.name,
      rxBytes: number(entry.rxBytes),
      rxErrors: number(entry.rxErrors),
      txBytes: number(entry.txBytes),
      txErrors: number(entry.txErrors),
    })),
    processCount: number(linux?.process?.processCount),
    containers: (linux?.containers ?? []).map(containerStatsOf),
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
