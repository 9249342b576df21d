/**
 * Counts the processes of a container and their open files. Open files are counted up to a limit, because a container that
 * opens many files must not make a scrape slow.
 */
import { readdir, readFile, readlink } from 'node:fs/promises';
import { join } from 'node:path';

/** What the processes of one container hold open. */
export interface ProcessUsage {
  readonly processes: number;
  /** Absent if there are more processes or open files than are counted. */
  readonly openFiles?: { readonly descriptors: number; readonly sockets: number };
  /** The soft limit of open files of the first process; absent if it is unlimited or unknown. */
  readonly maxOpenFiles?: number;
}

/** The open files of a container with more processes or open files are not counted, because each is a read from /proc. */
const MAX_PROCESSES = 256;
const MAX_DESCRIPTORS = 4096;

/** Measures the processes of a container or another cgroup. */
export async function processUsage(pids: readonly number[], procDirectory: string): Promise<ProcessUsage> {
  const [first] = pids;
  if (first === undefined) return { processes: 0, openFiles: { descriptors: 0, sockets: 0 } };
  const openFiles = await openFilesOf(pids, procDirectory);
  const maxOpenFiles = await maxOpenFilesOf(join(procDirectory, String(first), 'limits'));
  return {
    processes: pids.length,
    ...(openFiles === undefined ? {} : { openFiles }),
    ...(maxOpenFiles === undefined ? {} : { maxOpenFiles }),
  };
}

async function openFilesOf(
  pids: readonly number[],
  procDirectory: string,
): Promise<{ descriptors: number; sockets: number } | undefined> {
  if (pids.length > MAX_PROCESSES) return undefined;
  let descriptors = 0;
  let sockets = 0;
  for (const pid of pids) {
    const directory = join(procDirectory, String(pid), 'fd');
    // A process that has exited has no open files.
    const names = await readdir(directory).catch(() => []);
    descriptors += names.length;
    if (descriptors > MAX_DESCRIPTORS) return undefined;
    // A file that was closed meanwhile has no target.
    const targets = await Promise.all(names.map((name) => readlink(join(directory, name)).catch(() => '')));
    sockets += targets.filter((target) => target.startsWith('socket:')).length;
  }
  return { descriptors, sockets };
}

async function maxOpenFilesOf(path: string): Promise<number | undefined> {
  // A process that has exited has no limits.
  const limits = await readFile(path, 'utf8').catch(() => '');
  const soft = /^Max open files\s+(\d+)/m.exec(limits)?.[1];
  return soft === undefined ? undefined : Number(soft);
}
