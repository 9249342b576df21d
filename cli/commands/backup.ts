/** `orchlet backup` writes all data of a control plane to one file, and `orchlet restore` reads it back. */
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createReadStream, createWriteStream, existsSync, type Stats } from 'node:fs';
import { mkdir, mkdtemp, rename, rm, rmdir, stat, statfs } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { json } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { type FlagTable, type ParsedFlags, UsageError } from '../../api/component/flags.ts';
import { silentLogger } from '../../api/component/logger.ts';
import { moveFile } from '../../api/machinery/replace-file.ts';
import {
  BACKED_UP,
  copyStorage,
  leapAhead,
  STORAGE_FILE,
  trialRestore,
} from '../../controlplane/storage/backup/backup.ts';
import { BACKUP_PATH } from '../../controlplane/server/endpoints/backup-endpoint.ts';
import { storageFlags } from '../../controlplane/options/storage.ts';
import { readRole } from '../../controlplane/standby/role.ts';
import type { EtcdLayout } from '../../controlplane/storage/etcd/transfer.ts';
import { isStorageError } from '../../controlplane/storage/storage.ts';
import { readArchive, verifyArchive, writeArchive } from '../backup/file.ts';
import { makeBackupScratch, removeBackupLeftovers } from '../backup/scratch.ts';
import { withOwnKubeconfig } from '../cluster/cluster-access.ts';
import { type Command, CommandError } from '../command-line/command.ts';
import { dataDirectoryFlag } from '../host/data-directory.ts';
import { countRevisions, etcdFlags, withEtcd } from '../cluster/etcd-access.ts';
import { databaseFromEtcd, databaseToEtcd } from '../cluster/etcd-copy.ts';
import { findOwnEtcd } from '../cluster/embedded-etcd.ts';
import { exchangeData } from '../host/exchange-data.ts';
import type { CommandIo } from '../command-line/io.ts';
import { step } from '../command-line/progress.ts';
import { type Rights, withRightsOfOwner } from '../host/owner-rights.ts';
import { runningProcess } from '../host/processes.ts';
import { s3Bucket, type S3Bucket } from '../s3/bucket.ts';
import { isS3, parseS3Location, s3Settings } from '../s3/settings.ts';

const dataDir = dataDirectoryFlag('Host');
const { backupS3Endpoint, backupS3Region } = storageFlags;
/** What every control plane has in its data directory. */
const KEYS = 'pki';
const flags = { dataDir, backupS3Endpoint, backupS3Region, ...etcdFlags([]) };
type Values = ParsedFlags<FlagTable>['values'];

export const backup: Command = {
  arguments: { usage: 'FILE', least: 1, most: 1 },
  description:
    'Writes a consistent copy of all objects, and the certificates and keys of the control plane, to FILE (a compressed tar archive, readable by its owner alone: it holds every secret of the cluster), and restores it into memory as a test. FILE may be s3://BUCKET/KEY: the archive is then uploaded, and read back to compare. The control plane may run meanwhile. The objects of a control plane on etcd are read from --etcd-servers, or from the etcd that it runs itself, with --encryption-provider-config if they are encrypted. Keys of that file are not in the backup: keep it too.',
  flags,
  examples: [
    'orchlet backup /root/cluster.tgz',
    'orchlet backup s3://backups/cluster.tgz',
    'orchlet backup /root/cluster.tgz --etcd-servers https://etcd-1:2379 --etcd-cafile ca.crt --etcd-certfile client.crt --etcd-keyfile client.key',
  ],
  async run(parsed, io) {
    const [place = ''] = parsed.arguments;
    const directory = resolve(String(parsed.values['dataDir']));
    const upload = isS3(place) ? await openObject(place, parsed.values, io) : undefined;
    if (upload === undefined) await checkTarget(resolve(place));
    const { objects, revision } = await withEtcdOf(directory, parsed.values, io, (etcd) =>
      withRightsOfOwner(directory, io, (rights) => backUp({ directory, place, upload, etcd }, rights, io)),
    );
    const name = upload === undefined ? resolve(place) : place;
    io.stdout.write(`${name} holds the control plane of ${directory}: ${objects} objects at revision ${revision}\n`);
    return 0;
  },
};

