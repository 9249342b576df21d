/** Opens the storages on the etcd clusters of `--etcd-servers` and its overrides, in the keys and values of kube-apiserver. */
import { resolve } from 'node:path';
import { background } from '../../api/machinery/background.ts';
import { etcdPaths } from '../storage/etcd-member/etcd-files.ts';
import { followMembers } from '../storage/etcd-member/etcd-followed-members.ts';
import { createProtobufCodec } from '../../api/codec/protobuf.ts';
import type { GrpcTls } from '../../api/grpc/grpc-channel.ts';
import type { Encryption } from '../storage/encryption/build.ts';
import { StartError } from '../model/start-error.ts';
import { parseEtcdOverrides } from '../options/etcd-overrides.ts';
import { EtcdMetrics } from '../storage/etcd/etcd-metrics.ts';
import { EtcdServers } from '../storage/etcd/etcd-servers.ts';
import { openEtcdStorage } from '../storage/etcd/etcd-storage.ts';
import { etcdTlsProblem, readEtcdTls } from '../storage/etcd/etcd-tls.ts';
import { followSizes, type MeasuredEtcd } from '../storage/etcd-member/etcd-size.ts';
import { etcdKeys } from '../storage/etcd/keys.ts';
import { etcdValues } from '../storage/etcd/values.ts';
import { stampRevision } from '../storage/object-bytes.ts';
import { isStorageError, type Storage } from '../storage/storage.ts';
import type { StorageOverride, Storages } from '../storage/storages.ts';
import { plainValues } from '../storage/value-transformer.ts';
import type { Setting } from './setting.ts';

const RETRY_MS = 1000;

interface EtcdStoreParts {
  readonly encryption: Encryption | undefined;
  readonly onWatchFailed: (resource: string) => void;
}

/**
 * Opens the storages of `--etcd-servers` and `--etcd-servers-overrides`, which are closed with the control plane. Rejects with
 * a `StartError` if the flags do not fit together, and with a `StorageError` if an etcd cannot be used.
 */
export async function openEtcdStores(setting: Setting, parts: EtcdStoreParts): Promise<Storages> {
  const { flags, clock, logger, metrics, signal } = setting;
  const problem = problemOf(flags);
  if (problem !== undefined) throw new StartError(problem);
  const openStorage = storageOpener(setting, parts);
  const overridden = parseEtcdOverrides(flags.etcdServersOverrides);
  const { storage, servers, tls } = await openStorage(
    flags.etcdServers,
    (resource) => !overridden.some(({ resources }) => resources.has(resource)),
  );
  if (flags.etcd === 'embedded') {
    const paths = etcdPaths(resolve(flags.dataDir));
    background(followMembers({ servers, paths, tls, clock, logger, signal }), { logger, what: 'Following etcd' });
  }
  const clusters: MeasuredEtcd[] = [{ url: () => servers.url, tls }];
  const overrides: StorageOverride[] = [];
  for (const { servers: urls, resources } of overridden) {
    const override = await openStorage(urls, (resource) => resources.has(resource));
    overrides.push({ storage: override.storage, resources });
    clusters.push({ url: () => override.servers.url, tls: override.tls });
  }
  const intervalMs = flags.etcdDbMetricPollInterval;
  if (intervalMs > 0)
    background(followSizes({ clusters, intervalMs, metrics, clock, logger, signal }), {
      logger,
      what: 'Measuring etcd',
      signal,
    });
  return { storage, overrides };
}

interface OpenStorage {
  readonly storage: Storage;
  readonly servers: EtcdServers;
  readonly tls: GrpcTls;
}

/** Returns the function that opens the storage of one etcd, which has the objects of some resources (`/core/events/`). */
function storageOpener(
  { flags, clock, logger, metrics, schema, onFatal, onClose }: Setting,
  { encryption, onWatchFailed }: EtcdStoreParts,
): (urls: readonly string[], has: (resource: string) => boolean) => Promise<OpenStorage> {
  const unreadable = metrics.counter({
    name: 'apiserver_storage_decode_errors_total',
    help: 'Number of stored object decode errors split by object type',
    labels: ['group', 'resource'],
  });
  const etcdMetrics = new EtcdMetrics(metrics, clock);
  const values = etcdValues(schema, createProtobufCodec(schema, { writesZeros: true }), {
    isJson: flags.storageMediaType === 'application/json',
  });
  const open = async (urls: readonly string[], has: (resource: string) => boolean): Promise<OpenStorage> => {
    const tls = await readEtcdTls(flags);
    const servers = await EtcdServers.open({ servers: urls, tls, clock });
    const storage = await openEtcdStorage({
      servers,
      layout: {
        prefix: flags.etcdPrefix,
        keys: etcdKeys(flags.etcdPrefix, has),
        values,
        transformer: encryption?.values ?? plainValues,
      },
      clock,
      logger,
      stamp: stampRevision,
      compactionIntervalMs: flags.etcdCompactionInterval,
      leaseReuseSeconds: flags.leaseReuseDurationSeconds,
      healthTimeoutMs: flags.etcdHealthcheckTimeout,
      readyTimeoutMs: flags.etcdReadycheckTimeout,
      metrics: etcdMetrics,
      onFailure: onFatal,
      onWatchFailed,
      onUnreadable(resource) {
        const [, group = '', name = ''] = resource.split('/');
        unreadable.with(group === 'core' ? '' : group, name).inc();
      },
    });
    onClose(() => storage.close());
    return { storage, servers, tls };
  };
  return (urls, has) =>
    whenAvailable(() => open(urls, has), { clock, logger, withinMs: flags.storageInitializationTimeout });
}

/**
 * Repeats `open` while etcd is not available, for at most `withinMs`. After a power cut, control planes start before etcd has a
 * leader again. Rejects with the last error, and with any other error at once.
 */
export async function whenAvailable<T>(
  open: () => Promise<T>,
  { clock, logger, withinMs }: Pick<Setting, 'clock' | 'logger'> & { readonly withinMs: number },
): Promise<T> {
  const end = clock.monotonic() + withinMs;
  for (;;) {
    try {
      return await open();
    } catch (error) {
      if (!isStorageError(error, 'unavailable') || clock.monotonic() >= end) throw error;
      logger.warn({ err: error }, 'etcd cannot be read yet; trying again');
      await clock.sleep(RETRY_MS);
    }
  }
}

function problemOf(flags: Setting['flags']): string | undefined {
  if (flags.etcdServers.length === 0) return '--storage-backend=etcd3 needs --etcd-servers';
  return etcdTlsProblem(flags);
}
