/**
 * Implements `orchlet doctor --data`: finds damage in the database of a stopped control plane, and exports the readable records
 * as an archive. The files are only opened for reading.
 */
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { ifMissing } from '../../agent/base/files/beneath.ts';
import { readRegularFile } from '../../agent/base/files/regular-file.ts';
import { moveFile } from '../../api/machinery/replace-file.ts';
import { BACKED_UP, STORAGE_FILE } from '../../controlplane/storage/backup/backup.ts';
import { salvage, type Salvage, writeSalvaged } from '../../controlplane/storage/sqlite/salvage.ts';
import { verifyArchive, writeArchive } from '../backup/file.ts';
import { CommandError } from '../command-line/command.ts';
import type { CommandIo } from '../command-line/io.ts';
import { withRightsOfOwner } from '../host/owner-rights.ts';
import { runningProcess } from '../host/processes.ts';
import { largeStep, step } from '../command-line/progress.ts';

/** Keys, certificates and kubeconfigs are much smaller. */
const MAX_FILE_BYTES = 16 << 20;

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
 * none. Rejects with `CommandError` if there is no database, the control plane runs, or `exportFile` exists.
 */
export async function examineData(directory: string, exportFile: string, io: CommandIo): Promise<ExaminedData> {
  const read = await withRightsOfOwner(directory, io, () => readData(directory, io));
  const { rows, lastRevision, damage } = read.found;
  const exported = exportFile === '' ? undefined : await exportSalvaged(read, resolve(exportFile), io);
  return { records: rows.length, lastRevision, damage, exported };
}

interface ReadData {
  readonly found: Salvage;
  /** The other files of a backup. */
  readonly otherFiles: readonly SmallFile[];
}

async function readData(directory: string, io: CommandIo): Promise<ReadData> {
  const file = join(directory, STORAGE_FILE);
  if (!existsSync(file)) throw new CommandError(`${file} is missing: give the --data-dir of a control plane`);
  const pid = await runningProcess(`${file}.pid`);
  if (pid !== undefined)
    throw new CommandError(
      `the control plane of ${directory} runs (process ${pid}) and changes the files: stop it with 'orchlet stop', pods run on`,
    );
  const found = await largeStep(io, 'Examining the database', file, () => salvage(file));
  return { found, otherFiles: (await Promise.all(BACKED_UP.map((name) => filesOf(directory, name)))).flat() };
}

interface SmallFile {
  /** Relative to the data directory. */
  readonly path: string;
  readonly mode: number;
  readonly content: Buffer;
}

/** Reads a file, or all files below a folder. Resolves to an empty list if the path does not exist. */
async function filesOf(directory: string, path: string): Promise<readonly SmallFile[]> {
  const place = join(directory, path);
  const found = await stat(place).catch(ifMissing);
  if (found === undefined) return [];
  if (!found.isDirectory())
    return [{ path, mode: found.mode & 0o777, content: await readRegularFile(place, MAX_FILE_BYTES) }];
  const inner = await Promise.all((await readdir(place)).map((name) => filesOf(directory, join(path, name))));
  return inner.flat();
}

/**
 * Writes the readable records to an archive. Everything is written beside the archive, because the disk of the database may be
 * the one that fails.
 */
async function exportSalvaged(
  { found, otherFiles }: ReadData,
  file: string,
  io: CommandIo,
): Promise<{ readonly file: string; readonly objects: number }> {
  if (existsSync(file)) throw new CommandError(`${file} exists already: name a new file with --export`);
  const scratch = await mkdtemp(join(dirname(file), '.orchlet-export-'));
  try {
    const storage = join(scratch, 'salvaged.db');
    writeSalvaged(storage, found);
    const directory = join(scratch, 'other-files');
    for (const { path, mode, content } of otherFiles) {
      await mkdir(dirname(join(directory, path)), { recursive: true, mode: 0o700 });
      await writeFile(join(directory, path), content, { flag: 'wx', mode });
    }
    const draft = join(scratch, 'archive.tgz');
    const sources = { directory, storage, scratch };
    await step(io, 'Writing the archive', () => writeArchive(draft, sources), { file: draft });
    const { objects } = await step(io, 'Restoring the archive as a test', () => verifyArchive(draft, scratch));
    await moveFile(draft, file);
    return { file, objects };
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}
