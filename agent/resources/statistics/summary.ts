/** Builds `/stats/summary` from a snapshot of usage and storage, in the kubelet's format. Pure. */
import { formatTime } from '../../../api/machinery/clock.ts';
import { type InterfaceCounters, NO_PRESSURE, type Pressure } from './cgroup-files.ts';
import type { CgroupUsage } from './cgroup-usage.ts';
import { countOf, type DiskUsage, type Filesystem } from './disk-usage.ts';
import type { NodeStorage, PodStorage } from './storage-usage.ts';
import type { SystemContainer } from './system-containers.ts';
import type { ContainerUsage, PodUsage, UsageSnapshot } from './usage.ts';

interface SummaryFacts {
  readonly nodeName: string;
  readonly bootedAtMs: number;
  readonly memoryCapacityBytes: number;
  readonly swapCapacityBytes: number;
  readonly interfaces: readonly InterfaceCounters[];
  readonly defaultInterface: string;
  readonly processes: { readonly current: number; readonly max: number };
  readonly usage: UsageSnapshot;
  readonly system: readonly SystemContainer[];
  /** Absent if the client requested `only_cpu_and_memory`. */
  readonly storage?: { readonly node: NodeStorage; readonly pods: ReadonlyMap<string, PodStorage> };
}

/** Returns the Summary object of `k8s.io/kubelet/pkg/apis/stats/v1alpha1`. */
export function summaryOf(facts: SummaryFacts): object {
  const { usage, storage } = facts;
  const time = formatTime(usage.timeMs);
  const whole = withPressure(usage.node);
  const cpuAndMemory = {
    startTime: formatTime(facts.bootedAtMs),
    cpu: cpuOf(whole, usage.nodeNanoCores, time),
    memory: memoryOf(whole, time, facts.memoryCapacityBytes),
  };
  const swapAvailableBytes = Math.max(0, facts.swapCapacityBytes - usage.node.memory.swapBytes);
  const swap = { time, swapAvailableBytes, swapUsageBytes: usage.node.memory.swapBytes };
  if (storage === undefined) {
    return {
      node: { nodeName: facts.nodeName, ...systemContainers(facts, time), ...cpuAndMemory, swap },
      pods: usage.pods.map((pod) => podOf(pod, undefined, undefined, time)),
    };
  }
  const { node } = storage;
  return {
    node: {
      nodeName: facts.nodeName,
      ...systemContainers(facts, time),
      ...cpuAndMemory,
      io: ioOf(whole, time),
      network: networkOf(facts.interfaces, time, facts.defaultInterface),
      ...(node.root === undefined ? {} : { fs: { time, ...wholeFilesystem(node.root) } }),
      runtime: {
        ...(node.images.filesystem === undefined
          ? {}
          : { imageFs: { time, ...partOf(node.images.filesystem, node.images.used) } }),
        ...(node.containers.filesystem === undefined
          ? {}
          : { containerFs: { time, ...partOf(node.containers.filesystem, node.containers.used) } }),
      },
      rlimit: { time, maxpid: facts.processes.max, curproc: facts.processes.current },
      swap,
    },
    pods: usage.pods.map((pod) => podOf(pod, storage.pods.get(pod.pod.metadata.uid), node, time)),
  };
}

function systemContainers(facts: SummaryFacts, time: string): object {
  const { usage, system, memoryCapacityBytes, bootedAtMs } = facts;
  const { allPods } = usage;
  const groups = [
    ...system.map((part) => ({ ...part, memoryBytes: part.usage.memory.limitBytes })),
    ...(allPods === undefined
      ? []
      : [{ ...allPods, name: 'pods', memoryBytes: allPods.usage.memory.limitBytes ?? memoryCapacityBytes }]),
  ];
  if (groups.length === 0) return {};
  return {
    systemContainers: groups.map(({ name, usage: part, createdAtMs = bootedAtMs, nanoCores, memoryBytes }) => ({
      name,
      startTime: formatTime(Math.max(createdAtMs, bootedAtMs)),
      cpu: cpuOf(withPressure(part), nanoCores, time),
      memory: memoryOf(withPressure(part), time, memoryBytes),
      ...(facts.storage === undefined ? {} : { io: ioOf(withPressure(part), time) }),
      swap: swapOf(part, time),
    })),
  };
}

/**
 * Adds zeros where the kernel measures no pressure: the kubelet shows them for the node, pods and system containers. For
 * containers it leaves the pressure out.
 */
function withPressure({ cpu, memory, io, processes }: CgroupUsage): CgroupUsage {
  const measured = <T extends { readonly pressure: Pressure | undefined }>(part: T): T => ({
    ...part,
    pressure: part.pressure ?? NO_PRESSURE,
  });
  return { cpu: measured(cpu), memory: measured(memory), io: measured(io), processes };
}

function swapOf({ memory }: CgroupUsage, time: string): object {
  const { swapMaxBytes, swapBytes } = memory;
  return {
    time,
    ...(swapMaxBytes === undefined ? {} : { swapAvailableBytes: Math.max(0, swapMaxBytes - swapBytes) }),
    swapUsageBytes: swapBytes,
  };
}

