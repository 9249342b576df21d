/** Connects a command to an etcd cluster: by its flags, and with the form in which kube-apiserver keeps objects there. */
import { createProtobufCodec } from '../../api/codec/protobuf.ts';
import { flag, type FlagTable, type ParsedFlags, UsageError } from '../../api/component/flags.ts';
import { silentLogger } from '../../api/component/logger.ts';
import { MetricsRegistry } from '../../api/component/metrics.ts';
import type { GrpcTls } from '../../api/grpc/grpc-channel.ts';
import { loadSchema } from '../../api/schema/table.ts';
import { buildEncryption } from '../../controlplane/storage/encryption/build.ts';
import { storageFlags } from '../../controlplane/options/storage.ts';
import { connectEtcd } from '../../controlplane/storage/etcd/etcd-client.ts';
import { etcdTlsProblem, readEtcdTls } from '../../controlplane/storage/etcd/etcd-tls.ts';
import { etcdKeys } from '../../controlplane/storage/etcd/keys.ts';
import type { EtcdLayout } from '../../controlplane/storage/etcd/transfer.ts';
import { etcdValues } from '../../controlplane/storage/etcd/values.ts';
import { plainValues } from '../../controlplane/storage/value-transformer.ts';
import type { CommandIo } from '../command-line/io.ts';

type Values = ParsedFlags<FlagTable>['values'];

const ETCD = 'Etcd';

/** Returns the flags of a command that uses `withEtcd`. */
export const etcdFlags = (defaultServers: readonly string[]) =>
  ({
    etcdServers: flag({
      name: 'etcd-servers',
      type: 'list',
      default: defaultServers,
      group: ETCD,
      help: 'URLs of the etcd servers. The first one that answers is used.',
    }),
    etcdPrefix: { ...storageFlags.etcdPrefix, group: ETCD },
    etcdCafile: { ...storageFlags.etcdCafile, group: ETCD },
    etcdCertfile: { ...storageFlags.etcdCertfile, group: ETCD },
    etcdKeyfile: { ...storageFlags.etcdKeyfile, group: ETCD },
    encryptionProviderConfig: storageFlags.encryptionProviderConfig,
  }) as const;

/** Whether a command that fills etcd counts its revision up. */
export const countRevisions = flag({
  name: 'count-revisions',
  type: 'boolean',
  default: true,
  group: ETCD,
  help: 'Count the revision of etcd up beyond that of the objects by empty writes, some thousand in a second, so that agents and controllers need no restart.',
});

/** The etcd that a command uses instead of that of its flags. */
interface KnownEtcd {
  readonly urls: readonly string[];
  readonly tls: GrpcTls;
}

/** Runs `work` with the etcd of the flags, or with `ownEtcd`. Rejects with `EtcdError` if no server answers. */
export async function withEtcd<T>(
  values: Values,
  io: CommandIo,
  work: (layout: EtcdLayout) => Promise<T>,
  ownEtcd?: KnownEtcd,
): Promise<T> {
  const encryption = await buildEncryption({
    path: String(values['encryptionProviderConfig']),
    reloads: false,
    clock: io.clock,
    logger: silentLogger,
    metrics: new MetricsRegistry(),
  });
  try {
    const servers = ownEtcd?.urls ?? (values['etcdServers'] as readonly string[]);
    const etcd = await connectEtcd({ servers, tls: ownEtcd?.tls ?? (await tlsOf(values)) });
    try {
      const schema = loadSchema();
      const prefix = String(values['etcdPrefix']);
      return await work({
        etcd,
        prefix,
        keys: etcdKeys(prefix),
        values: etcdValues(schema, createProtobufCodec(schema, { writesZeros: true })),
        transformer: encryption?.values ?? plainValues,
        progress: (line) => void io.stderr.write(`${line}\n`),
      });
    } finally {
      etcd.close();
    }
  } finally {
    encryption?.close();
  }
}

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
