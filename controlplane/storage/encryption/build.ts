/** Builds encryption at rest from its configuration file. */
import { readFile } from 'node:fs/promises';
import type { MetricsRegistry } from '../../../api/component/metrics.ts';
import type { Logger } from '../../../api/component/logger.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { followFile, type FollowedFile } from '../../security/files/followed-file.ts';
import type { HealthCheck } from '../../model/health-check.ts';
import { encryptedValues, type EncryptedValues } from './encrypted-values.ts';
import { parseEncryptionConfig } from './encryption-config.ts';
import { kmsProvider } from './kms.ts';
import { connectKeyService } from './key-service.ts';
import { reloadingValues } from './reloading-values.ts';

interface EncryptionParts {
  /** The value of `--encryption-provider-config`. */
  readonly path: string;
  /** The value of `--encryption-provider-config-automatic-reload`. */
  readonly reloads: boolean;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: MetricsRegistry;
}

/** Encryption at rest of a running control plane. */
export interface Encryption {
  readonly values: EncryptedValues;
  /** The health checks of key management services, with kube-apiserver's names. */
  readonly checks: readonly HealthCheck[];
  /** The watcher of the file, if automatic reload is on. */
  readonly followed: FollowedFile | undefined;
  close(): void;
}

/**
 * Builds the encryption from its configuration file. Resolves to `undefined` if `path` is empty. Rejects if the file is invalid
 * or a key management service is not reachable.
 */
export async function buildEncryption(parts: EncryptionParts): Promise<Encryption | undefined> {
  const { path, clock, logger, metrics } = parts;
  if (path === '') return undefined;
  const load = async (text: string): Promise<EncryptedValues> =>
    encryptedValues(
      await parseEncryptionConfig(text, path, async (options) =>
        kmsProvider({ name: options.name, service: await connectKeyService(options), clock, logger }),
      ),
    );
  const text = await readFile(path, 'utf8');
  const first = await load(text);
  if (!parts.reloads) {
    const checks = first.keyServices.map((check, at) => ({ name: `kms-provider-${at}`, check }));
    return { values: first, checks, followed: undefined, close: () => first.close() };
  }
  const values = reloadingValues(first, clock);
  const parse = (changed: string) => async (): Promise<void> => values.replace(await load(changed));
  const followed = followFile({ path, what: 'encryption', text, parse, clock, logger, metrics });
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
