/** Finds running orchlet processes of this host by the files that contain their process ids. */
import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { readOwnedFile } from '../../agent/base/files/regular-file.ts';
import { replaceFile } from '../../api/machinery/replace-file.ts';

/**
 * Resolves to the process id in the file, if that process is alive and, because process ids are reused, `isExpected`: an
 * orchlet by default. It must belong to the owner of the file, so that nobody makes root signal a process of another user.
 * Resolves to `undefined` for any other process, for this process itself, and without the file.
 */
export async function runningProcess(
  pidFile: string,
  isExpected: (pid: number) => Promise<boolean> = isOrchlet,
): Promise<number | undefined> {
  const { text, uid } = await readOwnedFile(pidFile).catch(() => ({ text: '', uid: -1 }));
  const pid = Number(text.trim());
  if (!Number.isInteger(pid) || pid <= 0 || pid === process.pid) return undefined;
  return (await isExpected(pid)) && (await userOf(pid)) === uid ? pid : undefined;
}

/** Returns the effective user id of a process. */
async function userOf(pid: number): Promise<number | undefined> {
  const text = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
  const found = /^Uid:\s+\d+\s+(\d+)/m.exec(text)?.[1];
  return found === undefined ? undefined : Number(found);
}

/** The command, the entry file of a checkout, and that of a bundle. */
const PROGRAM = /(^|\/)(orchlet|cli\/main\.ts|dist\/program\/main\.js)$/;

/** Whether the process runs orchlet. A process that has terminated and is not reaped yet has no command line any more. */
export async function isOrchlet(pid: number): Promise<boolean> {
  const [program = '', ...args] = (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).split('\0');
  if (basename(program).startsWith('orchlet')) return true;
  // An editor or pager that has one of our files open also has its name among its arguments, so the program counts too.
  return /^(node|bash|sh)/.test(basename(program)) && args.some((arg) => PROGRAM.test(arg));
}

/** Writes the id of this process to the file, in place of that of an earlier process. */
export async function writePid(pidFile: string): Promise<void> {
  await replaceFile(pidFile, `${process.pid}\n`, { mode: 0o644, sync: 'none' });
}
