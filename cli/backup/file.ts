/** Writes the file of a backup from a copy of the storage, verifies it by a trial restore, and reads it. */
import { stringifyJson } from '../../api/codec/json.ts';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { formatTime, systemClock } from '../../api/machinery/clock.ts';
import { errorMessage } from '../../api/meta/error-message.ts';
import {
  BACKED_UP,
  shrinkCopy,
  STORAGE_FILE,
  trialRestore,
  type TrialRestore,
} from '../../controlplane/storage/backup/backup.ts';
import { isStorageError } from '../../controlplane/storage/storage.ts';
import { readBackupArchive, writeBackupArchive } from './archive.ts';
import { CommandError } from '../command-line/command.ts';

const METADATA_FILE = 'backup.json';
const FORMAT = 1;

interface ArchiveSources {
  /** The data directory. */
  readonly directory: string;
  /** A copy of the storage, which is moved into the archive. */
  readonly storage: string;
  /** An existing directory on the file system of the copy. */
  readonly scratch: string;
}

/**
 * Writes the archive to a new file: the metadata, the copy of the storage, and those of `BACKED_UP` that the data directory
 * has.
 */
export async function writeArchive(file: string, { directory, storage, scratch }: ArchiveSources): Promise<void> {
  const stage = await mkdtemp(join(scratch, 'stage-'));
  try {
    await mkdir(join(stage, dirname(STORAGE_FILE)));
    await rename(storage, join(stage, STORAGE_FILE));
    shrinkCopy(join(stage, STORAGE_FILE));
    await writeFile(join(stage, METADATA_FILE), stringifyJson({ format: FORMAT, made: formatTime(systemClock.now()) }));
    await writeBackupArchive(file, [
      { directory: stage, path: METADATA_FILE },
      { directory: stage, path: STORAGE_FILE },
      ...BACKED_UP.filter((name) => existsSync(join(directory, name))).map((path) => ({ directory, path })),
    ]);
  } finally {
    await rm(stage, { recursive: true, force: true });
  }
}

/** Restores the archive as a trial. Rejects with `CommandError` if it cannot be restored. */
export async function verifyArchive(file: string, scratch: string): Promise<TrialRestore> {
  const trial = await mkdtemp(join(scratch, 'trial-'));
  try {
    await readArchive(file, trial);
    return await trialRestore(join(trial, STORAGE_FILE));
  } catch (error) {
    if (!isStorageError(error)) throw error;
    throw new CommandError(`the backup cannot be restored: ${error.message}`, { cause: error });
  } finally {
    await rm(trial, { recursive: true, force: true });
  }
}

/** Extracts an archive into an empty directory. Rejects with `CommandError` if it is no backup. */
export async function readArchive(file: string, directory: string): Promise<void> {
  try {
    await readBackupArchive(file, directory, { storage: STORAGE_FILE, otherNames: [METADATA_FILE, ...BACKED_UP] });
  } catch (error) {
    const why = errorMessage(error);
    throw new CommandError(`${file} cannot be read as a backup: ${why}`, { cause: error });
  }
  if ((await formatOf(join(directory, METADATA_FILE))) !== FORMAT || !existsSync(join(directory, STORAGE_FILE)))
    throw new CommandError(`${file} is no backup that this version of orchlet knows`);
}

/** Reads the format of a backup, and returns `undefined` if the file is missing or holds something else. */
async function formatOf(metadataFile: string): Promise<unknown> {
  const text = await readFile(metadataFile, 'utf8').catch(() => '{}');
  try {
    const read: unknown = JSON.parse(text);
    return typeof read === 'object' && read !== null && 'format' in read ? read.format : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}
