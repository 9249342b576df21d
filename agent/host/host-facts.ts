/** Reads the facts of the host that the node's status reports, from /proc, /sys and /etc. */
import { readFileSync, readdirSync } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { arch, hostname, type NetworkInterfaceInfo, networkInterfaces, platform } from 'node:os';
import { defaultRouteInterfaces, isContainerInterface } from '../../api/machinery/default-routes.ts';

/** The facts of `status.nodeInfo` that the host provides. Unknown texts are empty, except for `osImage`: `Unknown`. */
export interface SystemInfo {
  readonly machineID: string;
  readonly systemUUID: string;
  readonly bootID: string;
  readonly kernelVersion: string;
  readonly osImage: string;
  readonly operatingSystem: string;
  readonly architecture: string;
}

/** The resources of the host before reservations, without storage. */
export interface HostCapacity {
  readonly cpus: number;
  readonly memoryBytes: number;
  readonly swapBytes: number;
  /** The reserved bytes of huge pages, by page size such as `2Mi`. */
  readonly hugePages: ReadonlyMap<string, number>;
}

/** The size of one filesystem, as statfs(2) reports it to users without privileges. */
export interface FilesystemSpace {
  readonly capacityBytes: number;
  readonly availableBytes: number;
  readonly inodes: number;
  readonly inodesFree: number;
}

function readText(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    // The host does not have this file, or this user may not read it.
    return undefined;
  }
}

const ARCHITECTURES: ReadonlyMap<string, string> = new Map(
  Object.entries({
    x64: 'amd64',
    ia32: '386',
    arm: 'arm',
    arm64: 'arm64',
    ppc64: 'ppc64le',
    s390x: 's390x',
    riscv64: 'riscv64',
  }),
);

function architecture(): string {
  return ARCHITECTURES.get(arch()) ?? arch();
}

/** Reads the facts synchronously. A host without DMI has its machine ID as system UUID. */
export function systemInfo(): SystemInfo {
  const release = readText('/etc/os-release') ?? readText('/usr/lib/os-release') ?? '';
  const pretty = /^PRETTY_NAME="?([^"\n]*)"?$/m.exec(release)?.[1] ?? 'Unknown';
  const bootID = readText('/proc/sys/kernel/random/boot_id') ?? '';
  const machineID = readText('/etc/machine-id') ?? readText('/var/lib/dbus/machine-id') ?? '';
  return {
    machineID,
    systemUUID: readText('/sys/class/dmi/id/product_uuid') ?? machineID,
    bootID,
    kernelVersion: readText('/proc/sys/kernel/osrelease') ?? '',
    osImage: pretty,
    operatingSystem: platform() === 'win32' ? 'windows' : platform(),
    architecture: architecture(),
  };
}

/** Reads the capacity now, since memory and huge pages may change while the host runs. */
export function hostCapacity(): HostCapacity {
  const meminfo = readText('/proc/meminfo') ?? '';
  const kib = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(meminfo)?.[1] ?? 0);
  return {
    cpus: onlineCpus(),
    memoryBytes: kib('MemTotal') * 1024,
    swapBytes: kib('SwapTotal') * 1024,
    hugePages: hugePages(),
  };
}

/** Returns the number of online CPUs of the host, regardless of the CPUs that this process may use. */
function onlineCpus(): number {
  const ranges = readText('/sys/devices/system/cpu/online') ?? '';
  let count = 0;
  for (const range of ranges.split(',').filter((part) => part !== '')) {
    const [first, last] = range.split('-').map(Number);
    count += (last ?? first ?? 0) - (first ?? 0) + 1;
  }
  return count === 0 ? 1 : count;
}

function hugePages(): Map<string, number> {
  const found = new Map<string, number>();
  let names: string[];
  try {
    names = readdirSync('/sys/kernel/mm/hugepages');
  } catch {
    // The kernel has no huge pages.
    return found;
  }
  for (const name of names) {
    const kib = Number(/^hugepages-(\d+)kB$/.exec(name)?.[1] ?? 0);
    const count = Number(readText(`/sys/kernel/mm/hugepages/${name}/nr_hugepages`) ?? 0);
    if (kib === 0) continue;
    const size = kib >= 1024 * 1024 ? `${kib / 1024 / 1024}Gi` : kib >= 1024 ? `${kib / 1024}Mi` : `${kib}Ki`;
    found.set(size, kib * 1024 * count);
  }
  return found;
}

/** Returns the size and the free space of the filesystem of a path. Rejects with ENOENT if the path does not exist. */
export async function filesystemSpace(path: string): Promise<FilesystemSpace> {
  const stat = await statfs(path);
  return {
    capacityBytes: stat.blocks * stat.bsize,
    availableBytes: stat.bavail * stat.bsize,
    inodes: stat.files,
    inodesFree: stat.ffree,
  };
}

/** Returns the name that a node registers with. */
export function nodeNameOf(flags: { readonly hostnameOverride: string }): string {
  return (flags.hostnameOverride === '' ? hostName() : flags.hostnameOverride).trim().toLowerCase();
}

/** Returns the name of the host as uname(2) has it, without changes of case. */
export function hostName(): string {
  return hostname();
}

/**
 * Returns the addresses of the host that others can reach: those of the interfaces with a default route, whatever their names
 * are, then those of the others that are not of container networks. If there are none, returns 127.0.0.1.
 */
export function hostAddresses(
  all: Readonly<Record<string, readonly NetworkInterfaceInfo[] | undefined>> = networkInterfaces(),
  routed: readonly string[] = defaultRouteInterfaces(),
): string[] {
  const ordered = new Set([...routed, ...Object.keys(all).filter((name) => !isContainerInterface(name))]);
  const addresses = [...ordered].flatMap((name) =>
    (all[name] ?? [])
      .filter((entry) => !entry.internal && !entry.address.startsWith('fe80:'))
      .map((entry) => entry.address),
  );
  return addresses.length > 0 ? addresses : ['127.0.0.1'];
}

/** The limits of the kernel for all threads of the host together, each of which has a process id. The lower one applies. */
const PID_LIMITS = ['/proc/sys/kernel/pid_max', '/proc/sys/kernel/threads-max'];

/** Returns the maximum number of process ids of the host, as the kubelet does. `read` returns the text of an existing file. */
export function maxPids(read: (path: string) => string | undefined = readText): number {
  const limits = PID_LIMITS.map((path) => Number(read(path) ?? 0)).filter((limit) => limit > 0);
  return limits.length === 0 ? 32_768 : Math.min(...limits);
}

/** Returns the number of threads of the host, from the fourth field of `/proc/loadavg`; 0 if it cannot be read. */
export function runningPids(): number {
  return Number(/\/(\d+) /.exec(readText('/proc/loadavg') ?? '')?.[1] ?? 0);
}

/** Whether the kernel enforces AppArmor profiles. */
export function hasAppArmor(): boolean {
  return readText('/sys/module/apparmor/parameters/enabled')?.startsWith('Y') === true;
}

/** Whether the host has only cgroup v2, and not v1 as well. */
export function hasUnifiedCgroups(): boolean {
  return readText('/sys/fs/cgroup/cgroup.controllers') !== undefined;
}
