/**
 * Measures the disk usage of a directory like `du`: it counts blocks, counts a file with several links once, and does
 * not enter other file systems. If the directory is itself a mount point (tmpfs), the file system's own counters
 * replace the walk. They also replace it if a container has created so many directories that their names do not fit into
 * memory: a pod that cannot be measured counts for more than it uses, rather than for less.
 */
import type { Stats, StatsFs } from 'node:fs';
import { lstat, statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { Directory } from '../../base/files/beneath.ts';
import { TooManyDirectoriesError, WaitingNames } from '../../base/files/waiting-names.ts';

/** The blocks and inodes that a tree uses. */
export interface DiskUsage {
  readonly usedBytes: number;
  readonly inodesUsed: number;
}

/** The size of a filesystem, as statfs(2) reports it. */
export interface Filesystem {
  readonly capacityBytes: number;
  readonly availableBytes: number;
  /** Blocks that are reserved for root count neither as used nor as available. */
  readonly usedBytes: number;
  readonly inodes: number;
  readonly inodesFree: number;
  /** The device number. File systems on one device share its space. */
  readonly device: number;
}

/**
 * Returns a count that every client can decode. Servers of file systems and CSI drivers report any number, and clients in Go
 * reject a whole page with a negative one, or with one of more than 64 bits.
 */
export function countOf(value: number): number {
  return Math.min(Math.max(0, Math.trunc(value) || 0), Number.MAX_SAFE_INTEGER);
}

/** What statfs(2) reports, of which the server of a remote file system chooses every number. */
type Statfs = Pick<StatsFs, 'blocks' | 'bfree' | 'bavail' | 'bsize' | 'files' | 'ffree'>;

/** Converts the counters of a file system. Pure. */
export function fromStatfs(space: Statfs): Omit<Filesystem, 'device'> {
  return {
    capacityBytes: countOf(space.blocks * space.bsize),
    availableBytes: countOf(space.bavail * space.bsize),
    usedBytes: countOf((space.blocks - space.bfree) * space.bsize),
    inodes: countOf(space.files),
    inodesFree: countOf(space.ffree),
  };
}

const NOTHING: DiskUsage = { usedBytes: 0, inodesUsed: 0 };

/** Reads the size of the filesystem that holds the path. Resolves to `undefined` if the path cannot be read. */
export async function filesystemOf(path: string): Promise<Filesystem | undefined> {
  try {
    const [space, entry] = await Promise.all([statfs(path), lstat(path)]);
    return { ...fromStatfs(space), device: entry.dev };
  } catch {
    // The directory does not exist, or its filesystem does not respond.
    return undefined;
  }
}

/** A usage that grows while it is measured. */
export type GrowingUsage = { -readonly [Key in keyof DiskUsage]: DiskUsage[Key] };

/** The bounds of a walk's memory, which tests lower. */
interface WalkBounds {
  /** The maximum size of the names of directories that wait. */
  readonly maxNamesBytes?: number;
  /** The maximum number of files with several links that are remembered. */
  readonly maxLinked?: number;
}

/**
 * Measures the files below a path. For a mount point, and for a tree with too many directories, it returns the usage of the
 * whole filesystem. The usage is zero if the path does not exist or cannot be read. Files that are found are added to `soFar`
 * at once.
 */
export async function diskUsage(path: string, soFar?: GrowingUsage, bounds: WalkBounds = {}): Promise<DiskUsage> {
  try {
    const [entry, parent] = await Promise.all([lstat(path), lstat(dirname(path))]);
    if (entry.isDirectory() && entry.dev !== parent.dev) return await wholeFilesystem(path, soFar);
    const { usedBytes, inodesUsed } = await walk(path, entry.dev, soFar, bounds);
    return { usedBytes: Math.round(usedBytes), inodesUsed: Math.round(inodesUsed) };
  } catch (error) {
    if (error instanceof TooManyDirectoriesError) return wholeFilesystem(path, soFar).catch(() => NOTHING);
    // The directory was removed.
    return NOTHING;
  }
}

async function wholeFilesystem(path: string, soFar: GrowingUsage | undefined): Promise<DiskUsage> {
  const { usedBytes, inodes, inodesFree } = fromStatfs(await statfs(path));
  const usage = { usedBytes, inodesUsed: countOf(inodes - inodesFree) };
  add(soFar, usage);
  return usage;
}

/**
 * Returns the usage of the files directly in a directory, without its subdirectories and itself. The usage is zero if the
 * directory cannot be opened.
 */
export async function filesUsage(path: string, soFar?: GrowingUsage): Promise<DiskUsage> {
  const directory = await Directory.open(path).catch(() => undefined);
  // The directory was removed, or does not exist yet.
  if (directory === undefined) return NOTHING;
  try {
    const tally = new Tally((await directory.stat()).dev, soFar);
    await tally.scan(directory);
    const { usedBytes, inodesUsed } = tally;
    return { usedBytes: Math.round(usedBytes), inodesUsed: Math.round(inodesUsed) };
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
 * Walks a directory that a container controls. The depth costs neither descriptors nor a path that the kernel refuses, and
 * of each directory only the names of its subdirectories are in memory.
 */
async function walk(
  root: string,
  device: number,
  soFar: GrowingUsage | undefined,
  { maxNamesBytes, maxLinked }: WalkBounds,
): Promise<DiskUsage> {
  const tally = new Tally(device, soFar, maxLinked);
  const names = new WaitingNames(maxNamesBytes);
  const top = await lstat(root);
  if (!top.isDirectory()) {
    tally.add(top);
    return tally;
  }
  const levels: Level[] = [];
  const enter = async (directory: Directory): Promise<void> => {
    let isEntered = false;
    try {
      const found = await directory.stat();
      if (found.dev !== device) return;
      tally.add(found);
      // A directory that cannot be read counts itself. What is below it is unknown.
      const pending = await tally.scan(directory, names).catch((error: unknown): string[] => {
        if (error instanceof TooManyDirectoriesError) throw error;
        return [];
      });
      levels.push({ directory, isHeld: levels.length < HELD_LEVELS, inode: found.ino, pending });
      isEntered = true;
    } finally {
      if (!isEntered) await directory.close();
    }
  };
  await enter(await Directory.open(root));
  try {
    for (let level = levels.at(-1); level !== undefined; level = levels.at(-1)) {
      const name = level.pending.pop();
      if (name === undefined) await leave(levels);
      else {
        names.remove(name);
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

/** Leaves the innermost directory. Drops levels whose directories are not found again by `..`. */
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

/** The maximum number of files with several links that are remembered. */
const MAX_LINKED = 1 << 20;

class Tally implements DiskUsage {
  usedBytes = 0;
  inodesUsed = 0;
  readonly #device: number;
  readonly #soFar: GrowingUsage | undefined;
  readonly #linked = new Set<number>();
  readonly #maxLinked: number;

  constructor(device: number, soFar: GrowingUsage | undefined, maxLinked = MAX_LINKED) {
    this.#device = device;
    this.#soFar = soFar;
    this.#maxLinked = maxLinked;
  }

  add(entry: Stats): void {
    // Each link of a file that is not remembered counts for its share.
    let share = 1;
    if (entry.nlink > 1 && !entry.isDirectory()) {
      if (this.#linked.has(entry.ino)) return;
      if (this.#linked.size < this.#maxLinked) this.#linked.add(entry.ino);
      else share = 1 / entry.nlink;
    }
    const usage = { usedBytes: entry.blocks * 512 * share, inodesUsed: share };
    add(this, usage);
    add(this.#soFar, usage);
  }

  /**
   * Counts all entries on the device of the walk except directories. Adds the names of the directories to `names` and returns
   * them. Without `names` it returns none.
   */
  async scan(directory: Directory, names?: WaitingNames): Promise<string[]> {
    const directories: string[] = [];
    for await (const { name } of directory.scan()) {
      // A file that was removed meanwhile is not measured.
      const entry = await directory.lstat(name).catch(() => undefined);
      if (entry === undefined || entry.dev !== this.#device) continue;
      if (!entry.isDirectory()) this.add(entry);
      else if (names !== undefined) {
        names.add(name);
        directories.push(name);
      }
    }
    return directories;
  }
}
