/** Encryption at rest from its file; `undefined` without one. Called where the control plane is put together. */
import type { Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { encryptedValues, type EncryptedValues } from './encrypted-values.ts';
import { loadEncryptionConfig } from './encryption-config.ts';
import { connectKeyService, kmsProvider } from './kms.ts';
import { reloadingValues } from './reloading-values.ts';

/** Throws for a file that will not do, and where a key service cannot be reached: nothing starts half protected. */
export async function buildEncryption(
  path: string,
  clock: Clock,
  logger: Logger,
  reloads = false,
): Promise<EncryptedValues | undefined> {
  if (path === '') return undefined;
  const load = async (): Promise<EncryptedValues> =>
    encryptedValues(
      await loadEncryptionConfig(path, async (options) =>
        kmsProvider({ name: options.name, service: await connectKeyService(options, clock), clock, logger }),
      ),
    );
  return reloads ? reloadingValues({ path, load, clock, logger }) : load();
}