function cpuOf(usage: CgroupUsage, nanoCores: number | undefined, time: string): object {
  return {
    time,
    ...(nanoCores === undefined ? {} : { usageNanoCores: nanoCores }),
    usageCoreNanoSeconds: usage.cpu.usageNs,
    ...pressureOf(usage.cpu.pressure),
  };
}

function memoryOf({ memory }: CgroupUsage, time: string, limitBytes: number | undefined): object {
  return {
    time,
    ...(limitBytes === undefined ? {} : { availableBytes: Math.max(0, limitBytes - memory.workingSetBytes) }),
    usageBytes: memory.usageBytes,
    workingSetBytes: memory.workingSetBytes,
    rssBytes: memory.rssBytes,
    pageFaults: memory.pageFaults,
    majorPageFaults: memory.majorPageFaults,
    ...pressureOf(memory.pressure),
  };
}

function ioOf(usage: CgroupUsage, time: string): object {
  return { time, ...pressureOf(usage.io.pressure) };
}

function pressureOf(pressure: Pressure | undefined): object {
  return pressure === undefined ? {} : { psi: { full: pressure.full, some: pressure.some } };
}

function wholeFilesystem(filesystem: Filesystem): object {
  return {
    availableBytes: filesystem.availableBytes,
    capacityBytes: filesystem.capacityBytes,
    usedBytes: filesystem.usedBytes,
    inodesFree: filesystem.inodesFree,
    inodes: filesystem.inodes,
    inodesUsed: countOf(filesystem.inodes - filesystem.inodesFree),
  };
}

function partOf(filesystem: Filesystem, used: DiskUsage): object {
  return { ...wholeFilesystem(filesystem), usedBytes: used.usedBytes, inodesUsed: used.inodesUsed };
}

function networkOf(interfaces: readonly InterfaceCounters[], time: string, main: string): object {
  const counters = (entry: InterfaceCounters): object => ({
    name: entry.name,
    rxBytes: entry.rxBytes,
    rxErrors: entry.rxErrors,
    txBytes: entry.txBytes,
    txErrors: entry.txErrors,
  });
  const chosen = interfaces.find((entry) => entry.name === main) ?? interfaces[0];
  return { time, ...(chosen === undefined ? {} : counters(chosen)), interfaces: interfaces.map(counters) };
}

function podOf(entry: PodUsage, storage: PodStorage | undefined, node: NodeStorage | undefined, time: string): object {
  const { metadata, status } = entry.pod;
  const measuredAt = formatTime(entry.timeMs);
  const full = node !== undefined;
  const usage = withPressure(entry.usage);
  return {
    podRef: { name: metadata.name, namespace: metadata.namespace, uid: metadata.uid },
    startTime: status?.startTime ?? null,
    containers: entry.containers.map((container) => containerOf(container, storage, node, time)),
    cpu: cpuOf(usage, entry.nanoCores, measuredAt),
    memory: memoryOf(usage, measuredAt, usage.memory.limitBytes),
    ...(full ? { io: ioOf(usage, measuredAt) } : {}),
    ...(full && entry.interfaces.length > 0 ? { network: networkOf(entry.interfaces, measuredAt, 'eth0') } : {}),
    ...(storage === undefined || storage.volumes.length === 0
      ? {}
      : {
          volume: storage.volumes.map((volume) => ({
            time,
            ...(volume.filesystem === undefined ? {} : partOf(volume.filesystem, volume.usage)),
            name: volume.name,
            ...(volume.claim === '' ? {} : { pvcRef: { name: volume.claim, namespace: metadata.namespace } }),
          })),
        }),
    ...(storage === undefined || node?.root === undefined
      ? {}
      : { 'ephemeral-storage': { time, ...partOf(node.root, storage.ephemeral) } }),
    ...(full ? { process_stats: { process_count: usage.processes.current } } : {}),
    swap: swapOf(usage, measuredAt),
  };
}

function containerOf(
  container: ContainerUsage,
  storage: PodStorage | undefined,
  node: NodeStorage | undefined,
  time: string,
): object {
  const { usage } = container;
  const measuredAt = formatTime(container.timeMs);
  const written = storage?.containers.get(container.name);
  return {
    name: container.name,
    startTime: formatTime(container.startedAtMs),
    cpu: cpuOf(usage, container.nanoCores, measuredAt),
    // Without a limit, the available memory is 0, as containerd reports it to the kubelet.
    memory: memoryOf(usage, measuredAt, usage.memory.limitBytes ?? 0),
    ...(node === undefined ? {} : { io: ioOf(usage, measuredAt) }),
    ...(written === undefined || node?.containers.filesystem === undefined
      ? {}
      : { rootfs: { time, ...partOf(node.containers.filesystem, written.layer) } }),
    ...(written === undefined || node?.root === undefined
      ? {}
      : { logs: { time, ...partOf(node.root, written.logs) } }),
    swap: { swapAvailableBytes: 0, ...swapOf(usage, measuredAt) },
  };
}
