/**
 * Finds who could put something else in the place of a path: whoever owns a directory on the way may rename what is in it. Such
 * a path means one directory when root checks its owner, and another one when root works in it.
 */
import { lstatSync, readlinkSync, type Stats } from 'node:fs';
import { dirname, join, resolve } from 'node:path';

/** A user with the group of its files. */
export interface FileOwner {
  readonly uid: number;
  readonly gid: number;
}

/** The user and the group `nobody`. They stand for any user, where a group or everybody may write to a directory of root. */
const NOBODY: FileOwner = { uid: 65_534, gid: 65_534 };
const STICKY = 0o1000;
const WRITABLE_BY_GROUP = 0o020;
const WRITABLE_BY_ALL = 0o002;
/** The number of links that the kernel follows in one path. */
const MAX_LINKS = 40;

/**
 * Returns the first user, other than root, who could replace the path or a directory above it, or `undefined`. What does not
 * exist yet is left out. Throws the error of the file system.
 */
export function whoMayReplace(path: string): FileOwner | undefined {
  let remainingNames = namesOf(resolve(path));
  // All that leads to this directory has been checked, so that it stays the same.
  let at = '/';
  for (let links = 0; links <= MAX_LINKS;) {
    const [name, ...further] = remainingNames;
    if (name === undefined) return undefined;
    if (name === '..') {
      [at, remainingNames] = [dirname(at), further];
      continue;
    }
    const inside = join(at, name);
    const entry = lstatSync(inside, { throwIfNoEntry: false });
    const user = renamingUser(lstatSync(at), entry);
    if (user !== undefined || entry === undefined) return user;
    if (entry.isSymbolicLink()) {
      links += 1;
      const target = readlinkSync(inside);
      if (target.startsWith('/')) at = '/';
      remainingNames = [...namesOf(target), ...further];
    } else {
      [at, remainingNames] = [inside, further];
    }
  }
  throw new Error(`${path} has more than ${MAX_LINKS} links`);
}

const namesOf = (path: string): string[] => path.split('/').filter((name) => name !== '' && name !== '.');

/**
 * Returns a user other than root who may rename the entry, or `undefined`. In a directory with the sticky bit, such as `/tmp`,
 * only the owner of an entry may rename it.
 */
function renamingUser(directory: Stats, entry: Stats | undefined): FileOwner | undefined {
  if (directory.uid !== 0) return directory;
  const isOpen =
    (directory.mode & WRITABLE_BY_ALL) !== 0 || ((directory.mode & WRITABLE_BY_GROUP) !== 0 && directory.gid !== 0);
  if (!isOpen) return undefined;
  if ((directory.mode & STICKY) === 0) return NOBODY;
  return entry === undefined || entry.uid === 0 ? undefined : entry;
}
