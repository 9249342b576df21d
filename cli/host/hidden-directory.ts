/**
 * Makes a way to a data directory that its owner cannot reach, because it is in a directory that root alone may enter: systemd
 * keeps the state of services with `DynamicUser=` in `/var/lib/private`. The command is run once more in a mount namespace of
 * its own, in which the owner may pass.
 */
import { statSync } from 'node:fs';
import { dirname } from 'node:path';

/**
 * Mounts an empty file system over the directory that the owner cannot enter, and makes the data directory visible in it. The
 * mount hides the path of the data directory, which is therefore entered before, and is `.` afterwards. Arguments: the data
 * directory, the working directory, the program with its arguments.
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
 * Returns the command line that runs another one where the owner of the directory can reach it. Returns `undefined` unless the
 * directory above is one of root that others may not enter, because only this can be helped. `directory` has no links.
 */
export function reachingProgram(
  directory: string,
  commandLine: readonly string[],
): readonly [string, ...string[]] | undefined {
  const parent = statSync(dirname(directory));
  if (parent.uid !== 0 || (parent.mode & PASSABLE) !== 0) return undefined;
  return ['unshare', '--mount', 'sh', '-c', SCRIPT, 'sh', directory, process.cwd(), ...commandLine];
}
