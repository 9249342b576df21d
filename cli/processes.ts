/** Finds running orchlet processes of this host by the files that contain their process ids. */
import { readFile, writeFile } from 'node:fs/promises';
import { basename } from 'node:path';

/** Returns the process id in the file, if that process is alive and an orchlet: process ids are reused. */
export async function runningProcess(pidFile: string): Promise<number | undefined> {
  const pid = Number((await readFile(pidFile, 'utf8').catch(() => '')).trim());
  if (!Number.isInteger(pid) || pid <= 0 || pid === process.pid) return undefined;
  return (await isOrchlet(pid)) ? pid : undefined;
}

/** The command, a checkout's entry, and that of a bundle. */
const PROGRAM = /(^|\/)(orchlet|cli\/main\.ts|dist\/program\/main\.js)$/;

/** A process that has terminated and is not reaped yet has no command line any more. */
export async function isOrchlet(pid: number): Promise<boolean> {
  const [program = '', ...args] = (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).split('\0');
  // An editor or pager that has one of our files open also has its name among its arguments.
  if (basename(program).startsWith('orchlet')) return true;
  return /^(node|bash|sh)/.test(basename(program)) && args.some((arg) => PROGRAM.test(arg));
}

/** Overwrites the file of an earlier process. */
export async function writePid(pidFile: string): Promise<void> {
  await writeFile(pidFile, `${process.pid}\n`);
}
