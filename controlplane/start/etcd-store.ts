/** Opens the storage on the etcd cluster of `--etcd-servers`, in the keys and values of kube-apiserver. */
import { resolve } from 'node:path';
import { background } from '../../api/machinery/background.ts';
import { etcdPaths } from '../etcd/etcd-files.ts';
import { followMembers } from '../etcd/etcd-followed-members.ts';
import { createProtobufCodec } from '../../api/codec/protobuf.ts';
import type { Encryption } from '../encryption/build.ts';
import { StartError } from '../model/start-error.ts';
import { EtcdMetrics } from '../storage/etcd/etcd-metrics.ts';
import { EtcdServers } from '../storage/etcd/etcd-servers.ts';
import { openEtcdStorage } from '../storage/etcd/etcd-storage.ts';
import { etcdTlsProblem, readEtcdTls } from '../storage/etcd/etcd-tls.ts';
import { etcdKeys } from '../storage/etcd/keys.ts';
import { etcdValues } from '../storage/etcd/values.ts';
import { stampRevision } from '../storage/object-bytes.ts';
import { isStorageError, type Storage } from '../storage/storage.ts';
import { plainValues } from '../storage/value-transformer.ts';
import type { Setting } from './setting.ts';

/** systemd expects a start within 90 s. */
const AVAILABLE_WITHIN_MS = 30_000;
const RETRY_MS = 1000;

interface EtcdStoreParts {
  readonly encryption: Encryption | undefined;
  readonly onWatchFailed: (resource: string) => void;
}

/** Opens the storage of `--etcd-servers`. Throws `StartError` if the flags do not fit together, or `StorageError`. */
export async function openEtcdStore(
  { flags, clock, logger, metrics, schema, signal, onFatal }: Setting,
  { encryption, onWatchFailed }: EtcdStoreParts,
): Promise<Storage> {
  const problem = problemOf(flags);
  if (problem !== undefined) throw new StartError(problem);
  const unreadable = metrics.counter({
    name: 'apiserver_storage_decode_errors_total',
    help: 'Number of stored object decode errors split by object type',
    labels: ['group', 'resource'],
  });
  const open = async (): Promise<Storage> => {
    const tls = await readEtcdTls(flags);
    const servers = await EtcdServers.open({ servers: flags.etcdServers, tls, clock });
    const storage = await openEtcdStorage({
      servers,
      layout: {
        prefix: flags.etcdPrefix,
        keys: etcdKeys(flags.etcdPrefix),
        values: etcdValues(schema, createProtobufCodec(schema, { writesZeros: true }), {
          isJson: flags.storageMediaType === 'application/json',
        }),
        transformer: encryption?.values ?? plainValues,
      },
      clock,
      logger,
      stamp: stampRevision,
      compactionIntervalMs: flags.etcdCompactionInterval,
      leaseReuseSeconds: flags.leaseReuseDurationSeconds,
      healthTimeoutMs: flags.etcdHealthcheckTimeout,
      readyTimeoutMs: flags.etcdReadycheckTimeout,
      metrics: new EtcdMetrics(metrics, clock),
      onFailure: onFatal,
      onWatchFailed,
      onUnreadable(resource) {
        const [, group = '', name = ''] = resource.split('/');
        unreadable.with(group === 'core' ? '' : group, name).inc();
      },
    });
    if (flags.etcd === 'embedded') {
      const paths = etcdPaths(resolve(flags.dataDir));
      background(followMembers({ servers, paths, tls, clock, logger, signal }), { logger, what: 'Following etcd' });
    }
    return storage;
  };
  return whenAvailable(open, { clock, logger });
}

/** After a power cut, control planes start before etcd has a leader again. A new process for each attempt would cost more. */
export async function whenAvailable<T>(
  open: () => Promise<T>,
  { clock, logger }: Pick<Setting, 'clock' | 'logger'>,
): Promise<T> {
  const end = clock.monotonic() + AVAILABLE_WITHIN_MS;
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
  if (flags.backupSchedule !== '')
    return '--backup-schedule copies the database of --storage-backend=sqlite: save etcd with etcdctl snapshot save';
  return etcdTlsProblem(flags);
}
