/** Running orchlets of this host, by the files in which they write their process ids. */
import { readFile, writeFile } from 'node:fs/promises';

/** The process that the file names, if it is one of orchlet and alive: ids are used again. */
export async function runningProcess(pidFile: string): Promise<number | undefined> {
  const pid = Number((await readFile(pidFile, 'utf8').catch(() => '')).trim());
  if (!Number.isInteger(pid) || pid <= 0 || pid === process.pid) return undefined;
  return (await isOrchlet(pid)) ? pid : undefined;
}

/** One that has ended and that nobody has waited for has no command line any more. */
export async function isOrchlet(pid: number): Promise<boolean> {
  const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
  return /orchlet|cli\/main/.test(command);
}

export async function writePid(pidFile: string): Promise<void> {
  await writeFile(pidFile, `${process.pid}\n`);
}
