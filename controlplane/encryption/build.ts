/** Encryption at rest from its file; `undefined` without one. Called where the control plane is put together. */
import { readFile } from 'node:fs/promises';
import type { MetricsRegistry } from '../../api/component/metrics.ts';
import type { Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { followFile, type FollowedFile } from '../followed-file.ts';
import type { HealthCheck } from '../server/health.ts';
import { encryptedValues, type EncryptedValues } from './encrypted-values.ts';
import { parseEncryptionConfig } from './encryption-config.ts';
import { connectKeyService, kmsProvider } from './kms.ts';
import { reloadingValues } from './reloading-values.ts';

export interface EncryptionParts {
  /** `--encryption-provider-config`. */
  readonly path: string;
  /** `--encryption-provider-config-automatic-reload`. */
  readonly reloads: boolean;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: MetricsRegistry;
}

export interface Encryption {
  readonly values: EncryptedValues;
  /** Of the services that hold keys, by the names that the reference has. */
  readonly checks: readonly HealthCheck[];
  /** Follows the file, where it is followed. */
  readonly followed: FollowedFile | undefined;
  close(): void;
}

/** Throws for a file that will not do, and where a key service cannot be reached: nothing starts half protected. */
export async function buildEncryption(parts: EncryptionParts): Promise<Encryption | undefined> {
  const { path, clock, logger, metrics } = parts;
  if (path === '') return undefined;
  const load = async (text: string): Promise<EncryptedValues> =>
    encryptedValues(
      await parseEncryptionConfig(text, path, async (options) =>
        kmsProvider({ name: options.name, service: await connectKeyService(options, clock), clock, logger }),
      ),
    );
  const text = await readFile(path, 'utf8');
  const first = await load(text);
  if (!parts.reloads) {
    const checks = first.keyServices.map((check, at) => ({ name: `kms-provider-${at}`, check }));
    return { values: first, checks, followed: undefined, close: () => first.close() };
  }
  const values = reloadingValues(first, clock);
  const take = async (changed: string): Promise<void> => values.replace(await load(changed));
  const followed = followFile({ path, what: 'encryption', text, take, clock, logger, metrics });
  const check = async (): Promise<void> => {
    await Promise.all(values.keyServices.map((one) => one()));
  };
  return {
    values,
    checks: [{ name: 'kms-providers', check }],
    followed,
    close() {
      followed.close();
      values.close();
    },
  };
}
