/** Serves the metrics and summary endpoints of the agent's server. */
import { readFileSync } from 'node:fs';
import type { Logger } from '../../../api/component/logger.ts';
import type { MetricsRegistry } from '../../../api/component/metrics.ts';
import type { Pod } from '../../base/model/pod.ts';
import { hostCapacity, maxPids, runningPids, systemInfo } from '../../host/host-facts.ts';
import type { StatisticsPages } from './statistics-pages.ts';
import { deviceNames } from './block-devices.ts';
import { cadvisorMetrics, devicesOf } from './cadvisor-metrics.ts';
import { hostFilesystems } from './host-filesystems.ts';
import type { InterfaceCounters } from './cgroup-files.ts';
import { resourceMetrics } from './resource-metrics.ts';
import type { StorageUsage } from './storage-usage.ts';
import { storageMetrics } from './storage-metrics.ts';
import { summaryOf } from './summary.ts';
import type { SystemContainers } from './system-containers.ts';
import { interfacesOf, type UsageCollector } from './usage.ts';

interface StatisticsOptions {
  readonly nodeName: string;
  readonly usage: UsageCollector;
  readonly system: SystemContainers;
  readonly storage: StorageUsage;
  readonly metrics: MetricsRegistry;
  readonly probeMetrics: MetricsRegistry;
  readonly pods: () => readonly Pod[];
  readonly logger: Logger;
}

/** The maximum age of the snapshot that a metrics page shows. */
const MAX_PAGE_AGE_MS = 2_000;
/** The maximum age of the snapshot that a summary shows. */
const MAX_SUMMARY_AGE_MS = 5_000;

/**
 * Returns the metrics and statistics pages of the server. If the usage of the pods cannot be read, the metrics pages are
 * without it and the error is logged; `summary` rejects.
 */
export function createStatistics(options: StatisticsOptions): StatisticsPages {
  const { usage, storage, nodeName } = options;
  const writeStorage = storageMetrics(options.metrics);
  /** Resolves to the result of a read. If it fails, logs the error and resolves to `undefined`. */
  const readOrLog = async <T>(read: () => Promise<T>): Promise<T | undefined> => {
    try {
      return await read();
    } catch (error) {
      options.logger.warn({ err: error }, 'Cannot read the usage of the pods');
      return undefined;
    }
  };
  return {
    async metrics() {
      writeStorage(options.pods(), await storage.pods());
      return options.metrics.text();
    },
    probes: () => Promise.resolve(options.probeMetrics.text()),
    async resource() {
      return resourceMetrics(await readOrLog(() => usage.snapshot(MAX_PAGE_AGE_MS)));
    },
    async cadvisor() {
      const machine = machineFacts();
      const [snapshot, node, pods, filesystems, interfaces] = await Promise.all([
        readOrLog(() => usage.snapshot(MAX_PAGE_AGE_MS)),
        storage.node(),
        storage.pods(),
        hostFilesystems(),
        hostInterfaces(),
      ]);
      const facts = { usage: snapshot, storage: { node, pods } };
      return cadvisorMetrics({
        ...facts,
        processes: snapshot === undefined ? new Map() : await usage.processes(snapshot),
        deviceNames: await deviceNames(devicesOf(facts)),
        filesystems,
        interfaces,
        machine,
        bootedAtMs: bootTimeMs(),
      });
    },
    async summary(onlyCpuAndMemory) {
      const capacity = hostCapacity();
      const facts = {
        nodeName,
        bootedAtMs: bootTimeMs(),
        memoryCapacityBytes: capacity.memoryBytes,
        swapCapacityBytes: capacity.swapBytes,
        interfaces: await hostInterfaces(),
        defaultInterface: defaultInterface(),
        processes: { current: runningPids(), max: maxPids() },
        usage: await usage.snapshot(onlyCpuAndMemory ? 0 : MAX_SUMMARY_AGE_MS, { rates: true }),
        system: await options.system.usage(),
      };
      if (onlyCpuAndMemory) return summaryOf(facts);
      const [node, pods] = await Promise.all([storage.node(), storage.pods()]);
      return summaryOf({ ...facts, storage: { node, pods } });
    },
  };
}

/** Returns the interfaces of the host's network namespace, which is that of process 1. */
async function hostInterfaces(): Promise<readonly InterfaceCounters[]> {
  const found = await interfacesOf('/proc/1/net/dev');
  return found.length > 0 ? found : interfacesOf('/proc/net/dev');
}

function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    // The kernel does not have this file.
    return '';
  }
}

function defaultInterface(): string {
  const line = readText('/proc/net/route')
    .split('\n')
    .find((row) => row.split('\t')[1] === '00000000');
  return line?.split('\t')[0] ?? 'eth0';
}

function bootTimeMs(): number {
  return Number(/^btime (\d+)/m.exec(readText('/proc/stat'))?.[1] ?? 0) * 1000;
}

function machineFacts(): Parameters<typeof cadvisorMetrics>[0]['machine'] {
  const [system, capacity] = [systemInfo(), hostCapacity()];
  const cpuinfo = readText('/proc/cpuinfo');
  const distinct = (pattern: RegExp): number =>
    Math.max(1, new Set([...cpuinfo.matchAll(pattern)].map((match) => match[1])).size);
  const blocks = cpuinfo.split('\n\n').filter((block) => block.trim() !== '');
  const cores = new Set(
    blocks.map(
      (block) =>
        `${/^physical id\s*: (\d+)/m.exec(block)?.[1] ?? '0'}/${/^core id\s*: (\d+)/m.exec(block)?.[1] ?? /^processor\s*: (\d+)/m.exec(block)?.[1] ?? '0'}`,
    ),
  );
  return {
    bootId: system.bootID,
    machineId: system.machineID,
    systemUuid: system.systemUUID,
    cpus: capacity.cpus,
    physicalCores: Math.max(1, cores.size),
    sockets: distinct(/^physical id\s*: (\d+)/gm),
    memoryBytes: capacity.memoryBytes,
    swapBytes: capacity.swapBytes,
    kernelVersion: system.kernelVersion,
    osVersion: system.osImage,
  };
}
