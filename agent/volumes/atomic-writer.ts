/**
 * Writes a set of files that a container sees change all at once. The files are in a time-stamped directory, `..data` is a link
 * to it, and the visible files are links through `..data`. Renaming that one link replaces the set.
 *
 * The writer opens everything through descriptors of the directories, so that a link that a container creates cannot redirect
 * it.
 */
import { randomBytes } from 'node:crypto';
import { Directory, ifMissing, inDirectory } from '../base/files/beneath.ts';
import { quoteText } from '../../api/meta/quote.ts';

/** A file of the set. */
export interface PayloadFile {
  readonly content: Buffer;
  /** The permission bits of the file. */
  readonly mode: number;
  /** The owner, if the volume requires one (service-account tokens). */
  readonly uid?: number;
}

/** Files by their path relative to the volume, with `/` between parts and without `..`. */
export type Payload = ReadonlyMap<string, PayloadFile>;

const DATA_LINK = '..data';
/** Matches directories of this writer: the previous one, and those that a killed writer has left. */
const STAMPED = /^\.\.\d{4}_\d\d_\d\d_\d\d_\d\d_\d\d\.[0-9a-f]+$/;

/**
 * Writes the payload to the directory. Resolves to whether the files changed. The group `gid`, if set, gets the files. Throws
 * if a path of the payload could lead out of the directory.
 */
export async function writePayload(
  path: string,
  payload: Payload,
  gid: number | undefined,
  now: Date,
): Promise<boolean> {
  for (const file of payload.keys()) checkPath(file);
  return inDirectory(path, async (directory) => {
    const current = await directory.readlink(DATA_LINK).catch(ifMissing);
    if (current !== undefined && (await isCurrent(directory, current, payload, gid))) {
      // A writer that was killed after the replacement may have left links out of date.
      await linkUserVisible(directory, payload, gid);
      return false;
    }
    const stamp = now.toISOString().replace(/[-:T]/g, '_').slice(0, 19);
    const name = `..${stamp}.${randomBytes(4).toString('hex')}`;
    await writeTree(directory, name, payload, gid);
    await directory.removeTree(`${DATA_LINK}_tmp`);
    await directory.symlink(name, `${DATA_LINK}_tmp`);
    if (gid !== undefined) await directory.lchown(`${DATA_LINK}_tmp`, -1, gid);
    await directory.rename(`${DATA_LINK}_tmp`, DATA_LINK);
    await linkUserVisible(directory, payload, gid);
    await giveToGroup(directory, gid);
    for (const entry of await directory.names())
      if (entry !== name && STAMPED.test(entry)) await directory.removeTree(entry);
    return true;
  });
}

function checkPath(path: string): void {
  const parts = path.split('/');
  if (path === '' || path.startsWith('/') || parts.includes('..') || (parts[0] ?? '').startsWith('..')) {
    throw new Error(`the path ${quoteText(path)} is not allowed in a volume`);
  }
}

/** Returns the mode of a file. If the volume has a group, the group can read every file. */
function fileMode(file: PayloadFile, gid: number | undefined): number {
  return gid === undefined ? file.mode : file.mode | 0o440;
}

/** Gives a directory to the group of the volume, if it has one. The group can enter and list the directory. */
async function giveToGroup(directory: Directory, gid: number | undefined): Promise<void> {
  if (gid === undefined) return;
  const { mode, uid } = await directory.stat();
  await directory.chown(uid, gid);
  await directory.chmod((mode & 0o7777) | 0o2550);
}

/**
 * Whether the directory behind `..data` has exactly the payload. A link to anything but a time-stamped directory does not
 * count.
 */
async function isCurrent(volume: Directory, name: string, payload: Payload, gid: number | undefined): Promise<boolean> {
  if (!STAMPED.test(name)) return false;
  const stamped = await volume.enter(name).catch(ifMissing);
  if (stamped === undefined) return false;
  try {
    const found = new Set<string>();
    return (await holdsOnly(stamped, '', { payload, gid, found })) && found.size === payload.size;
  } finally {
    await stamped.close();
  }
}

interface Comparison {
  readonly payload: Payload;
  readonly gid: number | undefined;
  /** Paths of files that are up to date. */
  readonly found: Set<string>;
}

async function holdsOnly(directory: Directory, prefix: string, comparison: Comparison): Promise<boolean> {
  for (const entry of await directory.entries()) {
    const path = `${prefix}${entry.name}`;
    const same = entry.isDirectory()
      ? await directory.inside(entry.name, (inner) => holdsOnly(inner, `${path}/`, comparison))
      : await isSame(directory, entry.name, path, comparison);
    if (!same) return false;
  }
  return true;
}

async function isSame(directory: Directory, name: string, path: string, comparison: Comparison): Promise<boolean> {
  const wanted = comparison.payload.get(path);
  if (wanted === undefined) return false;
  const stat = await directory.lstat(name);
  if (!stat.isFile() || stat.size !== wanted.content.length) return false;
  if ((stat.mode & 0o7777) !== fileMode(wanted, comparison.gid)) return false;
  if (!(await directory.readFile(name, wanted.content.length)).equals(wanted.content)) return false;
  comparison.found.add(path);
  return true;
}

async function writeTree(volume: Directory, name: string, payload: Payload, gid: number | undefined): Promise<void> {
  await (await volume.make(name, 0o755)).close();
  await volume.inside(name, async (stamped) => {
    await giveToGroup(stamped, gid);
    for (const [path, file] of payload) await writeBelow(stamped, path.split('/'), file, gid);
  });
}

async function writeBelow(
  directory: Directory,
  [name = '', ...innerParts]: readonly string[],
  file: PayloadFile,
  gid: number | undefined,
): Promise<void> {
  if (innerParts.length === 0) {
    const owner = gid === undefined && file.uid === undefined ? {} : { uid: file.uid ?? 0, gid: gid ?? 0 };
    return directory.createFile(name, { content: file.content, mode: fileMode(file, gid), ...owner });
  }
  await (await directory.make(name, 0o755)).close();
  await directory.inside(name, async (inner) => {
    await giveToGroup(inner, gid);
    await writeBelow(inner, innerParts, file, gid);
  });
}

/** Returns the target of a link, or `undefined` if there is nothing or no link with this name. */
async function linkTarget(directory: Directory, name: string): Promise<string | undefined> {
  return directory.readlink(name).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'EINVAL') return undefined;
    throw error;
  });
}

/** Links the first part of each path through `..data`, and removes links whose files are no longer in the payload. */
async function linkUserVisible(directory: Directory, payload: Payload, gid: number | undefined): Promise<void> {
  const wanted = new Set([...payload.keys()].map((path) => path.split('/')[0] ?? path));
  for (const entry of await directory.names()) {
    if (entry.startsWith('..') || wanted.has(entry)) continue;
    // Removes only links of this writer, because a mount below the volume has a directory here.
    if ((await linkTarget(directory, entry)) === `${DATA_LINK}/${entry}`) await directory.unlink(entry);
  }
  for (const name of wanted) {
    const target = `${DATA_LINK}/${name}`;
    const existing = await linkTarget(directory, name);
    if (existing === target) continue;
    if (existing !== undefined) await directory.unlink(name);
    await directory.symlink(target, name);
    if (gid !== undefined) await directory.lchown(name, -1, gid);
  }
}
