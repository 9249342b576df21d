/**
 * Writes all objects again that the configuration encrypts, so that all are encrypted with its first provider. The addresses of
 * running servers are left out.
 */
import { inParallel } from '../../../api/machinery/in-parallel.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { SERVER_ADDRESSES } from '../etcd/keys.ts';
import { isStorageError, type Storage } from '../storage.ts';
import { prefixOf } from '../storages.ts';
import type { EncryptedValues } from './encrypted-values.ts';

const PAGE = 500;
/** The number of objects that are written at the same time. */
const WRITERS = 16;
const EVENTS = prefixOf('', 'events');

/** What the rewriting of events needs. */
export interface ReencryptOptions {
  readonly clock: Clock;
  /** The value of `--event-ttl`. Events are removed after this time again, as after an update by a client. */
  readonly eventTtlMs: number;
}

/**
 * Writes all objects again that are to be encrypted, with the same content and a new revision. Compacts the older revisions,
 * because they are still encrypted with older keys. Resolves to the number of objects.
 */
export async function reencrypt(
  storage: Storage,
  values: Pick<EncryptedValues, 'isEncrypted'>,
  options: ReencryptOptions,
): Promise<number> {
  const rewritten = await rewriteAll(storage, values, options);
  await storage.compact(storage.revision());
  return rewritten;
}

async function rewriteAll(
  storage: Storage,
  values: Pick<EncryptedValues, 'isEncrypted'>,
  options: ReencryptOptions,
): Promise<number> {
  const mustBeWritten = (key: string): boolean => values.isEncrypted(key) && !key.startsWith(SERVER_ADDRESSES);
  let rewritten = 0;
  let startAfter = '';
  for (;;) {
    const page = await storage.list('/', { limit: PAGE, startAfter });
    const last = page.items.at(-1);
    if (last === undefined) return rewritten;
    startAfter = last.key;
    const pending = page.items.filter(({ key }) => mustBeWritten(key));
    const written = await inParallel(pending, WRITERS, ({ key }) => rewrite(storage, key, options));
    rewritten += written.filter(Boolean).length;
    if (page.remaining === 0) return rewritten;
  }
}

/**
 * Writes the stored object again, so that it is encrypted with the newest key. A concurrent write of the object has the same
 * effect. Resolves to whether the object existed.
 */
async function rewrite(storage: Storage, key: string, { clock, eventTtlMs }: ReencryptOptions): Promise<boolean> {
  const stored = await storage.get(key);
  if (stored === undefined) return false;
  const expiry = key.startsWith(EVENTS) ? { expiresAtMs: clock.now() + eventTtlMs } : {};
  try {
    await storage.update(key, stored.value, stored.revision, expiry);
  } catch (error) {
    if (!isStorageError(error, 'conflict') && !isStorageError(error, 'not-found')) throw error;
  }
  return true;
}
