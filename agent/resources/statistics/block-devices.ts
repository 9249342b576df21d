/**
 * Names block devices as cAdvisor does, such as `/dev/sda`, since dashboards select series by these names. The kernel's
 * counters and file systems have device numbers, such as `8:0`.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseMountInfo } from '../../host/mount-table.ts';

interface DeviceFiles {
  /** `/sys/dev/block` by default. */
  readonly blockDirectory?: string;
  /** The file that lists mounts; `/proc/self/mountinfo` by default. */
  readonly mountinfo?: string;
}

/** Formats a device number as the kernel does, such as `8:1`. */
export function deviceNumber(device: number): string {
  return `${(device >> 8) & 0xfff}:${(device & 0xff) | ((device >> 12) & 0xfff00)}`;
}

/**
 * Returns the names of devices by their numbers: the name of the block device, or else the source of the first mount with this
 * number, such as `tmpfs`. Devices with neither are absent.
 */
export async function deviceNames(
  numbers: Iterable<string>,
  { blockDirectory = '/sys/dev/block', mountinfo = '/proc/self/mountinfo' }: DeviceFiles = {},
): Promise<ReadonlyMap<string, string>> {
  const names = new Map<string, string>();
  const unnamed = new Set<string>();
  await Promise.all(
    [...new Set(numbers)].map(async (number) => {
      const uevent = await textOf(join(blockDirectory, number, 'uevent'));
      const name = /^DEVNAME=(.+)$/m.exec(uevent)?.[1];
      if (name === undefined) unnamed.add(number);
      else names.set(number, `/dev/${name}`);
    }),
  );
  if (unnamed.size === 0) return names;
  for (const { device, source } of parseMountInfo(await textOf(mountinfo)))
    if (unnamed.delete(device)) names.set(device, source);
  return names;
}

async function textOf(path: string): Promise<string> {
  // A file system without a block device has no such file.
  return readFile(path, 'utf8').catch(() => '');
}