/** Runs `work` with the etcd of the flags, and with `undefined` if they name none. */
function withGivenEtcd<T>(
  values: Values,
  io: CommandIo,
  work: (etcd: EtcdLayout | undefined) => Promise<T>,
): Promise<T> {
  return (values['etcdServers'] as readonly string[]).length === 0 ? work(undefined) : withEtcd(values, io, work);
}

/**
 * Runs `work` with the etcd of the control plane, which the flags name or which it runs itself, and with `undefined` for a
 * control plane on a database.
 */
async function withEtcdOf<T>(
  directory: string,
  values: Values,
  io: CommandIo,
  work: (etcd: EtcdLayout | undefined) => Promise<T>,
): Promise<T> {
  const isKnown = (values['etcdServers'] as readonly string[]).length > 0 || existsSync(join(directory, STORAGE_FILE));
  const embedded = isKnown ? undefined : await findOwnEtcd(directory, io);
  return embedded === undefined ? withGivenEtcd(values, io, work) : withEtcd(values, io, work, embedded);
}

interface WantedBackup {
  readonly directory: string;
  readonly place: string;
  /** Absent if the place is a file. */
  readonly upload: S3Object | undefined;
  /** Where the objects are. Absent if they are in the database of the directory. */
  readonly etcd: EtcdLayout | undefined;
}

/** Writes the backup, and restores it as a test. */
async function backUp({ directory, place, upload, etcd }: WantedBackup, rights: Rights, io: CommandIo) {
  if (!existsSync(join(directory, etcd === undefined ? STORAGE_FILE : KEYS)))
    throw new CommandError(missingData(directory));
  refuseCopy(directory);
  await removeBackupLeftovers(directory, 0, silentLogger);
  const scratch = await makeBackupScratch(directory);
  const file = resolve(place);
  const isBeside = upload === undefined && !rights.isOfOwner;
  const partial = isBeside ? partialOf(file) : join(scratch, 'archive.tgz');
  try {
    let storage = join(scratch, 'copy.db');
    if (etcd === undefined)
      await step(io, 'Copying the database', () => copyOfStorage(directory, storage, io), { file: storage });
    else {
      await databaseFromEtcd(etcd, scratch, io);
      storage = join(scratch, STORAGE_FILE);
    }
    const sources = { directory, storage, scratch };
    await step(io, 'Writing the archive', () => writeArchive(partial, sources), { file: partial });
    const verified = await step(io, 'Restoring the archive as a test', () => verifyArchive(partial, scratch));
    if (upload !== undefined) await step(io, 'Uploading the archive', () => uploadArchive(partial, upload));
    else if (isBeside) await moveFile(partial, file);
    else await handOver(partial, file, rights);
    return verified;
  } finally {
    await rm(scratch, { recursive: true, force: true });
    if (isBeside) await rm(partial, { force: true });
  }
}

const partialOf = (file: string): string => `${file}.${randomName()}.part`;

/** Copies the archive of the owner of the data directory to a file of the caller. */
async function handOver(archive: string, file: string, rights: Rights): Promise<void> {
  const source = createReadStream(archive);
  await once(source, 'open');
  await rights.asCaller(async () => {
    const partial = partialOf(file);
    try {
      await pipeline(source, createWriteStream(partial, { flags: 'wx', mode: 0o600, flush: true }));
      await moveFile(partial, file);
    } finally {
      await rm(partial, { force: true });
    }
  });
}

/** Returns the error for a directory without a database. The directory of a control plane on etcd has keys, but no database. */
function missingData(directory: string): string {
  if (!existsSync(join(directory, KEYS))) return `${directory} holds no control plane's data: give its --data-dir`;
  return `${directory} has no database: give the --etcd-servers of its control plane`;
}

/**
 * Throws for the data directory of a standby. Its copy may end in the middle of one transaction, and only its process can read
 * it.
 */
