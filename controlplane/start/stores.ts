/**
 * Runs the first phase of the start: the data directory, encryption at rest, the storage, and the registry, which serves reads.
 */
import { access, constants, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { makeFolder, replaceFile } from '../../api/machinery/replace-file.ts';
import { refuseUnfinishedRestore } from '../storage/backup/unfinished-restore.ts';
import type { Encryption } from '../storage/encryption/build.ts';
import type { ControlPlaneFlags } from '../options/controlplane-options.ts';
import { StartError } from '../model/start-error.ts';
import { parsePortRange } from '../options/port-range.ts';
import { storageBackendOf } from '../options/storage.ts';
import { openRegistry, type Registry } from '../registry/registry.ts';
import { servedResources } from '../registry/runtime-config.ts';
import { startCompactor } from '../storage/compactor.ts';
import { openMemoryStorage } from '../storage/memory.ts';
import { stampRevision } from '../storage/object-bytes.ts';
import { refuseOtherRole } from '../standby/role.ts';
import { refuseSuccessor } from '../standby/successor.ts';
import { openSqliteStorage } from '../storage/sqlite/sqlite-storage.ts';
import type { Storages } from '../storage/storages.ts';
import { sqliteOptions } from './preparation.ts';
import type { Setting } from './setting.ts';

/** What this phase adds for the phases after it. */
export interface StoresPhase extends Storages {
  /** The data directory. */
  readonly directory: string;
  /** `undefined` if values are stored unencrypted. */
  readonly encryption: Encryption | undefined;
  readonly registry: Registry;
}

/**
 * Opens the storage and the registry. Rejects with a `StartError` or a `PlainError` that says what the operator must change, or
 * with a `StorageError`, such as `locked` if another process uses the data directory.
 */
export async function openStores(setting: Setting): Promise<StoresPhase> {
  const { flags, clock, logger, schema, onClose } = setting;
  const directory = await prepareDirectory(setting);
  const encryption = await openEncryption(setting);
  // The storage takes the lock of the data directory, without which nothing in it may be changed.
  const { storage, overrides } = await openStorages(setting, directory, encryption);
  const registry = await openRegistry({
    storage,
    overrides,
    schema,
    clock,
    logger,
    serviceClusterCidrs: flags.serviceClusterIpRange,
    serviceNodePorts: servicePortsOf(flags),
    eventTtlMs: flags.eventTtl,
    serves: servedResources(flags.runtimeConfig),
  });
  onClose(() => registry.close());
  return { directory, encryption, storage, overrides, registry };
}

/** Builds encryption at rest, if it is configured. */
async function openEncryption({ flags, clock, logger, metrics, onClose }: Setting): Promise<Encryption | undefined> {
  if (flags.encryptionProviderConfig === '') return undefined;
  const { buildEncryption } = await import('../storage/encryption/build.ts');
  const encryption = await buildEncryption({
    path: flags.encryptionProviderConfig,
    reloads: flags.encryptionProviderConfigAutomaticReload,
    clock,
    logger,
    metrics,
  });
  if (encryption !== undefined) onClose(() => encryption.close());
  return encryption;
}

/**
 * Creates a missing data directory, and refuses one that must not be served. With storage in memory, it is a temporary
 * directory that is removed at the end.
 */
async function prepareDirectory({ flags, clock, logger, onClose }: Setting): Promise<string> {
  if (storageBackendOf(flags) === 'memory') {
    const directory = await mkdtemp(join(tmpdir(), 'orchlet-'));
    onClose(() => rm(directory, { recursive: true, force: true }));
    return directory;
  }
  const directory = resolve(flags.dataDir);
  await makeFolder(directory, 0o700);
  await access(directory, constants.W_OK);
  refuseUnfinishedRestore(directory);
  if (storageBackendOf(flags) === 'sqlite') {
    refuseOtherRole(directory);
    await refuseSuccessor({ dataDirectory: directory, clock, logger });
  }
  return directory;
}

async function openStorages(
  setting: Setting,
  directory: string,
  encryption: Encryption | undefined,
): Promise<Storages> {
  const { flags, preparation, clock, logger, metrics, onFatal, onClose } = setting;
  const failedWatches = metrics.counter({
    name: 'orchlet_failed_watches_total',
    help: 'Watches that were closed because delivering to them failed, by resource.',
    labels: ['resource'],
  });
  const onWatchFailed = (resource: string): void => failedWatches.with(resource).inc();
  const backend = storageBackendOf(flags);
  if (backend === 'etcd3') {
    const { openEtcdStores } = await import('./etcd-store.ts');
    await announceProcess(directory, onClose);
    return openEtcdStores(setting, { encryption, onWatchFailed });
  }
  if (flags.etcdServersOverrides.length > 0)
    throw new StartError(
      '--etcd-servers-overrides needs --etcd-servers: with SQLite and in memory, one storage has all',
    );
  const storage =
    backend === 'memory'
      ? openMemoryStorage({ clock, logger, stamp: stampRevision, onWatchFailed })
      : await openSqliteStorage({
          ...sqliteOptions(directory),
          thread: preparation.storageThread,
          clock,
          logger,
          stamp: stampRevision,
          onWatchFailed,
          ...(encryption === undefined ? {} : { transformer: encryption.values }),
          ...(onFatal === undefined ? {} : { onFailure: onFatal }),
        });
  onClose(() => storage.close());
  if (flags.etcdCompactionInterval > 0) {
    const compactor = startCompactor({ storage, clock, logger, windowMs: flags.etcdCompactionInterval });
    onClose(() => compactor.stop());
  }
  return { storage, overrides: [] };
}

/** Writes the file by which commands of this host find the process. With SQLite, the lock of the database is that file. */
async function announceProcess(directory: string, onClose: Setting['onClose']): Promise<void> {
  const file = join(directory, 'storage', 'orchlet.db.pid');
  await mkdir(dirname(file), { recursive: true, mode: 0o700 });
  await replaceFile(file, `${process.pid}\n`, { mode: 0o600, sync: 'none' });
  onClose(() => rm(file, { force: true }));
}

/** Returns the range of node ports, which is 30000 to 32767 if the flag has none. */
export function servicePortsOf(flags: ControlPlaneFlags): { readonly from: number; readonly to: number } {
  return parsePortRange(flags.serviceNodePortRange) ?? { from: 30_000, to: 32_767 };
}
