/** Defines the flags of the storage. */
import { flag } from '../../api/component/flags.ts';

const STORAGE = 'Storage';

export const storageFlags = {
  dataDir: flag({
    name: 'data-dir',
    type: 'string',
    default: '/var/lib/orchlet',
    group: STORAGE,
    help: 'Directory of everything that is kept: storage, certificates, admin kubeconfig.',
  }),
  storageBackend: flag({
    name: 'storage-backend',
    type: 'string',
    default: 'sqlite',
    choices: ['sqlite', 'memory'],
    group: STORAGE,
    help: 'Where objects are kept: sqlite (in the data directory), or memory (nothing outlives the process).',
  }),
  etcdCompactionInterval: flag({
    name: 'etcd-compaction-interval',
    type: 'duration',
    default: 300_000,
    group: STORAGE,
    help: 'How long the history of objects is kept for watches and pages. 0 keeps it until the process restarts, or until its limit of bytes.',
  }),
  backupSchedule: flag({
    name: 'backup-schedule',
    type: 'string',
    default: '',
    group: STORAGE,
    help: "When backups are written, as a cron schedule in local time ('0 3 * * *'). Empty: none.",
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
    help: 'File that says how resources are encrypted at rest.',
  }),
  encryptionProviderConfigAutomaticReload: flag({
    name: 'encryption-provider-config-automatic-reload',
    type: 'boolean',
    default: false,
    group: STORAGE,
    help: 'The encryption configuration is read again when its file changes.',
  }),
} as const;
