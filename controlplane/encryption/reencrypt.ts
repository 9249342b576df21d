/** Writes all encrypted objects again, so that all are encrypted with the first provider of the configuration. */
import { stringifyJson } from '../../api/codec/json.ts';
import type { PathHandlers } from '../server/path-handlers.ts';
import { methodNotAllowed } from '../server/router.ts';
import { isStorageError, type Storage } from '../storage/storage.ts';
import type { EncryptedValues } from './encrypted-values.ts';

/**
 * Accepts POST and returns JSON: `{"rewritten":12,"configured":true}`. `configured` is false without encryption at rest, and
 * then nothing is written. Callers need the permission to `post` to this path.
 */
export const REENCRYPT_PATH = '/orchlet/reencrypt';

const PAGE = 500;
/** The number of objects that are written at the same time. */
const WRITERS = 16;

/** Serves `POST` of `REENCRYPT_PATH`: writes all objects again that are to be encrypted, and answers with their number. */
export function installReencrypt(
  paths: PathHandlers,
  storages: readonly Storage[],
  values: EncryptedValues | undefined,
): void {
  paths.exact(REENCRYPT_PATH, async (request) => {
    if (request.exchange.method !== 'POST') throw methodNotAllowed();
    let rewritten = 0;
    if (values !== undefined) for (const storage of storages) rewritten += await reencrypt(storage, values);
    request.send(200, 'application/json', stringifyJson({ rewritten, configured: values !== undefined }));
  });
}

/**
 * Writes all encrypted objects again, with the same content and a new revision. Compacts the older revisions, because they are
 * still encrypted with older keys. Resolves to the number of objects.
 */
export async function reencrypt(storage: Storage, values: Pick<EncryptedValues, 'isEncrypted'>): Promise<number> {
  const rewritten = await rewriteAll(storage, values);
  await storage.compact(storage.revision());
  return rewritten;
}

async function rewriteAll(storage: Storage, values: Pick<EncryptedValues, 'isEncrypted'>): Promise<number> {
  let rewritten = 0;
  let startAfter = '';
  for (;;) {
    const page = await storage.list('/', { limit: PAGE, startAfter });
    const last = page.items.at(-1);
    if (last === undefined) return rewritten;
    startAfter = last.key;
    const pending = page.items.filter(({ key }) => values.isEncrypted(key)).map(({ key }) => key);
    const writer = async (): Promise<void> => {
      for (let key = pending.pop(); key !== undefined; key = pending.pop())
        if (await rewrite(storage, key)) rewritten++;
    };
    await Promise.all(Array.from({ length: WRITERS }, writer));
    if (page.remaining === 0) return rewritten;
  }
}

/**
 * Writes the stored object again, so that it is encrypted with the newest key. A concurrent write of the object has the same
 * effect. Resolves to whether the object existed.
 */
async function rewrite(storage: Storage, key: string): Promise<boolean> {
  const stored = await storage.get(key);
  if (stored === undefined) return false;
  try {
    await storage.update(key, stored.value, stored.revision);
  } catch (error) {
    if (!isStorageError(error, 'conflict') && !isStorageError(error, 'not-found')) throw error;
  }
  return true;
}
