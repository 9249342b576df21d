/**
 * Runs the work of root in the data directory of another user with the rights of that user. The owner may put links, FIFOs and
 * files of any content there while root reads, writes and removes files by their paths: root must not be able to do there what
 * the owner cannot.
 */
import { closeSync, constants, existsSync, openSync, realpathSync, statSync } from 'node:fs';
import { CommandError } from '../command-line/command.ts';
import type { CommandIo } from '../command-line/io.ts';
import { type FileOwner, whoMayReplace } from './replaceable-path.ts';

/** Who works in a data directory. */
export interface Rights {
  /** Whether the directory is that of another user, whose rights the work has. */
  readonly isOfOwner: boolean;
  /** Does something that concerns the caller's own files, with the caller's rights. Nothing else may run meanwhile. */
  asCaller<T>(work: () => Promise<T>): Promise<T>;
}

const OWN_RIGHTS: Rights = { isOfOwner: false, asCaller: (work) => work() };

/** The owner cannot open the directory, so that root has to make a way to it, as `run.ts` does (`hidden-directory.ts`). */
export class HiddenDirectoryError extends CommandError {
  /** The path of the directory, without symbolic links. */
  readonly directory: string;

  constructor(directory: string, uid: number) {
    super(
      `${directory} cannot be reached by the user ${uid}, who owns it or could replace it: root does not work there in its own name`,
    );
    this.directory = realpathSync(directory);
  }
}

/** The lines that were written to each output. */
const printed = new WeakMap<object, Set<string>>();

/** Prints a line once, because a command may need the rights several times. */
function printOnce(output: CommandIo['stderr'], line: string): void {
  const lines = printed.get(output) ?? new Set();
  printed.set(output, lines);
  if (lines.has(line)) return;
  lines.add(line);
  output.write(line);
}

/**
 * Runs the work, with the rights of the user who controls the directory if root calls and that is another user. Afterwards the
 * process has the rights of the caller again. The work must start no programs, because these could take back the caller's
 * rights. A directory that does not exist is the caller's, unless another user controls a directory above it. Rejects with
 * `HiddenDirectoryError`, before the work, if that user cannot reach the directory.
 */
export async function withRightsOfOwner<T>(
  directory: string,
  { stderr }: Pick<CommandIo, 'stderr'>,
  work: (rights: Rights) => Promise<T>,
): Promise<T> {
  const owner = foreignOwner(directory);
  if (owner === undefined) return work(OWN_RIGHTS);
  const { becomeOwner, becomeCaller } = switchTo(owner, directory);
  becomeOwner();
  try {
    if (!isReachable(directory)) {
      becomeCaller();
      throw new HiddenDirectoryError(directory, owner.uid);
    }
    printOnce(stderr, `${directory} is controlled by the user ${owner.uid}: working with the rights of that user\n`);
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

/** Throws a `CommandError` if the directory is that of another user and root would run `what` there with its own rights. */
export function refuseForeign(directory: string, what: string): void {
  const owner = foreignOwner(directory);
  if (owner === undefined) return;
  throw new CommandError(
    `${directory} is controlled by the user ${owner.uid}: root runs no ${what} there, because that user could put links to files of root in it, or another directory in its place; run it as that user, or give the directory and those above it to root`,
  );
}

/**
 * Returns the user who controls the directory, if this process runs as root and that is another user: its owner, or else a user
 * who could put another directory in its place and does not control this program as well.
 */
function foreignOwner(directory: string): FileOwner | undefined {
  if (process.geteuid?.() !== 0) return undefined;
  const found = statSync(directory, { throwIfNoEntry: false });
  if (found !== undefined && found.uid !== 0) return found;
  const user = whoMayReplace(directory);
  return user === undefined || isOwnerOfProgram(user) ? undefined : user;
}

/** Whether the program is that of the user, or could be replaced by the user: then root does the work of that user anyway. */
function isOwnerOfProgram({ uid }: FileOwner): boolean {
  const files = [process.execPath, process.argv[1] ?? ''].filter((file) => existsSync(file));
  return files.some((file) => statSync(file).uid === uid || whoMayReplace(file)?.uid === uid);
}

function switchTo({ uid, gid }: FileOwner, directory: string) {
  const { seteuid, setegid, getgroups, setgroups } = process;
  if (seteuid === undefined || setegid === undefined || setgroups === undefined || getgroups === undefined)
    throw new CommandError(`${directory} is that of the user ${uid}: run the command as that user`);
  const [callersGid, callersGroups] = [process.getegid?.() ?? 0, getgroups()];
  return {
    becomeOwner(): void {
      setgroups([]);
      setegid(gid);
      seteuid(uid);
    },
    becomeCaller(): void {
      seteuid(0);
      setegid(callersGid);
      setgroups(callersGroups);
    },
  };
}

/**
 * Whether the current user may open the directory, or it does not exist. `access` would check the rights of the real user,
 * which stays root.
 */
function isReachable(directory: string): boolean {
  try {
    closeSync(openSync(directory, constants.O_RDONLY | constants.O_DIRECTORY));
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EACCES') return false;
    // The work reports that it does not exist.
    if (code === 'ENOENT') return true;
    throw error;
  }
}
