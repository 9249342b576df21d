/**
 * Writes `/metrics/cadvisor`: the kernel's counters of each cgroup, with cAdvisor's metric names and labels, which
 * existing dashboards query. Metrics whose values are unknown are left out. Pure: the statistics component passes in a
 * usage snapshot.
 */
import { deviceNumber } from './block-devices.ts';
import {
  COUNTERS,
  CPU,
  FAILURES,
  FS,
  GAUGES,
  IO,
  NETWORK,
  PROCESSES,
  seconds,
  SEEN,
  STARTED,
  ULIMITS,
} from './cadvisor-families.ts';
import { Exposition, type Labels } from './exposition.ts';
import type { CgroupUsage } from './cgroup-usage.ts';
import type { NodeStorage, PodStorage } from './storage-usage.ts';
import type { InterfaceCounters } from './cgroup-files.ts';
import type { ProcessUsage } from './process-usage.ts';
import type { PodUsage, UsageSnapshot } from './usage.ts';

interface CadvisorFacts {
  /** `undefined` if the usage could not be read. */
  readonly usage: UsageSnapshot | undefined;
  /** The usage by container id. */
  readonly processes: ReadonlyMap<string, ProcessUsage>;
  readonly storage: { readonly node: NodeStorage; readonly pods: ReadonlyMap<string, PodStorage> };
  readonly interfaces: readonly InterfaceCounters[];
  /** The names by device number. */
  readonly deviceNames: ReadonlyMap<string, string>;
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

interface Names {
  readonly container: string;
  readonly id: string;
  readonly image: string;
  readonly name: string;
  readonly namespace: string;
  readonly pod: string;
}

const none = { container: '', image: '', name: '', namespace: '', pod: '' };

/** Returns the whole page. Without a snapshot it has the metrics of the machine and `container_scrape_error 1`. */
export function cadvisorMetrics(facts: CadvisorFacts): string {
  const { usage } = facts;
  const page = new Exposition();
  writeMachine(page, facts);
  if (usage !== undefined) writeContainers(page, facts, usage);
  page.add(
    {
      name: 'container_scrape_error',
      type: 'gauge',
      help: '1 if there was an error while getting container metrics, 0 otherwise',
    },
    usage === undefined ? 1 : 0,
  );
  return page.text();
}

/** Returns the numbers of the devices that the page names. */
export function devicesOf({ usage, storage }: Pick<CadvisorFacts, 'usage' | 'storage'>): ReadonlySet<string> {
  const { root, images, containers } = storage.node;
  const filesystems = [root, images.filesystem, containers.filesystem];
  const cgroups =
    usage === undefined
      ? []
      : [
          usage.node,
          ...(usage.allPods === undefined ? [] : [usage.allPods.usage]),
          ...usage.pods.flatMap((pod) => [pod.usage, ...pod.containers.map((container) => container.usage)]),
        ];
  return new Set([
    ...filesystems.flatMap((filesystem) => (filesystem === undefined ? [] : [deviceNumber(filesystem.device)])),
    ...cgroups.flatMap(({ io }) => io.devices.map(({ device }) => device)),
  ]);
}

function writeContainers(page: Exposition, facts: CadvisorFacts, usage: UsageSnapshot): void {
  const { storage, deviceNames } = facts;
  const root: Names = { ...none, id: '/' };
  writeUsage(page, usage.node, root, { deviceNames, timeMs: usage.timeMs, startedAtMs: facts.bootedAtMs });
  writeNetwork(page, facts.interfaces, root, usage.timeMs);
  const { root: rootFs, images } = storage.node;
  for (const filesystem of [
    rootFs,
    ...(images.filesystem !== undefined && images.filesystem.device !== rootFs?.device ? [images.filesystem] : []),
  ]) {
    if (filesystem === undefined) continue;
    const labels = withDevice(root, deviceNumber(filesystem.device), deviceNames);
    page.add(FS.limit, filesystem.capacityBytes, labels, usage.timeMs);
    page.add(FS.usage, filesystem.usedBytes, labels, usage.timeMs);
    page.add(FS.inodes, filesystem.inodes, labels, usage.timeMs);
    page.add(FS.inodesFree, filesystem.inodesFree, labels, usage.timeMs);
  }
  if (usage.allPods !== undefined) {
    const { cgroup, usage: all } = usage.allPods;
    writeUsage(page, all, { ...none, id: cgroup }, { deviceNames, timeMs: usage.timeMs, startedAtMs: undefined });
  }
  for (const entry of usage.pods) writePod(page, facts, entry);
}

function writePod(page: Exposition, { storage, deviceNames, processes }: CadvisorFacts, entry: PodUsage): void {
  const names = { namespace: entry.pod.metadata.namespace, pod: entry.pod.metadata.name };
  const podId = entry.cgroup === '' ? `/pod${entry.pod.metadata.uid}` : entry.cgroup;
  const ofPod: Names = { ...none, ...names, id: podId };
  const startedAtMs = Date.parse(entry.pod.status?.startTime ?? '');
  writeUsage(page, entry.usage, ofPod, { deviceNames, timeMs: entry.timeMs, startedAtMs });
  writeNetwork(page, entry.interfaces, ofPod, entry.timeMs);
  const written = storage.pods.get(entry.pod.metadata.uid);
  for (const container of entry.containers) {
    const labels: Names = {
      container: container.name,
      id: container.cgroup === '' ? `${podId}/${container.id}` : container.cgroup,
      image: container.image,
      name: container.id,
      ...names,
    };
    const { timeMs } = container;
    writeUsage(page, container.usage, labels, { deviceNames, timeMs, startedAtMs: container.startedAtMs });
    const counted = processes.get(container.id);
    if (counted !== undefined) writeProcesses(page, counted, labels, timeMs);
    const disk = written?.containers.get(container.name);
    if (disk === undefined) continue;
    const device = deviceNumber(storage.node.containers.filesystem?.device ?? 0);
    page.add(FS.usage, disk.layer.usedBytes + disk.logs.usedBytes, withDevice(labels, device, deviceNames), timeMs);
  }
}

function writeProcesses(page: Exposition, usage: ProcessUsage, names: Names, timeMs: number): void {
  const labels = sorted(names);
  for (const [name, help, read] of PROCESSES) {
    const value = read(usage);
    if (value !== undefined) page.add({ name, type: 'gauge', help }, value, labels, timeMs);
  }
  if (usage.maxOpenFiles !== undefined)
    page.add(ULIMITS, usage.maxOpenFiles, withLabel(names, 'ulimit', 'max_open_files'), timeMs);
}

/** A device without a name keeps its number, so that the series of two devices differ. */
function withDevice(names: Names, device: string, deviceNames: ReadonlyMap<string, string>): Labels {
  return withLabel(names, 'device', deviceNames.get(device) ?? device);
}

function withLabel(names: Names, label: string, value: string): Labels {
  return sorted({ ...names, [label]: value });
}

function sorted(labels: object): Labels {
  return Object.fromEntries(Object.entries(labels).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}

function writeUsage(
  page: Exposition,
  usage: CgroupUsage,
  names: Names,
  {
    deviceNames,
    timeMs,
    startedAtMs,
  }: {
    readonly deviceNames: ReadonlyMap<string, string>;
    readonly timeMs: number;
    readonly startedAtMs: number | undefined;
  },
): void {
  const labels = sorted(names);
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
    const labelled = withDevice(names, device.device, deviceNames);
    for (const [name, help, read] of IO) page.add({ name, type: 'counter', help }, read(device), labelled, timeMs);
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
  page.add(
    {
      name: 'machine_scrape_error',
      type: 'gauge',
      help: '1 if there was an error while getting machine metrics, 0 otherwise.',
    },
    machine.memoryBytes > 0 ? 0 : 1,
  );
}
