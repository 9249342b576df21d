/**
 * Makes and removes temporary files of backups below the data directory: a directory for each `orchlet backup`, named by its
 * process id, and copies of the storage that the control plane writes. The next start of the control plane removes them, and
 * the next `orchlet backup` removes the directories of processes that have exited.
 */
import { mkdir, mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../api/component/logger.ts';
import { isOrchlet } from '../host/processes.ts';

/** Matches a directory of `orchlet backup`; its group is the process id. */
const OF_PROCESS = /^work-(\d+)-/;
/** Copies that the control plane wrote, and directories of earlier versions. */
const UNOWNED = /^(?:[0-9a-f]{16}\.db(?:-journal)?|(?:stage|trial)-.+)$/;

/** Creates a directory, which the caller removes. The control plane writes its copies to the parent. */
export async function makeBackupScratch(dataDirectory: string): Promise<string> {
  const parent = join(dataDirectory, 'backup');
  await mkdir(parent, { recursive: true, mode: 0o700 });
  return mkdtemp(join(parent, `work-${process.pid}-`));
}

/**
 * Removes the directories of processes that have exited, and copies that are older than `startedAtMs`. Never rejects: failures
 * are logged.
 */
export async function removeBackupLeftovers(dataDirectory: string, startedAtMs: number, logger: Logger): Promise<void> {
  const parent = join(dataDirectory, 'backup');
  for (const name of await readdir(parent).catch(() => [])) {
    const path = join(parent, name);
    try {
      if (!(await isLeftover(name, path, startedAtMs))) continue;
      await rm(path, { recursive: true, force: true });
      logger.info({ path }, 'Removed the files of a backup that was killed');
    } catch (error) {
      logger.warn({ err: error, path }, 'The files of a backup that was killed cannot be removed');
    }
  }
}

async function isLeftover(name: string, path: string, startedAtMs: number): Promise<boolean> {
  const pid = OF_PROCESS.exec(name)?.[1];
  if (pid !== undefined) return !(await isOrchlet(Number(pid)));
  return UNOWNED.test(name) && (await stat(path)).mtimeMs < startedAtMs;
}
