/**
 * Defines what a backup of the control plane contains, and the endpoint that returns a consistent copy of the storage of a
 * running one: no other process can read the file. `orchlet backup` and `orchlet restore` do the rest.
 */
import { stringifyJson } from '../../api/codec/json.ts';
import { randomBytes } from 'node:crypto';
import { mkdir, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import Database from 'better-sqlite3';
import { silentLogger } from '../../api/component/logger.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import type { PathHandlers } from '../server/path-handlers.ts';
import { methodNotAllowed } from '../server/router.ts';
import { openDatabase } from '../storage/sqlite/database.ts';
import { openSqliteStorage } from '../storage/sqlite/sqlite-storage.ts';
import type { Storage } from '../storage/storage.ts';

/**
 * Accepts POST and returns JSON: `{"file":"/var/lib/orchlet/backup/….db","revision":12}`. Callers need the permission to `post`
 * to this path.
 */
export const BACKUP_PATH = '/orchlet/backup';

/** Paths below the data directory. The storage file is copied separately. */
export const BACKED_UP = ['pki', 'admin.kubeconfig'] as const;
export const STORAGE_FILE = 'storage/orchlet.db';

/**
 * The revision of a restored storage is higher by this number than any that clients have seen, so that watches list again and
 * miss no lost change.
 */
const REVISION_LEAP = 1_000_000;

export function installBackup(paths: PathHandlers, storage: Storage, dataDirectory: string): void {
  paths.exact(BACKUP_PATH, async (request) => {
    if (request.exchange.method !== 'POST') throw methodNotAllowed();
    const directory = join(dataDirectory, 'backup');
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const file = join(directory, `${randomBytes(8).toString('hex')}.db`);
    const revision = storage.revision();
    try {
      await storage.copyTo(file);
    } catch (error) {
      await rm(file, { force: true });
      throw error;
    }
    request.send(200, 'application/json', stringifyJson({ file, revision }));
  });
}

/** Copies the storage of a control plane that does not run. Throws `StorageError` `locked` if it runs. */
export async function copyStorage(dataDirectory: string, file: string): Promise<void> {
  const database = openStorageFile(join(dataDirectory, STORAGE_FILE));
  try {
    await database.copyTo(file);
  } finally {
    database.close();
  }
}

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
    transformer: { seal: (_key, value) => value, unlock: () => Promise.resolve(), open: (_key, kept) => kept },
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
    const revision = lastRevision + REVISION_LEAP;
    database.remove({ compactedRevision: revision, lastRevision: revision, lastCompaction: undefined }, []);
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
