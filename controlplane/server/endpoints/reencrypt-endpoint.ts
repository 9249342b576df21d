/** Serves the endpoint that encrypts all objects with the newest key. */
import { stringifyJson } from '../../../api/codec/json.ts';
import type { EncryptedValues } from '../../storage/encryption/encrypted-values.ts';
import { reencrypt, type ReencryptOptions } from '../../storage/encryption/reencrypt.ts';
import type { Storage } from '../../storage/storage.ts';
import type { PathHandlers } from '../path-handlers.ts';
import { methodNotAllowed } from '../router.ts';

/**
 * Accepts POST and returns JSON: `{"rewritten":12,"configured":true}`. `configured` is false without encryption at rest, and
 * then nothing is written. Callers need the permission to `post` to this path.
 */
export const REENCRYPT_PATH = '/orchlet/reencrypt';

/** Serves `POST` of `REENCRYPT_PATH`: writes all objects again that are to be encrypted, and answers with their number. */
export function installReencrypt(
  paths: PathHandlers,
  storages: readonly Storage[],
  values: EncryptedValues | undefined,
  options: ReencryptOptions,
): void {
  paths.exact(REENCRYPT_PATH, async (request) => {
    if (request.exchange.method !== 'POST') throw methodNotAllowed();
    let rewritten = 0;
    if (values !== undefined) for (const storage of storages) rewritten += await reencrypt(storage, values, options);
    request.send(200, 'application/json', stringifyJson({ rewritten, configured: values !== undefined }));
  });
}
