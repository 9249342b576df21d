/** Creates the reader for the version of cgroups that the host has: v1 has one mount per controller, v2 one for all. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { CgroupReader } from './cgroup-usage.ts';
import { ControllerReader } from './controller-reader.ts';
import { UnifiedReader } from './unified-reader.ts';

/** Creates the reader. `mountPoint` is usually `/sys/fs/cgroup`, and `meminfoFile` is `/proc/meminfo`. */
export async function createCgroupReader(mountPoint: string, meminfoFile = '/proc/meminfo'): Promise<CgroupReader> {
  // A host without cgroups has empty measurements.
  const entries: readonly string[] = await readdir(mountPoint).catch(() => []);
  if (entries.includes('cgroup.controllers')) return new UnifiedReader(mountPoint, meminfoFile);
  // A directory with the name of several controllers may be a leftover beside their own mounts.
  const shared = (controller: string): string | undefined =>
    entries.find((entry) => entry.split(',').includes(controller));
  const find = (controller: string): string =>
    join(mountPoint, entries.includes(controller) ? controller : (shared(controller) ?? controller));
  return new ControllerReader({
    cpu: find('cpu'),
    cpuacct: find('cpuacct'),
    memory: find('memory'),
    pids: find('pids'),
    blkio: find('blkio'),
  });
}
