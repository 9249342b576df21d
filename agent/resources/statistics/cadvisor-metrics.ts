/**
 * Writes `/metrics/cadvisor`: the kernel's counters of each cgroup, with cAdvisor's metric names and labels, which existing
 * dashboards query. Metrics whose values are unknown are left out.
 */
import { deviceNumber } from './block-devices.ts';
import {
  CONSTANTS,
  COUNTERS,
  CPU,
  DISKS,
  FAILURES,
  FS,
  GAUGES,
  IO,
  NETWORK,
  NVM,
  PROCESSES,
  seconds,
  SEEN,
  SETTINGS,
  STARTED,
  TASK_STATES,
  TASKS,
  ULIMITS,
} from './cadvisor-families.ts';
import { Exposition, type Labels } from './exposition.ts';
import type { CgroupUsage } from './cgroup-usage.ts';
import type { HostFilesystem } from './host-filesystems.ts';
import type { NodeStorage, PodStorage } from './storage-usage.ts';
import type { InterfaceCounters } from './cgroup-files.ts';
import type { ProcessUsage } from './process-usage.ts';
import type { GroupUsage, PodUsage, UsageSnapshot } from './usage.ts';

interface CadvisorFacts {
  /** `undefined` if the usage could not be read. */
  readonly usage: UsageSnapshot | undefined;
  /** The processes by the path of their cgroup. */
  readonly processes: ReadonlyMap<string, ProcessUsage>;
  readonly storage: { readonly node: NodeStorage; readonly pods: ReadonlyMap<string, PodStorage> };
  readonly filesystems: readonly HostFilesystem[];
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

const NO_LABELS = { container: '', image: '', name: '', namespace: '', pod: '' };

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
  const { filesystem } = storage.node.containers;
  const cgroups =
    usage === undefined
      ? []
      : [
          usage.node,
          ...groupsOf(usage).map((group) => group.usage),
          ...usage.pods.flatMap((pod) => [pod.usage, ...pod.containers.map((container) => container.usage)]),
        ];
  return new Set([
    ...(filesystem === undefined ? [] : [deviceNumber(filesystem.device)]),
    ...cgroups.flatMap(({ io }) => io.devices.map(({ device }) => device)),
  ]);
}

function groupsOf({ allPods, qosClasses }: UsageSnapshot): readonly GroupUsage[] {
  return [...(allPods === undefined ? [] : [allPods]), ...qosClasses];
}

function writeContainers(page: Exposition, facts: CadvisorFacts, usage: UsageSnapshot): void {
  const { machine, deviceNames, filesystems } = facts;
  const { timeMs } = usage;
  const root: Names = { ...NO_LABELS, id: '/' };
  const memory = { ...usage.node.memory, limitBytes: machine.memoryBytes, swapLimitBytes: machine.swapBytes };
  writeUsage(page, { ...usage.node, memory }, root, { deviceNames, timeMs, startedAtMs: facts.bootedAtMs });
  writeProcesses(page, facts, root, { cgroup: '/', timeMs });
  writeNetwork(page, facts.interfaces, root, timeMs);
  for (const filesystem of filesystems) writeFilesystem(page, filesystem, root, timeMs);
  for (const { cgroup, usage: ofGroup, createdAtMs } of groupsOf(usage)) {
    const names: Names = { ...NO_LABELS, id: cgroup };
    writeUsage(page, ofGroup, names, { deviceNames, timeMs, startedAtMs: createdAtMs });
    writeProcesses(page, facts, names, { cgroup, timeMs });
  }
  for (const entry of usage.pods) writePod(page, facts, entry);
}

function writeFilesystem(page: Exposition, filesystem: HostFilesystem, names: Names, timeMs: number): void {
  const { device, space, counters } = filesystem;
  const labels = withLabel(names, 'device', device);
  page.add(FS.limit, space.capacityBytes, labels, timeMs);
  page.add(FS.usage, space.usedBytes, labels, timeMs);
  page.add(FS.inodes, space.inodes, labels, timeMs);
  page.add(FS.inodesFree, space.inodesFree, labels, timeMs);
  for (const [type, name, help, read] of DISKS) page.add({ name, type, help }, read(counters), labels, timeMs);
}

function writePod(page: Exposition, facts: CadvisorFacts, entry: PodUsage): void {
  const { storage, deviceNames } = facts;
  const names = { namespace: entry.pod.metadata.namespace, pod: entry.pod.metadata.name };
  const podId = entry.cgroup === '' ? `/pod${entry.pod.metadata.uid}` : entry.cgroup;
  const ofPod: Names = { ...NO_LABELS, ...names, id: podId };
  const startedAtMs = Date.parse(entry.pod.status?.startTime ?? '');
  writeUsage(page, entry.usage, ofPod, { deviceNames, timeMs: entry.timeMs, startedAtMs });
  writeProcesses(page, facts, ofPod, entry);
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
    writeProcesses(page, facts, labels, container);
    const disk = written?.containers.get(container.name);
    if (disk === undefined) continue;
    const device = deviceNumber(storage.node.containers.filesystem?.device ?? 0);
    page.add(FS.usage, disk.layer.usedBytes + disk.logs.usedBytes, withDevice(labels, device, deviceNames), timeMs);
  }
}

function writeProcesses(
  page: Exposition,
  { processes }: CadvisorFacts,
  names: Names,
  { cgroup, timeMs }: { readonly cgroup: string; readonly timeMs: number },
): void {
  const usage = processes.get(cgroup);
  if (usage === undefined) return;
  const labels = sorted(names);
  for (const [name, help, read] of PROCESSES) {
    const value = read(usage);
    if (value !== undefined) page.add({ name, type: 'gauge', help }, value, labels, timeMs);
  }
  if (usage.maxOpenFiles !== undefined)
    page.add(ULIMITS, usage.maxOpenFiles, withLabel(names, 'ulimit', 'max_open_files'), timeMs);
}

/** Adds the label `device`. A device without a name gets its number, so that the series of two devices differ. */
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
  for (const [name, help, read] of SETTINGS) {
    const value = read(usage);
    if (value !== undefined) page.add({ name, type: 'gauge', help }, value, labels);
  }
  for (const [name, help, value] of CONSTANTS) page.add({ name, type: 'gauge', help }, value, labels, timeMs);
  for (const state of TASK_STATES) page.add(TASKS, 0, withLabel(names, 'state', state), timeMs);
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
    page.add(STARTED, Math.floor(startedAtMs / 1000), labels);
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
  gauge('machine_cpu_books', 'Number of CPU books.', 0);
  gauge('machine_cpu_drawers', 'Number of CPU drawers.', 0);
  gauge('machine_cpu_physical_cores', 'Number of physical CPU cores.', machine.physicalCores);
  gauge('machine_cpu_sockets', 'Number of CPU sockets.', machine.sockets);
  gauge('machine_memory_bytes', 'Amount of memory installed on the machine.', machine.memoryBytes);
  gauge('machine_nvm_avg_power_budget_watts', 'NVM power budget.', 0);
  for (const mode of ['app_direct_mode', 'memory_mode'])
    page.add(NVM, 0, { boot_id: machine.bootId, machine_id: machine.machineId, mode, system_uuid: machine.systemUuid });
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
