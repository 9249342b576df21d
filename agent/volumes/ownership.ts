/** Whose a volume is: open to all where the agent made it; fsGroup gives a volume's tree to the pod's group, as the reference does: group rw, set-group-id on directories. */
import { chmod, lchown, lstat, readdir } from 'node:fs/promises';
import { join } from 'node:path';

export interface OwnershipOptions {
  readonly gid: number;
  readonly readonly: boolean;
  /** `OnRootMismatch` leaves the tree alone when its root is right already. */
  readonly policy: 'Always' | 'OnRootMismatch';
}

export async function setVolumeOwnership(root: string, options: OwnershipOptions): Promise<void> {
  if (options.policy === 'OnRootMismatch') {
    const stat = await lstat(root);
    const wanted = modeFor(true, options.readonly);
    if (stat.gid === options.gid && (stat.mode & 0o7777 & wanted) === wanted) return;
  }
  await walk(root, options);
}

/** Lets everyone write. A file system's root that lets them already keeps what else it has, as the sticky bit of a tmpfs. */
export async function openToAll(directory: string): Promise<void> {
  if (((await lstat(directory)).mode & 0o777) !== 0o777) await chmod(directory, 0o777);
}

async function walk(path: string, options: OwnershipOptions): Promise<void> {
  const stat = await lstat(path);
  await lchown(path, stat.uid, options.gid);
  if (stat.isSymbolicLink()) return;
  await chmod(path, (stat.mode & 0o7777) | modeFor(stat.isDirectory(), options.readonly));
  if (!stat.isDirectory()) return;
  for (const name of await readdir(path)) await walk(join(path, name), options);
}

function modeFor(isDirectory: boolean, readonly: boolean): number {
  const bits = readonly ? 0o440 : 0o660;
  return isDirectory ? bits | 0o2110 : bits;
}
