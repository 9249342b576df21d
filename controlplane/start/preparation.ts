/**
 * Begins work that a start waits for and that needs few modules: the thread of the storage, and at a first start the key of
 * service account tokens. Both take other processors than that of the main thread, which loads the modules of the control plane
 * meanwhile.
 */
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { generateKey, type KeyPair } from '../../api/pki/signing.ts';
import type { ControlPlaneFlags } from '../options/controlplane-options.ts';
import { storageBackendOf } from '../options/storage.ts';
import { StorageThread } from '../storage/sqlite/storage-thread.ts';

/** What a start finds begun. Whatever is `undefined` is begun when it is needed. */
export interface Preparation {
  /** A thread that has opened no database yet. */
  readonly storageThread: StorageThread | undefined;
  readonly serviceAccountKey: Promise<KeyPair> | undefined;
}

type Flags = Pick<ControlPlaneFlags, 'dataDir' | 'storageBackend' | 'etcdServers' | 'etcd' | 'standbyOf'>;

/** Begins a start with these flags. Nothing is begun for a standby, whose start may be far away. */
export function prepareStart(flags: Flags): Preparation {
  if (flags.standbyOf !== '') return { storageThread: undefined, serviceAccountKey: undefined };
  const backend = storageBackendOf(flags);
  const hasKey = backend !== 'memory' && existsSync(join(resolve(flags.dataDir), 'pki', 'sa.key'));
  const serviceAccountKey = hasKey ? undefined : generateKey('rsa');
  // A start that fails before it needs the key does not await it.
  serviceAccountKey?.catch(() => undefined);
  return { storageThread: backend === 'sqlite' ? new StorageThread() : undefined, serviceAccountKey };
}
