/**
 * `orchlet doctor --data`: finds damage in the database of a stopped control plane, and exports the readable records as an
 * archive. The files are only opened for reading. `commands/doctor.ts` calls it.
 */
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { moveFile } from '../../api/machinery/replace-file.ts';
import { STORAGE_FILE } from '../../controlplane/backup/backup.ts';
import { salvage, type Salvage, writeSalvaged } from '../../controlplane/storage/sqlite/salvage.ts';
import { verifyArchive, writeArchive } from '../backup/file.ts';
import { CommandError } from '../command.ts';
import { runningProcess } from '../processes.ts';

/** What was found in the database. */
export interface ExaminedData {
  readonly records: number;
  readonly lastRevision: number;
  /** Sentences for a person. */
  readonly damage: readonly string[];
  /** The content of the archive. `undefined` without an archive. */
  readonly exported: { readonly file: string; readonly objects: number } | undefined;
}

/**
 * Examines the database of a data directory. `exportFile` is the archive to write, a file that does not exist yet, or `''` for
 * none. Rejects with `CommandError`.
 */
export async function examineData(directory: string, exportFile: string): Promise<ExaminedData> {
  const file = join(directory, STORAGE_FILE);
  if (!existsSync(file)) throw new CommandError(`${file} is missing: give the --data-dir of a control plane`);
  const pid = await runningProcess(`${file}.pid`);
  if (pid !== undefined)
    throw new CommandError(
      `the control plane of ${directory} runs (process ${pid}) and changes the files: stop it with 'orchlet stop', pods run on`,
    );
  const found = salvage(file);
  const { rows, lastRevision, damage } = found;
  const exported = exportFile === '' ? undefined : await exportSalvaged(found, directory, resolve(exportFile));
  return { records: rows.length, lastRevision, damage, exported };
}

/**
 * Writes the readable records to an archive. Everything is written beside the archive, because the disk of the database may be
 * the one that fails.
 */
async function exportSalvaged(
  found: Salvage,
  directory: string,
  file: string,
): Promise<{ readonly file: string; readonly objects: number }> {
  if (existsSync(file)) throw new CommandError(`${file} exists`);
  const scratch = await mkdtemp(join(dirname(file), '.orchlet-export-'));
  try {
    const storage = join(scratch, 'salvaged.db');
    writeSalvaged(storage, found);
    const draft = join(scratch, 'archive.tgz');
    await writeArchive(draft, { directory, storage, scratch });
    const { objects } = await verifyArchive(draft, scratch);
    await moveFile(draft, file);
    return { file, objects };
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}
