/**
 * The owners and modes of volumes. Everybody can write to a volume that the agent creates. `fsGroup` changes the group of the
 * volume's tree as the kubelet does: group rw, set-group-id on directories. Running containers can change the tree meanwhile,
 * so it is walked by descriptors: no link can redirect a change to a file of the host.
 */
import { chmod, chown } from 'node:fs/promises';
import { descriptorPath, Directory, ifMissing, inDirectory } from '../base/files/beneath.ts';
import { WaitingNames } from '../base/files/waiting-names.ts';

interface OwnershipOptions {
  readonly gid: number;
  readonly readonly: boolean;
  readonly policy: 'Always' | 'OnRootMismatch';
  /** The maximum size of the names of directories that wait. */
  readonly maxNamesBytes?: number;
}

interface Walk extends OwnershipOptions {
  readonly names: WaitingNames;
}

/** The maximum depth of folders. One descriptor stays open for each level. Paths of this depth exceed the kernel's limit. */
const MAX_LEVELS = 2048;

/**
 * Sets the group and the modes of a volume's tree. With `OnRootMismatch`, a tree whose root has both already is not walked.
 * Rejects with `TooManyDirectoriesError` for more directories than can be remembered.
 */
export async function setVolumeOwnership(root: string, options: OwnershipOptions): Promise<void> {
  await inDirectory(root, async (directory) => {
    if (options.policy === 'OnRootMismatch') {
      const stat = await directory.stat();
      const wanted = modeFor('directory', options);
      if (stat.gid === options.gid && (stat.mode & 0o7777 & wanted) === wanted) return;
    }
    await changeTree(directory, { ...options, names: new WaitingNames(options.maxNamesBytes) }, 0);
  });
}

/** Lets all users write. The root of a file system that allows it already keeps its mode, such as the sticky bit of a tmpfs. */
export async function openToAll(directory: Directory): Promise<void> {
  if (((await directory.stat()).mode & 0o777) !== 0o777) await directory.chmod(0o777);
}

async function changeTree(directory: Directory, options: Walk, level: number): Promise<void> {
  if (level > MAX_LEVELS) throw new Error(`the directories of the volume are nested more than ${MAX_LEVELS} deep`);
  const { mode, uid } = await directory.stat();
  await directory.chown(uid, options.gid);
  await directory.chmod((mode & 0o7777) | modeFor('directory', options));
  // A volume may have millions of files. Only the names of directories wait, because a directory stays open while it is read.
  const inner: string[] = [];
  for await (const entry of directory.scan())
    if (entry.isDirectory()) {
      options.names.add(entry.name);
      inner.push(entry.name);
    } else await changeEntry(directory, entry.name, options, level);
  for (const name of inner) {
    options.names.remove(name);
    await changeEntry(directory, name, options, level);
  }
}

/** Sets the group and the mode of an entry and of all below it. Ignores an entry that a container removes meanwhile. */
async function changeEntry(directory: Directory, name: string, options: Walk, level: number): Promise<void> {
  const entry = await directory.pin(name).catch(ifMissing);
  if (entry === undefined) return;
  let inner: Directory | undefined;
  try {
    const stat = await entry.stat();
    if (stat.isDirectory()) {
      inner = await Directory.open(descriptorPath(entry));
    } else if (stat.isSymbolicLink()) {
      await directory.lchown(name, stat.uid, options.gid).catch(ifMissing);
    } else {
      await chown(descriptorPath(entry), stat.uid, options.gid);
      await chmod(descriptorPath(entry), (stat.mode & 0o7777) | modeFor('file', options));
    }
  } finally {
    await entry.close();
  }
  if (inner === undefined) return;
  try {
    await changeTree(inner, options, level + 1);
  } finally {
    await inner.close();
  }
}

function modeFor(kind: 'directory' | 'file', { readonly }: OwnershipOptions): number {
  const bits = readonly ? 0o440 : 0o660;
  return kind === 'directory' ? bits | 0o2110 : bits;
}
