/** Running orchlets of this host, by the files in which they write their process ids. */
import { readFile, writeFile } from 'node:fs/promises';
import { basename } from 'node:path';

/** The process that the file names, if it is one of orchlet and alive: ids are used again. */
export async function runningProcess(pidFile: string): Promise<number | undefined> {
  const pid = Number((await readFile(pidFile, 'utf8').catch(() => '')).trim());
  if (!Number.isInteger(pid) || pid <= 0 || pid === process.pid) return undefined;
  return (await isOrchlet(pid)) ? pid : undefined;
}

/** A process that has terminated and is not reaped yet has no command line any more. */
export async function isOrchlet(pid: number): Promise<boolean> {
  const [program = '', ...args] = (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).split('\0');
  // An editor or a pager of our files has their names among its arguments too.
  if (basename(program).startsWith('orchlet')) return true;
  return /^(node|bash|sh)/.test(basename(program)) && args.some((arg) => /(^|\/)(orchlet|cli\/main\.[jt]s)$/.test(arg));
}

export async function writePid(pidFile: string): Promise<void> {
  await writeFile(pidFile, `${process.pid}\n`);
}
