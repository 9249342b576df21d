/** `orchlet migrate`: moves the objects of a cluster between the storage of a control plane and an etcd cluster. */
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { createProtobufCodec } from '../../api/codec/protobuf.ts';
import { flag, type FlagTable, type ParsedFlags, UsageError } from '../../api/component/flags.ts';
import { silentLogger } from '../../api/component/logger.ts';
import { MetricsRegistry } from '../../api/component/metrics.ts';
import type { GrpcTls } from '../../api/grpc/grpc-channel.ts';
import { loadSchema } from '../../api/schema/table.ts';
import { leapAhead, STORAGE_FILE } from '../../controlplane/backup/backup.ts';
import { buildEncryption } from '../../controlplane/encryption/build.ts';
import { storageFlags } from '../../controlplane/options/storage.ts';
import { connectEtcd, type EtcdClient } from '../../controlplane/storage/etcd/etcd-client.ts';
import { etcdTlsProblem, readEtcdTls } from '../../controlplane/storage/etcd/etcd-tls.ts';
import { etcdKeys } from '../../controlplane/storage/etcd/keys.ts';
import {
  type Contents,
  contentsInEtcd,
  contentsOf,
  copyToEtcd,
  type EtcdLayout,
  rowsFromEtcd,
} from '../../controlplane/storage/etcd/transfer.ts';
import { etcdValues } from '../../controlplane/storage/etcd/values.ts';
import { writeSalvaged } from '../../controlplane/storage/sqlite/salvage.ts';
import { openSqliteStorage } from '../../controlplane/storage/sqlite/sqlite-storage.ts';
import { isStorageError, type Storage } from '../../controlplane/storage/storage.ts';
import { plainValues, type ValueTransformer } from '../../controlplane/storage/value-transformer.ts';
import { type Command, CommandError } from '../command.ts';
import { dataDirectoryFlag } from '../data-directory.ts';
import { exchangeData } from '../exchange-data.ts';
import type { CommandIo } from '../io.ts';
import { withRightsOfOwner } from '../owner-rights.ts';
import { runningProcess } from '../processes.ts';

const STORAGES = ['sqlite', 'etcd'];
const ETCD = 'Etcd';

const flags = {
  from: flag({ name: 'from', type: 'string', default: '', group: 'Copy', choices: STORAGES, help: 'Storage to read.' }),
  to: flag({ name: 'to', type: 'string', default: '', group: 'Copy', choices: STORAGES, help: 'Storage to write.' }),
  dataDir: dataDirectoryFlag('Copy', 'Data directory of the control plane, which must be stopped.'),
  countRevisions: flag({
    name: 'count-revisions',
    type: 'boolean',
    default: true,
    group: 'Copy',
    help: 'Count the revision of etcd up beyond that of the database by empty writes, some thousand in a second, so that agents and controllers need no restart.',
  }),
  encryptionProviderConfig: storageFlags.encryptionProviderConfig,
  etcdServers: flag({
    name: 'etcd-servers',
    type: 'list',
    default: ['http://127.0.0.1:2379'],
    group: ETCD,
    help: 'URLs of the etcd servers. The first one that answers is used.',
  }),
  etcdPrefix: { ...storageFlags.etcdPrefix, group: ETCD },
  etcdCafile: { ...storageFlags.etcdCafile, group: ETCD },
  etcdCertfile: { ...storageFlags.etcdCertfile, group: ETCD },
  etcdKeyfile: { ...storageFlags.etcdKeyfile, group: ETCD },
} as const;

type Values = ParsedFlags<FlagTable>['values'];

export const migrate: Command = {
  description:
    'Copies all objects from the database of a stopped control plane to etcd, in the keys and bytes of kube-apiserver 1.36, or from the etcd of a stopped kube-apiserver to the database, and compares both afterwards. Nothing else may write meanwhile. With --encryption-provider-config, both sides are encrypted by it. Certificates and keys of the control plane are not copied. What the database held before is kept beside it; etcd must have no key below the prefix.',
  flags,
  examples: [
    'orchlet migrate --from sqlite --to etcd --etcd-servers http://127.0.0.1:2379',
    'orchlet migrate --from etcd --to sqlite --etcd-servers https://etcd-1:2379 --etcd-cafile ca.crt --etcd-certfile client.crt --etcd-keyfile client.key',
  ],
  async run({ values }, io) {
    const { from, to } = values;
    if (from === '' || to === '' || from === to)
      throw new UsageError('name two different storages: --from sqlite --to etcd, or --from etcd --to sqlite');
    const directory = resolve(String(values['dataDir']));
    const pid = await runningProcess(join(directory, `${STORAGE_FILE}.pid`));
    if (pid !== undefined)
      throw new CommandError(
        `the control plane of ${directory} runs (process ${pid}): stop it first, with 'orchlet stop'`,
      );
    const encryption = await buildEncryption({
      path: String(values['encryptionProviderConfig']),
      reloads: false,
      clock: io.clock,
      logger: silentLogger,
      metrics: new MetricsRegistry(),
    });
    const etcd = await connectEtcd({
      servers: values['etcdServers'] as readonly string[],
      tls: await tlsOf(values),
    });
    try {
      const layout = layoutOf(etcd, String(values['etcdPrefix']), encryption?.values ?? plainValues, io);
      await withRightsOfOwner(directory, io, () =>
        to === 'etcd'
          ? toEtcd(directory, layout, { countsUp: values['countRevisions'] === true, io })
          : toSqlite(directory, layout, io),
      );
    } finally {
      etcd.close();
      encryption?.close();
    }
    return 0;
  },
};

