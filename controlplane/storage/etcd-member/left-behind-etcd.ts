/**
 * Finds and stops an etcd whose control plane was killed. It goes on as a member, and two processes cannot have the same data.
 * The file of its process id leads to it.
 */
import { readFile } from 'node:fs/promises';
import type { Clock } from '../../../api/machinery/clock.ts';
import { StartError } from '../../model/start-error.ts';
import type { EtcdRunnerOptions } from './etcd-runner.ts';

/** How long etcd may take to exit after SIGTERM, because it hands its leadership over first. */
export const STOP_MS = 10_000;
/** How often it is checked whether the process has exited. */
const CHECK_MS = 50;

/** Terminates a process of etcd. Resolves when it has exited. Kills it after 10 s. */
export async function stopEtcdProcess(pid: number, dataDirectory: string, clock: Clock): Promise<void> {
  const end = clock.monotonic() + STOP_MS;
  let isAsked = false;
  while (await isEtcdOf(pid, dataDirectory)) {
    if (!isAsked) signal(pid, 'SIGTERM');
    isAsked = true;
    if (clock.monotonic() > end) signal(pid, 'SIGKILL');
    await clock.sleep(CHECK_MS);
  }
}

/** Sends a signal to a process, which may have exited in the meantime. */
function signal(pid: number, name: 'SIGTERM' | 'SIGKILL'): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** Stops the etcd of an earlier control plane. Throws a StartError while another control plane runs the process. */
export async function stopLeftBehindEtcd(options: EtcdRunnerOptions): Promise<void> {
  const { pidFile, dataDirectory, clock, logger } = options;
  const pid = Number((await readFile(pidFile, 'utf8').catch(() => '')).trim());
  if (!Number.isInteger(pid) || pid <= 1 || !(await isEtcdOf(pid, dataDirectory))) return;
  const parent = await parentOf(pid);
  if (
    parent > 1 &&
    parent !== process.pid &&
    (await commandOf(parent)).some((word) => /(^|\/)orchlet$|cli\/main/.test(word))
  )
    throw new StartError(
      `process ${parent} runs the etcd of ${dataDirectory}: stop it first, or give another --data-dir`,
    );
  logger.warn({ pid }, 'Stopping the etcd of an earlier control plane');
  await stopEtcdProcess(pid, dataDirectory, clock);
}

/** Whether the process runs with the data directory as an argument. */
export async function isEtcdOf(pid: number, dataDirectory: string): Promise<boolean> {
  return (await commandOf(pid)).includes(dataDirectory);
}

/** Returns the words of a command line; none if the process is gone. */
async function commandOf(pid: number): Promise<readonly string[]> {
  return (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).split('\0');
}

async function parentOf(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
  return Number(/^PPid:\s*(\d+)/m.exec(status)?.[1] ?? 0);
}
