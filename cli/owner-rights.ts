/**
 * Runs the work of root in the data directory of another user with the rights of that user. The owner may put links, FIFOs and
 * files of any content there while root reads, writes, removes and gives away files by their paths: root must not be able to do
 * there what the owner cannot.
 */
import { constants } from 'node:fs';
import { lchown, open, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { descriptorPath } from '../agent/files/beneath.ts';
import { CommandError } from './command.ts';
import type { CommandIo } from './io.ts';

/** Who works in a data directory. */
export interface Rights {
  /** Whether the directory is that of another user, whose rights the work has. */
  readonly isOfOwner: boolean;
  /** Does something that concerns the caller's own files, with the caller's rights. Nothing else may run meanwhile. */
  asCaller<T>(work: () => Promise<T>): Promise<T>;
}

const OWN_RIGHTS: Rights = { isOfOwner: false, asCaller: (work) => work() };

/**
 * Resolves to the result of the work. Afterwards the process has the rights of the caller again. The work starts no programs,
 * because these could take back the caller's rights. A directory that does not exist is the caller's. The work also has the
 * caller's rights where the owner cannot reach the directory, as that of a service of systemd with a user of its own.
 */
export async function withRightsOfOwner<T>(
  directory: string,
  { stderr }: Pick<CommandIo, 'stderr'>,
  work: (rights: Rights) => Promise<T>,
): Promise<T> {
  const found = await stat(directory).catch(ifMissing);
  const { geteuid, seteuid, setegid, getgroups, setgroups } = process;
  if (found === undefined || found.uid === 0 || geteuid?.() !== 0) return work(OWN_RIGHTS);
  if (seteuid === undefined || setegid === undefined || setgroups === undefined || getgroups === undefined)
    throw new CommandError(`${directory} is that of the user ${found.uid}: run the command as that user`);
  const { uid, gid } = found;
  const [callersGid, callersGroups] = [process.getegid?.() ?? 0, getgroups()];
  const becomeOwner = (): void => {
    setgroups([]);
    setegid(gid);
    seteuid(uid);
  };
  const becomeCaller = (): void => {
    seteuid(0);
    setegid(callersGid);
    setgroups(callersGroups);
  };
  becomeOwner();
  try {
    if (!(await isReachable(directory))) {
      becomeCaller();
      return await work(OWN_RIGHTS);
    }
    stderr.write(`${directory} belongs to the user ${uid}: working with the rights of that user\n`);
    return await work({
      isOfOwner: true,
      async asCaller(inner) {
        becomeCaller();
        try {
          return await inner();
        } finally {
          becomeOwner();
        }
      },
    });
  } finally {
    becomeCaller();
  }
}

/** `access` would check the rights of the real user, which stays root. */
async function isReachable(directory: string): Promise<boolean> {
  try {
    await (await open(directory)).close();
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EACCES') return false;
    throw error;
  }
}

/**
 * Gives what root has made in the data directory of another user to that user: a file, or a folder that only root can open.
 * What has taken its place meanwhile is not given away.
 */
export async function giveToOwner(path: string, directory: string): Promise<void> {
  if (process.geteuid?.() !== 0) return;
  const { uid, gid } = await stat(directory);
  if (uid === 0) return;
  await using made = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  const found = await made.stat();
  if (found.uid !== 0) throw new CommandError(`${path} was replaced by the user ${found.uid}`);
  if (found.isDirectory()) await giveChildren(descriptorPath(made), { uid, gid });
  await made.chown(uid, gid);
}

/** The owner can change nothing in the folders, because nobody else can open the one at the top yet. */
async function giveChildren(path: string, owner: { readonly uid: number; readonly gid: number }): Promise<void> {
  for (const entry of await readdir(path, { withFileTypes: true })) {
    const child = join(path, entry.name);
    if (entry.isDirectory()) await giveChildren(child, owner);
    await lchown(child, owner.uid, owner.gid);
  }
}

function ifMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code === 'ENOENT') return undefined;
  throw error;
}
