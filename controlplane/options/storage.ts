/** Defines the flags of the storage. */
import { isIP } from 'node:net';
import { flag } from '../../api/component/flags.ts';
import { ETCD_CLIENT_PORT, ETCD_PEER_PORT } from '../../api/meta/etcd-ports.ts';
import { checkEtcdOverrides } from './etcd-overrides.ts';

const STORAGE = 'Storage';

/** The rows by the property under which the program reads them. */
export const storageFlags = {
  dataDir: flag({
    name: 'data-dir',
    type: 'string',
    default: '/var/lib/orchlet',
    group: STORAGE,
    help: 'Directory of all state: storage, certificates, admin kubeconfig.',
  }),
  storageBackend: flag({
    name: 'storage-backend',
    type: 'string',
    default: '',
    choices: ['sqlite', 'etcd3', 'memory'],
    group: STORAGE,
    help: 'Where objects are stored: sqlite (in the data directory), etcd3 (on --etcd-servers), or memory (nothing outlives the process). Empty: etcd3 with --etcd-servers or --etcd=embedded, and sqlite otherwise.',
  }),
  standbyOf: flag({
    name: 'standby-of',
    type: 'string',
    default: '',
    group: STORAGE,
    help: 'URL of the first control plane (https://10.0.0.1:6443), whose database this one copies until it is promoted (orchlet promote). Until then it has no API. The keys of the cluster must be in --data-dir (orchlet join --control-plane).',
  }),
  etcdServers: flag({
    name: 'etcd-servers',
    type: 'list',
    default: [],
    group: STORAGE,
    help: 'URLs of the etcd servers (https://etcd-1:2379). One is used at a time, and the next one when it does not answer.',
  }),
  etcd: flag({
    name: 'etcd',
    type: 'string',
    default: 'external',
    choices: ['external', 'embedded'],
    group: STORAGE,
    help: 'embedded: this control plane runs a member of etcd, with data and certificates in the data directory. The program etcd must be installed. external: etcd is that of --etcd-servers, if any.',
  }),
  etcdJoin: flag({
    name: 'etcd-join',
    type: 'list',
    default: [],
    group: STORAGE,
    help: 'URLs of members of etcd (https://10.0.0.1:2379) whose cluster the first start with --etcd=embedded joins. Empty: it begins a cluster.',
  }),
  etcdAddress: flag({
    name: 'etcd-address',
    type: 'string',
    default: '',
    group: STORAGE,
    check: (address) => (address === '' || isIP(address) !== 0 ? undefined : 'must be an IP address'),
    help: 'Address at which other members reach the etcd of --etcd=embedded. Empty: --advertise-address, or the address of the host.',
  }),
  etcdClientPort: flag({
    name: 'etcd-client-port',
    type: 'integer',
    default: ETCD_CLIENT_PORT,
    group: STORAGE,
    help: 'Port of the etcd of --etcd=embedded for control planes.',
  }),
  etcdPeerPort: flag({
    name: 'etcd-peer-port',
    type: 'integer',
    default: ETCD_PEER_PORT,
    group: STORAGE,
    help: 'Port of the etcd of --etcd=embedded for other members.',
  }),
  etcdBinary: flag({
    name: 'etcd-binary',
    type: 'string',
    default: 'etcd',
    group: STORAGE,
    help: 'Program of etcd 3.4 or later for --etcd=embedded: a path, or a name in PATH.',
  }),
  etcdServersOverrides: flag({
    name: 'etcd-servers-overrides',
    type: 'list',
    default: [],
    group: STORAGE,
    check: checkEtcdOverrides,
    help: 'Resources that are in another etcd, as group/resource#servers with semicolons between servers: /events#https://etcd-4:2379;https://etcd-5:2379. TLS files and prefix are those of --etcd-servers.',
  }),
  etcdPrefix: flag({
    name: 'etcd-prefix',
    type: 'string',
    default: '/registry',
    group: STORAGE,
    check: (prefix) => (/^(\/[\w.-]+)+$/.test(prefix) ? undefined : 'must be a path such as /registry'),
    help: 'Prefix of the keys in etcd.',
  }),
  etcdCafile: flag({
    name: 'etcd-cafile',
    type: 'string',
    default: '',
    group: STORAGE,
    help: 'CA of the etcd servers (PEM).',
  }),
  etcdCertfile: flag({
    name: 'etcd-certfile',
    type: 'string',
    default: '',
    group: STORAGE,
    help: 'Client certificate for etcd (PEM).',
  }),
  etcdKeyfile: flag({
    name: 'etcd-keyfile',
    type: 'string',
    default: '',
    group: STORAGE,
    help: 'Key of the client certificate for etcd (PEM).',
  }),
  storageMediaType: flag({
    name: 'storage-media-type',
    type: 'string',
    default: 'application/vnd.kubernetes.protobuf',
    choices: ['application/vnd.kubernetes.protobuf', 'application/json'],
    group: STORAGE,
    help: 'How objects of built-in kinds are written to etcd. All forms are read.',
  }),
  etcdHealthcheckTimeout: flag({
    name: 'etcd-healthcheck-timeout',
    type: 'duration',
    default: 2000,
    group: STORAGE,
    help: 'How long /livez waits for etcd.',
  }),
  etcdReadycheckTimeout: flag({
    name: 'etcd-readycheck-timeout',
    type: 'duration',
    default: 2000,
    group: STORAGE,
    help: 'How long /readyz waits for etcd.',
  }),
  etcdCountMetricPollPeriod: flag({
    name: 'etcd-count-metric-poll-period',
    type: 'duration',
    default: 60_000,
    group: STORAGE,
    noEffect: 'objects are counted as they change',
    help: 'How often objects in etcd are counted for metrics.',
  }),
  etcdDbMetricPollInterval: flag({
    name: 'etcd-db-metric-poll-interval',
    type: 'duration',
    default: 30_000,
    group: STORAGE,
    check: (milliseconds) => (milliseconds >= 0 ? undefined : 'must not be negative'),
    help: "How often the size of etcd's database is read for the metric apiserver_storage_size_bytes. 0 does not read it.",
  }),
  storageInitializationTimeout: flag({
    name: 'storage-initialization-timeout',
    type: 'duration',
    default: 60_000,
    group: STORAGE,
    check: (milliseconds) => (milliseconds >= 0 ? undefined : 'must not be negative'),
    help: 'How long a start waits for an etcd that cannot be read, for example because it has no leader yet. systemd gives a service 90 s to start.',
  }),
  leaseReuseDurationSeconds: flag({
    name: 'lease-reuse-duration-seconds',
    type: 'integer',
    default: 60,
    group: STORAGE,
    check: (seconds) => (seconds >= 0 ? undefined : 'must not be negative'),
    help: 'How much longer than --event-ttl an event may be kept in etcd, so that many share a lease; at most 5 % of it.',
  }),
  etcdCompactionInterval: flag({
    name: 'etcd-compaction-interval',
    type: 'duration',
    default: 300_000,
    group: STORAGE,
    help: 'How long the history of objects is kept for watches and pages. In etcd, one of several servers compacts it. 0 keeps it until the process restarts, or until its limit of bytes.',
  }),
  backupSchedule: flag({
    name: 'backup-schedule',
    type: 'string',
    default: '',
    group: STORAGE,
    help: "When backups are written, as a cron schedule in local time ('0 3 * * *'). Empty: no backups are written.",
  }),
  backupKeep: flag({
    name: 'backup-keep',
    type: 'integer',
    default: 7,
    group: STORAGE,
    check: (count) => (count >= 1 ? undefined : 'must be at least 1'),
    help: 'How many scheduled backups are kept.',
  }),
  backupDir: flag({
    name: 'backup-dir',
    type: 'string',
    default: '',
    group: STORAGE,
    help: 'Directory of scheduled backups, or s3://BUCKET/PREFIX. Empty: backups in the data directory.',
  }),
  backupS3Endpoint: flag({
    name: 'backup-s3-endpoint',
    type: 'string',
    default: '',
    group: STORAGE,
    help: "Server of backups in s3://BUCKET/PREFIX, as https://HOST:PORT. Empty: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, or Amazon's server of the region.",
  }),
  backupS3Region: flag({
    name: 'backup-s3-region',
    type: 'string',
    default: '',
    group: STORAGE,
    help: 'Region of the bucket. Empty: AWS_REGION, AWS_DEFAULT_REGION, or us-east-1.',
  }),
  eventTtl: flag({
    name: 'event-ttl',
    type: 'duration',
    default: 3_600_000,
    group: STORAGE,
    help: 'How long events are kept.',
  }),
  encryptionProviderConfig: flag({
    name: 'encryption-provider-config',
    type: 'string',
    default: '',
    group: STORAGE,
    help: 'File of the EncryptionConfiguration, which defines how resources are encrypted at rest.',
  }),
  encryptionProviderConfigAutomaticReload: flag({
    name: 'encryption-provider-config-automatic-reload',
    type: 'boolean',
    default: false,
    group: STORAGE,
    help: 'Read the encryption configuration again when its file changes.',
  }),
} as const;

/**
 * Returns the backend of `--storage-backend`. If the flag is empty, it is etcd3 with `--etcd-servers` or `--etcd=embedded`, and
 * sqlite otherwise.
 */
export function storageBackendOf(flags: {
  readonly storageBackend: string;
  readonly etcdServers: readonly string[];
  readonly etcd: string;
}): 'sqlite' | 'etcd3' | 'memory' {
  const { storageBackend, etcdServers, etcd } = flags;
  if (storageBackend === 'memory' || storageBackend === 'etcd3' || storageBackend === 'sqlite') return storageBackend;
  return etcdServers.length > 0 || etcd === 'embedded' ? 'etcd3' : 'sqlite';
}
