/**
 * Measures the disk usage of a directory like `du`: it counts blocks, counts a file with several links once, and does
 * not enter other file systems. If the directory is itself a mount point (tmpfs), the file system's own counters
 * replace the walk.
 */
import type { Stats } from 'node:fs';
import { lstat, statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { Directory } from '../../files/beneath.ts';

/** The blocks and inodes that a tree uses. */
export interface DiskUsage {
  readonly usedBytes: number;
  readonly inodesUsed: number;
}

/** The size of a filesystem, as statfs(2) reports it. */
export interface Filesystem {
  readonly capacityBytes: number;
  readonly availableBytes: number;
  /** The used blocks, without those that are reserved for root, which are not available either. */
  readonly usedBytes: number;
  readonly inodes: number;
  readonly inodesFree: number;
  /** The device number. File systems on one device share its space. */
  readonly device: number;
}

const NOTHING: DiskUsage = { usedBytes: 0, inodesUsed: 0 };

/** Resolves to `undefined` if the path cannot be read. */
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
    // The directory does not exist, or its filesystem does not respond.
    return undefined;
  }
}

/** A usage that grows while it is measured. */
export type GrowingUsage = { -readonly [Key in keyof DiskUsage]: DiskUsage[Key] };

/**
 * Measures the files below a path. The usage of a path that does not exist is zero. What is found is added to `soFar` at once.
 */
export async function diskUsage(path: string, soFar?: GrowingUsage): Promise<DiskUsage> {
  try {
    const [own, parent] = await Promise.all([lstat(path), lstat(dirname(path))]);
    if (own.isDirectory() && own.dev !== parent.dev) {
      const space = await statfs(path);
      const usage = { usedBytes: (space.blocks - space.bfree) * space.bsize, inodesUsed: space.files - space.ffree };
      add(soFar, usage);
      return usage;
    }
    const { usedBytes, inodesUsed } = await walk(path, own.dev, soFar);
    return { usedBytes, inodesUsed };
  } catch {
    // The directory was removed.
    return NOTHING;
  }
}

/** Returns the usage of the files of a directory, without the directory and those in it. */
export async function filesUsage(path: string, soFar?: GrowingUsage): Promise<DiskUsage> {
  const directory = await Directory.open(path).catch(() => undefined);
  // The directory was removed, or does not exist yet.
  if (directory === undefined) return NOTHING;
  try {
    const tally = new Tally((await directory.stat()).dev, soFar);
    await tally.scan(directory);
    const { usedBytes, inodesUsed } = tally;
    return { usedBytes, inodesUsed };
  } finally {
    await directory.close();
  }
}

function add(to: GrowingUsage | undefined, { usedBytes, inodesUsed }: DiskUsage): void {
  if (to === undefined) return;
  to.usedBytes += usedBytes;
  to.inodesUsed += inodesUsed;
}

/** The maximum depth at which directories stay open while their contents are measured. */
const HELD_LEVELS = 128;

/** A directory on the way down, with the names of its directories that are not measured yet. */
interface Level {
  readonly directory: Directory;
  readonly isHeld: boolean;
  readonly inode: number;
  readonly pending: string[];
}

/**
 * Walks a directory that a container controls. The depth costs neither descriptors nor a path that the kernel refuses, and of
 * each directory only the names of its subdirectories are in memory. Deep down, the walk returns by `..`. If a container has
 * moved the directory meanwhile, the walk continues in the deepest directory that is open.
 */
async function walk(root: string, device: number, soFar: GrowingUsage | undefined): Promise<DiskUsage> {
  const tally = new Tally(device, soFar);
  const top = await lstat(root);
  if (!top.isDirectory()) {
    tally.add(top);
    return tally;
  }
  const levels: Level[] = [];
  const enter = async (directory: Directory): Promise<void> => {
    let isKept = false;
    try {
      const found = await directory.stat();
      if (found.dev !== device) return;
      tally.add(found);
      // A directory that cannot be read counts itself. What is below it is unknown.
      const pending = await tally.scan(directory).catch((): string[] => []);
      levels.push({ directory, isHeld: levels.length < HELD_LEVELS, inode: found.ino, pending });
      isKept = true;
    } finally {
      if (!isKept) await directory.close();
    }
  };
  await enter(await Directory.open(root));
  try {
    for (let level = levels.at(-1); level !== undefined; level = levels.at(-1)) {
      const name = level.pending.pop();
      if (name === undefined) await leave(levels);
      else {
        // A directory that was removed or replaced meanwhile is not measured.
        const inner = await level.directory.enter(name).catch(() => undefined);
        if (inner !== undefined) await enter(inner);
        if (!level.isHeld && levels.at(-1) !== level) await level.directory.close();
      }
    }
  } finally {
    const current = levels.at(-1);
    for (const level of levels) if (level.isHeld || level === current) await level.directory.close();
  }
  return tally;
}

async function leave(levels: Level[]): Promise<void> {
  const left = levels.pop();
  const next = levels.at(-1);
  if (left === undefined) return;
  try {
    if (next === undefined || next.isHeld) return;
    levels.pop();
    const outer = await left.directory.outer();
    if ((await outer.stat()).ino === next.inode) levels.push({ ...next, directory: outer });
    else {
      await outer.close();
      levels.length = HELD_LEVELS;
    }
  } finally {
    await left.directory.close();
  }
}

class Tally implements DiskUsage {
  usedBytes = 0;
  inodesUsed = 0;
  readonly #device: number;
  readonly #soFar: GrowingUsage | undefined;
  readonly #linked = new Set<number>();

  constructor(device: number, soFar: GrowingUsage | undefined) {
    this.#device = device;
    this.#soFar = soFar;
  }

  add(entry: Stats): void {
    if (entry.nlink > 1 && !entry.isDirectory()) {
      if (this.#linked.has(entry.ino)) return;
      this.#linked.add(entry.ino);
    }
    const usage = { usedBytes: entry.blocks * 512, inodesUsed: 1 };
    add(this, usage);
    add(this.#soFar, usage);
  }

  /** Counts all entries except directories, and returns the names of the directories. */
  async scan(directory: Directory): Promise<string[]> {
    const directories: string[] = [];
    for await (const { name } of directory.scan()) {
      // A file that was removed meanwhile is not measured.
      const entry = await directory.lstat(name).catch(() => undefined);
      if (entry === undefined || entry.dev !== this.#device) continue;
      if (entry.isDirectory()) directories.push(name);
      else this.add(entry);
    }
    return directories;
  }
}
