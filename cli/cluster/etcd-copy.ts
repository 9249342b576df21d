/** Copies the objects of a cluster between etcd and a database of this project, and compares both afterwards. */
import { mkdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { silentLogger } from '../../api/component/logger.ts';
import { STORAGE_FILE } from '../../controlplane/storage/backup/backup.ts';
import {
  type Contents,
  contentsOf,
  copyToEtcd,
  type EtcdLayout,
  rowsFromEtcd,
} from '../../controlplane/storage/etcd/transfer.ts';
import { writeSalvaged } from '../../controlplane/storage/sqlite/salvage.ts';
import { openSqliteStorage } from '../../controlplane/storage/sqlite/sqlite-storage.ts';
import { isStorageError, type Storage } from '../../controlplane/storage/storage.ts';
import type { ValueTransformer } from '../../controlplane/storage/value-transformer.ts';
import { CommandError } from '../command-line/command.ts';
import type { CommandIo } from '../command-line/io.ts';

/**
 * Writes the objects of etcd, as they are at one revision, to a new database below `directory`, and compares them. Rejects with
 * `CommandError` if etcd has none.
 */
export async function databaseFromEtcd(layout: EtcdLayout, directory: string, io: CommandIo): Promise<Contents> {
  const { etcd, prefix, transformer } = layout;
  const { rows, contents, lastRevision } = await rowsFromEtcd(layout, transformer, io.clock.now());
  if (rows.length === 0)
    throw new CommandError(`${etcd.endpoint} has no objects below ${prefix}/: give its --etcd-prefix`);
  const file = join(directory, STORAGE_FILE);
  await mkdir(dirname(file), { mode: 0o700 });
  writeSalvaged(file, { rows, lastRevision, damage: [] });
  await withDatabase(directory, transformer, io, async (storage) => assertSame(contents, await contentsOf(storage)));
  return contents;
}

/**
 * Writes the objects of the database below `directory` to etcd, which must have no key below the prefix, and compares them.
 * With `countsUp`, the revision of etcd is counted up beyond that of the database; else a warning says by how much it is below.
 */
export async function databaseToEtcd(
  directory: string,
  layout: EtcdLayout,
  { countsUp, io }: { readonly countsUp: boolean; readonly io: CommandIo },
): Promise<Contents> {
  return await withDatabase(directory, layout.transformer, io, async (storage) => {
    const { missingRevisions, ...written } = await copyToEtcd(storage, layout, { countsUp });
    assertSame(await contentsOf(storage), written);
    if (missingRevisions > 0) io.stderr.write(revisionWarning(missingRevisions));
    return written;
  });
}

async function withDatabase<T>(
  directory: string,
  transformer: ValueTransformer,
  { clock }: CommandIo,
  work: (storage: Storage) => Promise<T>,
): Promise<T> {
  let storage: Storage;
  try {
    const folder = join(directory, dirname(STORAGE_FILE));
    storage = await openSqliteStorage({ directory: folder, clock, logger: silentLogger, transformer });
  } catch (error) {
    if (!isStorageError(error)) throw error;
    throw new CommandError(`${directory} cannot be read: ${error.message}`, { cause: error });
  }
  try {
    return await work(storage);
  } finally {
    await storage.close();
  }
}

const revisionWarning = (missing: number): string =>
  `orchlet: warning: the revisions of etcd are ${missing} below those that clients have seen. Restart agents and controllers, ` +
  `or raise them: etcdutl snapshot restore --bump-revision ${missing + 1} --mark-compacted\n`;

/** Throws a `CommandError` if the two sides of a copy differ. */
export function assertSame(read: Contents, written: Contents): void {
  if (read.objects === written.objects && read.digest === written.digest) return;
  throw new CommandError(
    `${read.objects} objects were read and ${written.objects} are there now, or their contents differ: does another program write?`,
  );
}
