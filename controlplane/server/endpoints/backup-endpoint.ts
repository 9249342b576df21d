/**
 * Serves the endpoint that returns a consistent copy of the storage of a running control plane, whose file no other process can
 * read. It is apart from `backup.ts`, because a control plane itself does not load SQLite outside its worker.
 */
import { randomBytes } from 'node:crypto';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { stringifyJson } from '../../../api/codec/json.ts';
import type { PathHandlers } from '../path-handlers.ts';
import { methodNotAllowed } from '../router.ts';
import type { Storage } from '../../storage/storage.ts';

/**
 * Accepts POST and returns JSON: `{"file":"/var/lib/orchlet/backup/….db","revision":12}`. Callers need the permission to
 * `post` to this path.
 */
export const BACKUP_PATH = '/orchlet/backup';

/** Serves `POST` of `BACKUP_PATH`: copies the storage to a new file of the data directory, and answers with its path. */
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
