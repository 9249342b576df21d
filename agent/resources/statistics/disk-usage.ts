/**
 * Measures the disk usage of a directory like `du`: it counts blocks, counts a file with several links once, and does
 * not enter other file systems. If the directory is itself a mount point (tmpfs), the file system's own counters
 * replace the walk.
 */
import { lstat, opendir, statfs } from 'node:fs/promises';
import { dirname, join } from 'node:path';

export interface DiskUsage {
  readonly usedBytes: number;
  readonly inodesUsed: number;
}

export interface Filesystem {
  readonly capacityBytes: number;
  readonly availableBytes: number;
  /** Does not include the blocks that are reserved for root, which are not available either. */
  readonly usedBytes: number;
  readonly inodes: number;
  readonly inodesFree: number;
  /** The device number. File systems on one device share its space. */
  readonly device: number;
}

const NOTHING: DiskUsage = { usedBytes: 0, inodesUsed: 0 };

export async function filesystemOf(path: string): Promise<Filesystem | undefined> {
  try {
    const [space, entry] = await Promise.all([statfs(path), lstat(path)]);
    return {
      capacityBytes: space.blocks * space.bsize,
      availableBytes: space.bavail * space.bsize,
      usedBytes: (space.blocks - space.bfree) * space.bsize,
      inodes: space.files,
      inodesFree: space.ffree,
      device: entry.dev,
    };
  } catch {
    return undefined;
  }
}

/** The usage of a path that does not exist is zero. */
export async function diskUsage(path: string): Promise<DiskUsage> {
  try {
    const [own, parent] = await Promise.all([lstat(path), lstat(dirname(path))]);
    if (own.isDirectory() && own.dev !== parent.dev) {
      const space = await statfs(path);
      return { usedBytes: (space.blocks - space.bfree) * space.bsize, inodesUsed: space.files - space.ffree };
    }
    return await walk(path, own.dev);
  } catch {
    return NOTHING;
  }
}

async function walk(root: string, device: number): Promise<DiskUsage> {
  const linked = new Set<number>();
  let usedBytes = 0;
  let inodesUsed = 0;
  const waiting: string[] = [root];
  for (let path = waiting.pop(); path !== undefined; path = waiting.pop()) {
    const entry = await lstat(path).catch(() => undefined);
    if (entry === undefined || entry.dev !== device) continue;
    if (entry.nlink > 1 && !entry.isDirectory()) {
      if (linked.has(entry.ino)) continue;
      linked.add(entry.ino);
    }
    usedBytes += entry.blocks * 512;
    inodesUsed++;
    if (!entry.isDirectory()) continue;
    const directory = await opendir(path).catch(() => undefined);
    if (directory === undefined) continue;
    for await (const child of directory) waiting.push(join(path, child.name));
  }
  return { usedBytes, inodesUsed };
}