function refuseCopy(directory: string): void {
  const role = readRole(directory);
  if (role.role === 'standby')
    throw new CommandError(`${directory} has the copy of a standby: save the first control plane, ${role.of}`);
}

const randomName = (): string => randomBytes(4).toString('hex');

/** Rejects if the file is a directory, or if its parent is not one. */
async function checkTarget(file: string): Promise<void> {
  if ((await statOf(dirname(file)))?.isDirectory() !== true)
    throw new CommandError(`${dirname(file)} is not a directory: create it first, or name another file`);
  if ((await statOf(file))?.isDirectory() === true)
    throw new CommandError(`${file} is a directory: name a file in it, such as ${join(file, 'cluster.tgz')}`);
}

const statOf = (path: string): Promise<Stats | undefined> =>
  stat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return undefined;
    throw error;
  });

interface S3Object {
  readonly bucket: S3Bucket;
  readonly key: string;
}

async function openObject(place: string, values: Values, { env, clock }: CommandIo): Promise<S3Object> {
  const { bucket, key } = parseS3Location(place, 's3://BUCKET/KEY');
  if (key === '') throw new UsageError(`${place} names a bucket: name a file in it, as s3://${bucket}/cluster.tgz`);
  const endpoint = String(values['backupS3Endpoint']);
  const settings = await s3Settings(bucket, { endpoint, region: String(values['backupS3Region']) }, env);
  return { bucket: s3Bucket(settings, clock), key };
}

/** Uploads the archive and verifies that the object in the bucket is equal to it. */
async function uploadArchive(file: string, { bucket, key }: S3Object): Promise<void> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(file), hash);
  await bucket.write(key, file);
  try {
    if ((await bucket.sha256(key, (await stat(file)).size)) !== hash.digest('hex'))
      throw new CommandError(`the S3 server returns other content than was written as ${key}`);
  } catch (error) {
    // An unverified object must not count as one of the kept backups. The earlier failure is reported.
    await bucket.remove(key).catch(() => undefined);
    throw error;
  }
}

/** The names of the copies that a control plane makes. Another name in its answer could be that of a file of root. */
const COPY_NAME = /^[0-9a-f]{16}\.db$/;

/** Copies the storage to a file. */
async function copyOfStorage(directory: string, file: string, io: CommandIo): Promise<void> {
  if ((await runningProcess(join(directory, `${STORAGE_FILE}.pid`))) === undefined)
    return await copyStorage(directory, file);
  await withOwnKubeconfig(join(directory, 'admin.kubeconfig'), io, async ({ client }) => {
    const { body } = await client.raw({ method: 'POST', path: BACKUP_PATH });
    const name = basename(((await json(body)) as { file: string }).file);
    if (!COPY_NAME.test(name)) throw new CommandError(`the control plane of ${directory} names no copy of its storage`);
    await rename(join(directory, 'backup', name), file);
  });
}

export const restore: Command = {
  arguments: { usage: 'FILE', least: 1, most: 1 },
  description:
    "Replaces the control plane's data by a backup, and keeps the previous data beside it. The control plane must be stopped. After its next start, nodes stop pods that are not in the backup, and recreate missing pods that are. FILE may be s3://BUCKET/KEY. With --etcd-servers, the objects of any backup are written to that etcd, which must have no key below the prefix, and the certificates and keys to the data directory.",
  flags: { ...flags, countRevisions },
  examples: [
    'orchlet restore /root/cluster.tgz',
    'orchlet restore s3://backups/cluster.tgz',
    'orchlet restore /root/cluster.tgz --etcd-servers http://127.0.0.1:2379',
  ],
  async run(parsed, io) {
    const [place = ''] = parsed.arguments;
    const directory = resolve(String(parsed.values['dataDir']));
    const download = isS3(place) ? await openObject(place, parsed.values, io) : undefined;
    if (download === undefined && (await statOf(resolve(place))) === undefined)
      throw new CommandError(`${resolve(place)} does not exist`);
    const isNew = (await mkdir(directory, { recursive: true, mode: 0o700 })) !== undefined;
    try {
      const countsUp = parsed.values['countRevisions'] === true;
      await withGivenEtcd(parsed.values, io, (layout) => {
        const etcd = layout === undefined ? undefined : { layout, countsUp };
        return withRightsOfOwner(directory, io, (rights) =>
          restoreTo(directory, { file: resolve(place), download, etcd }, rights, io),
        );
      });
    } finally {
      // A directory that was made for a backup that cannot be used is empty.
      if (isNew) await rmdir(directory).catch(() => undefined);
    }
    return 0;
  },
};