function tlsOf(values: Values): Promise<GrpcTls> {
  const files = {
    etcdCafile: String(values['etcdCafile']),
    etcdCertfile: String(values['etcdCertfile']),
    etcdKeyfile: String(values['etcdKeyfile']),
  };
  const problem = etcdTlsProblem(files);
  if (problem !== undefined) throw new UsageError(problem);
  return readEtcdTls(files);
}

function layoutOf(etcd: EtcdClient, prefix: string, transformer: ValueTransformer, io: CommandIo): EtcdLayout {
  const schema = loadSchema();
  return {
    etcd,
    prefix,
    keys: etcdKeys(prefix),
    values: etcdValues(schema, createProtobufCodec(schema, { writesZeros: true })),
    transformer,
    progress: (line) => void io.stderr.write(`${line}\n`),
  };
}

async function openStorage(directory: string, transformer: ValueTransformer, { clock }: CommandIo): Promise<Storage> {
  try {
    return await openSqliteStorage({ directory, clock, logger: silentLogger, transformer });
  } catch (error) {
    if (!isStorageError(error)) throw error;
    throw new CommandError(`${directory} cannot be read: ${error.message}`, { cause: error });
  }
}

async function toEtcd(
  directory: string,
  layout: EtcdLayout,
  { countsUp, io }: { readonly countsUp: boolean; readonly io: CommandIo },
): Promise<void> {
  if (!existsSync(join(directory, STORAGE_FILE)))
    throw new CommandError(`${directory} holds no control plane's data: give its --data-dir`);
  const storage = await openStorage(join(directory, dirname(STORAGE_FILE)), layout.transformer, io);
  try {
    const { missingRevisions, ...written } = await copyToEtcd(storage, layout, { countsUp });
    assertSame(await contentsOf(storage), written);
    const { endpoint } = layout.etcd;
    io.stdout.write(`${endpoint} has the ${written.objects} objects of ${directory} below ${layout.prefix}/\n`);
    if (missingRevisions > 0) io.stderr.write(revisionWarning(missingRevisions));
  } finally {
    await storage.close();
  }
}

const revisionWarning = (missing: number): string =>
  `orchlet: warning: the revisions of etcd are ${missing} below those that clients have seen. Restart agents and controllers, ` +
  `or raise them: etcdutl snapshot restore --bump-revision ${missing + 1} --mark-compacted\n`;

/** The data is written beside that of the directory, verified, and takes its place at the end. */
async function toSqlite(directory: string, layout: EtcdLayout, io: CommandIo): Promise<void> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const fresh = await mkdtemp(join(directory, 'migrating-'));
  const folder = join(fresh, dirname(STORAGE_FILE));
  try {
    await mkdir(folder, { mode: 0o700 });
    const { rows, contents, lastRevision } = await rowsFromEtcd(layout, layout.transformer, io.clock.now());
    if (rows.length === 0)
      throw new CommandError(`${layout.etcd.endpoint} has no objects below ${layout.prefix}/: give its --etcd-prefix`);
    writeSalvaged(join(fresh, STORAGE_FILE), { rows, lastRevision, damage: [] });
    leapAhead(join(fresh, STORAGE_FILE));
    const storage = await openStorage(folder, layout.transformer, io);
    try {
      assertSame(contents, await contentsOf(storage));
    } finally {
      await storage.close();
    }
    assertSame(contents, await contentsInEtcd(layout));
    const old = await exchangeData(directory, fresh, [dirname(STORAGE_FILE)]);
    const kept = old === undefined ? '' : `; what was there is in ${old}`;
    io.stdout.write(`${directory} has the ${contents.objects} objects of ${layout.etcd.endpoint}${kept}\n`);
  } finally {
    await rm(fresh, { recursive: true, force: true });
  }
}

function assertSame(read: Contents, written: Contents): void {
  if (read.objects === written.objects && read.digest === written.digest) return;
  throw new CommandError(
    `${read.objects} objects were read and ${written.objects} are there now, or their contents differ: does another program write?`,
  );
}
