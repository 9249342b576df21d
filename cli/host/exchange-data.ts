/** Replaces the data of a stopped control plane by that of a backup, or of another storage. */
import { existsSync } from 'node:fs';
import { mkdtemp, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { formatTime, systemClock } from '../../api/machinery/clock.ts';
import { replaceFile, syncFolder, syncTree } from '../../api/machinery/replace-file.ts';
import { BACKED_UP, STORAGE_FILE } from '../../controlplane/storage/backup/backup.ts';
import { UNFINISHED_RESTORE } from '../../controlplane/storage/backup/unfinished-restore.ts';

/**
 * Moves the existing data of a data directory aside and that of `fresh`, a directory in it, to its place. Resolves to the
 * directory with the previous data, if there was any, when the new data is on the disk. If the process is killed in between,
 * the mark of an unfinished restore stays, and nothing is lost: the exchange can be repeated. `names` are the files and folders
 * that are exchanged.
 */
export async function exchangeData(
  directory: string,
  fresh: string,
  names: readonly string[] = [dirname(STORAGE_FILE), ...BACKED_UP],
): Promise<string | undefined> {
  const mark = join(directory, UNFINISHED_RESTORE);
  await syncTree(fresh);
  await replaceFile(mark, '', { mode: 0o600 });
  const old = await moveAside(directory, names);
  for (const name of names) if (existsSync(join(fresh, name))) await rename(join(fresh, name), join(directory, name));
  await syncFolder(directory);
  await rm(mark);
  await syncFolder(directory);
  return old;
}

async function moveAside(directory: string, names: readonly string[]): Promise<string | undefined> {
  const there = names.filter((name) => existsSync(join(directory, name)));
  if (there.length === 0) return undefined;
  const time = formatTime(systemClock.now()).replaceAll(':', '');
  const old = await mkdtemp(join(directory, `before-restore-${time}-`));
  await syncFolder(directory);
  for (const name of there) await rename(join(directory, name), join(old, name));
  await syncFolder(old);
  return old;
}
