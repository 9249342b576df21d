/**
 * Measures the filesystems of the host as cAdvisor lists them for the root cgroup: each device once, by the source of its first
 * mount, and each tmpfs by its mount point. Filesystems of pods and containers are left out, since each pod has several. So are
 * network filesystems, since statfs(2) hangs with their servers.
 */
import { readFile } from 'node:fs/promises';
import { type MountPoint, parseMountInfo } from '../../host/mount-table.ts';
import { type Filesystem, filesystemOf } from './disk-usage.ts';

/** The counters of a block device since the host has started (Linux: `Documentation/admin-guide/iostats`). */
export interface DiskCounters {
  readonly reads: number;
  readonly readsMerged: number;
  readonly sectorsRead: number;
  readonly readMs: number;
  readonly writes: number;
  readonly writesMerged: number;
  readonly sectorsWritten: number;
  readonly writeMs: number;
  readonly inProgress: number;
  readonly ioMs: number;
  readonly weightedIoMs: number;
}

/** A mounted filesystem. One without a block device has counters of 0. */
export interface HostFilesystem {
  /** The device of the file system, such as `/dev/sda1`, or `/dev/shm` for a tmpfs. */
  readonly device: string;
  readonly space: Filesystem;
  readonly counters: DiskCounters;
}

interface HostFiles {
  /** `/proc/self/mountinfo` by default. */
  readonly mountinfo?: string;
  /** The file with the statistics of disks; `/proc/diskstats` by default. */
  readonly diskstats?: string;
}

const DEVICE_TYPES =
  /^(ext\d?|xfs|btrfs|zfs|squashfs|f2fs|jfs|reiserfs|hfs|hfsplus|ntfs|vfat|fat|msdos|exfat|udf|iso9660)$/;
const POD_MOUNTS = /\/(volumes\/kubernetes\.io~[^/]+|sandboxes|containers)\//;

const NO_COUNTERS: DiskCounters = {
  reads: 0,
  readsMerged: 0,
  sectorsRead: 0,
  readMs: 0,
  writes: 0,
  writesMerged: 0,
  sectorsWritten: 0,
  writeMs: 0,
  inProgress: 0,
  ioMs: 0,
  weightedIoMs: 0,
};

/** Returns the filesystems in the order of their first mounts. One that cannot be measured is absent. */
export async function hostFilesystems({
  mountinfo = '/proc/self/mountinfo',
  diskstats = '/proc/diskstats',
}: HostFiles = {}): Promise<readonly HostFilesystem[]> {
  const mounts = selectMounts(parseMountInfo(await textOf(mountinfo)));
  const counters = parseDiskstats(await textOf(diskstats));
  const measured = await Promise.all(
    [...mounts].map(async ([device, mount]): Promise<HostFilesystem | undefined> => {
      const space = await filesystemOf(mount.path);
      return space && { device, space, counters: counters.get(mount.device) ?? NO_COUNTERS };
    }),
  );
  return measured.filter((filesystem) => filesystem !== undefined);
}

function selectMounts(mounts: readonly MountPoint[]): ReadonlyMap<string, MountPoint> {
  const found = new Map<string, MountPoint>();
  for (const mount of mounts) {
    if (POD_MOUNTS.test(mount.path)) continue;
    const isRoot = mount.path === '/' && mount.type !== 'rootfs';
    if (mount.type === 'tmpfs' && !isRoot) found.set(mount.path, mount);
    else if (isRoot || (DEVICE_TYPES.test(mount.type) && !found.has(mount.source))) found.set(mount.source, mount);
  }
  return found;
}

/** Returns the counters by device number. */
function parseDiskstats(text: string): ReadonlyMap<string, DiskCounters> {
  return new Map(
    text.split('\n').flatMap((line): (readonly [string, DiskCounters])[] => {
      const [major, minor, , ...values] = line.trim().split(/\s+/);
      if (minor === undefined) return [];
      const at = (index: number): number => Number(values[index] ?? 0);
      const [reads, writes] = [at(0), at(4)];
      return [
        [
          `${major}:${minor}`,
          {
            ...{ reads, readsMerged: at(1), sectorsRead: at(2), readMs: at(3) },
            ...{ writes, writesMerged: at(5), sectorsWritten: at(6), writeMs: at(7) },
            ...{ inProgress: at(8), ioMs: at(9), weightedIoMs: at(10) },
          },
        ],
      ];
    }),
  );
}

async function textOf(path: string): Promise<string> {
  // The kernel may lack this file.
  return readFile(path, 'utf8').catch(() => '');
}
