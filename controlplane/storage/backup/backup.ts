/**
 * Defines what a backup of the control plane contains, and works on copies of its storage and on the storage of a control plane
 * that does not run.
 */
import { dirname, join } from 'node:path';
import Database from 'better-sqlite3';
import { silentLogger } from '../../../api/component/logger.ts';
import { systemClock } from '../../../api/machinery/clock.ts';
import { marksAfterLeap } from '../log-backend.ts';
import { openDatabase } from '../sqlite/database.ts';
import { openSqliteStorage } from '../sqlite/sqlite-storage.ts';

/** Paths below the data directory. The storage file is copied separately. */
export const BACKED_UP = ['pki', 'admin.kubeconfig'] as const;
/** The path of the database within a backup and within the data directory. */
export const STORAGE_FILE = 'storage/orchlet.db';

/** Copies the storage of a control plane that does not run. Throws `StorageError` `locked` if it runs. */
export async function copyStorage(dataDirectory: string, file: string): Promise<void> {
  const database = openStorageFile(join(dataDirectory, STORAGE_FILE));
  try {
    await database.copyTo(file);
  } finally {
    database.close();
  }
}

/** What a storage that was opened for a trial contains. */
export interface TrialRestore {
  readonly objects: number;
  readonly revision: number;
}

/** Loads a copy into memory like the start of a control plane, without decoding its values. Throws `StorageError`. */
export async function trialRestore(file: string): Promise<TrialRestore> {
  const storage = await openSqliteStorage({
    directory: dirname(file),
    clock: systemClock,
    logger: silentLogger,
    transformer: { seal: (_key, value) => value, unlock: () => Promise.resolve(), open: (_key, stored) => stored },
  });
  try {
    const { items } = await storage.list('/');
    return { objects: items.length, revision: storage.revision() };
  } finally {
    await storage.close();
  }
}

/** Removes deleted and overwritten content from the copy, whose pages were copied unchanged. */
export function shrinkCopy(file: string): void {
  const database = new Database(file);
  try {
    database.exec('VACUUM');
  } finally {
    database.close();
  }
}

/** Prepares a copy for use: its next revision is one that no client has seen. Returns the revision of the backup. */
export function leapAhead(file: string): number {
  const database = openStorageFile(file);
  try {
    const { lastRevision } = database.marks;
    database.remove(marksAfterLeap(lastRevision), []);
    return lastRevision;
  } finally {
    database.close();
  }
}

function openStorageFile(file: string): ReturnType<typeof openDatabase> {
  const database = openDatabase({ file, lockFile: `${file}.pid`, sizeLimitBytes: 0, reserveBytes: 0 });
  // Reads and verifies every record.
  for (const records of database.load()) void records;
  return database;
}