interface WantedRestore {
  readonly file: string;
  /** The place of the backup, if it is not the file. */
  readonly download: S3Object | undefined;
  /** Where the objects go. Absent if they go to the database of the directory. */
  readonly etcd: { readonly layout: EtcdLayout; readonly countsUp: boolean } | undefined;
}

/**
 * Replaces the data by the backup. Rejects if the control plane runs, and changes nothing if the archive cannot be restored.
 */
async function restoreTo(
  directory: string,
  { file, download, etcd }: WantedRestore,
  { isOfOwner, asCaller }: Rights,
  io: CommandIo,
): Promise<void> {
  const pid = await runningProcess(join(directory, `${STORAGE_FILE}.pid`));
  if (pid !== undefined)
    throw new CommandError(
      `the control plane of ${directory} runs (process ${pid}): stop it first, with 'orchlet stop'`,
    );
  const fresh = await mkdtemp(join(directory, 'restoring-'));
  const isCopied = download !== undefined || isOfOwner;
  const archive = isCopied ? `${fresh}.tgz` : file;
  try {
    if (download !== undefined)
      await step(io, 'Downloading the archive', () => downloadArchive(download, archive), { file: archive });
    else if (isCopied) {
      const source = await asCaller(async () => {
        const opened = createReadStream(file);
        await once(opened, 'open');
        return opened;
      });
      const copy = createWriteStream(archive, { flags: 'wx', mode: 0o600 });
      await step(io, 'Copying the archive', () => pipeline(source, copy), { file: archive });
    }
    const database = join(fresh, STORAGE_FILE);
    await step(io, 'Reading the archive', () => readArchive(archive, fresh), { file: database });
    const revision =
      etcd === undefined ? await checked(() => leapAhead(database)) : await restoreToEtcd(fresh, etcd, io);
    const names = etcd === undefined ? undefined : BACKED_UP;
    const old = await step(io, 'Writing the data to the disk', () => exchangeData(directory, fresh, names));
    io.stdout.write(
      `${directory} is as it was at revision ${revision}${old === undefined ? '' : `; what was there is in ${old}`}\n`,
    );
  } finally {
    await rm(fresh, { recursive: true, force: true });
    if (isCopied) await rm(archive, { force: true });
  }
}

/** Writes the objects to etcd. Resolves to the revision of the backup. */
async function restoreToEtcd(
  fresh: string,
  { layout, countsUp }: NonNullable<WantedRestore['etcd']>,
  io: CommandIo,
): Promise<number> {
  const database = join(fresh, STORAGE_FILE);
  const { revision } = await checked(() => trialRestore(database));
  if ((await layout.etcd.revision()) < revision) leapAhead(database);
  const { objects } = await databaseToEtcd(fresh, layout, { countsUp, io });
  io.stdout.write(`${layout.etcd.endpoint} has the ${objects} objects of the backup below ${layout.prefix}/\n`);
  return revision;
}

/** Downloads the archive. Rejects if it takes more than half of the free space, because it is extracted on the same disk. */
async function downloadArchive({ bucket, key }: S3Object, file: string): Promise<void> {
  const { bavail, bsize } = await statfs(dirname(file));
  await bucket.read(key, file, Math.floor((bavail * bsize) / 2));
}

async function checked<T>(read: () => T | Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    if (!isStorageError(error)) throw error;
    throw new CommandError(`the backup cannot be used: ${error.message}`, { cause: error });
  }
}
