/**
 * Begins work that a start waits for and that needs few modules: opening the storage in its thread, and at a first start the
 * key of service account tokens. Both take other processors than that of the main thread, which loads the modules of the
 * control plane meanwhile.
 */
import { existsSync, readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { generateKey, type KeyPair } from '../../api/pki/signing.ts';
import type { ControlPlaneFlags } from '../options/controlplane-options.ts';
import { storageBackendOf } from '../options/storage.ts';
import { UNFINISHED_RESTORE } from '../storage/backup/unfinished-restore.ts';
import { LOG_FILE, openingOptions, StorageThread } from '../storage/sqlite/storage-thread.ts';

/** What a start finds begun. Whatever is `undefined` is begun when it is needed. */
export interface Preparation {
  /** A thread that opens the database of `sqliteOptions`, or has opened nothing yet. */
  readonly storageThread: StorageThread | undefined;
  readonly serviceAccountKey: Promise<KeyPair> | undefined;
}

type Flags = Pick<ControlPlaneFlags, 'dataDir' | 'storageBackend' | 'etcdServers' | 'etcd' | 'standbyOf'>;

/** The space that the storage reserves, so that compaction works on a full disk. */
const DISK_RESERVE_BYTES = 16 * 1024 * 1024;

/** Returns where the database of a data directory is, and its reserve. */
export const sqliteOptions = (
  dataDirectory: string,
): { readonly directory: string; readonly reserveBytes: number } => ({
  directory: join(dataDirectory, 'storage'),
  reserveBytes: DISK_RESERVE_BYTES,
});

/** Begins a start with these flags. Nothing is begun for a standby, whose start may be far away. */
export function prepareStart(flags: Flags): Preparation {
  if (flags.standbyOf !== '') return { storageThread: undefined, serviceAccountKey: undefined };
  const backend = storageBackendOf(flags);
  const hasKey = backend !== 'memory' && existsSync(join(resolve(flags.dataDir), 'pki', 'sa.key'));
  const serviceAccountKey = hasKey ? undefined : generateKey('rsa');
  // A start that fails before it needs the key does not await it.
  serviceAccountKey?.catch(() => undefined);
  return { storageThread: backend === 'sqlite' ? startThread(resolve(flags.dataDir)) : undefined, serviceAccountKey };
}

function startThread(dataDirectory: string): StorageThread {
  const thread = new StorageThread();
  const { directory, ...options } = sqliteOptions(dataDirectory);
  // `openStores` reports a failure.
  if (mayOpen(dataDirectory, directory)) thread.open(openingOptions(directory, options)).catch(() => undefined);
  return thread;
}

/**
 * Whether `openStores` finds nothing in the data directory for which it refuses to start, or asks other control planes first: a
 * mark of an unfinished restore, or files beside those of the database.
 */
function mayOpen(dataDirectory: string, directory: string): boolean {
  if (existsSync(join(dataDirectory, UNFINISHED_RESTORE))) return false;
  try {
    return readdirSync(directory).every((name) => name.startsWith(LOG_FILE));
  } catch (error) {
    // Of a directory that cannot be read, `openStores` reports why.
    return (error as NodeJS.ErrnoException).code === 'ENOENT';
  }
}
