/**
 * Makes a way to a data directory that its owner cannot reach, because it is in a directory that root alone may enter:
 * systemd keeps the state of services with `DynamicUser=` in `/var/lib/private`. The command is run once more in a mount
 * namespace of its own, in which the owner may pass. Nobody else sees it, and it ends with the command.
 */
import { statSync } from 'node:fs';
import { dirname } from 'node:path';

/**
 * An empty directory covers the one that the owner cannot enter, and has the data directory alone. `.` is the data directory
 * from before. Arguments: the data directory, the working directory, the program with its arguments.
 */
const SCRIPT = [
  'data=$1 here=$2; shift 2',
  'cd "$data"',
  'mount -n -t tmpfs -o mode=0711,size=64k,nosuid,nodev,noexec orchlet "${data%/*}"',
  'mkdir "$data"',
  'mount -n -c --bind . "$data"',
  'cd "$here"',
  'exec "$@"',
].join(' && ');

/**
 * The permission bit by which everybody may enter a directory. `SCRIPT` gives it to the directory that it mounts above the
 * data.
 */
const PASSABLE = 0o001;

/**
 * Returns a program that runs a command line where the owner of the directory can reach it. `undefined` where that would not
 * help: it is the owner who has closed the directory, or another one above it is closed as well. `directory` has no links.
 */
export function reachingProgram(
  directory: string,
  commandLine: readonly string[],
): readonly [string, ...string[]] | undefined {
  const parent = statSync(dirname(directory));
  if (parent.uid !== 0 || (parent.mode & PASSABLE) !== 0) return undefined;
  return ['unshare', '--mount', 'sh', '-c', SCRIPT, 'sh', directory, process.cwd(), ...commandLine];
}
