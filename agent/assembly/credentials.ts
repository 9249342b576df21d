/** Creates the credential provider plugins from the options; `undefined` if there are none. */
import { resolve } from 'node:path';
import type { Client } from '../../api/client/client.ts';
import type { MetricsRegistry } from '../../api/component/metrics.ts';
import { credentialProviderMetrics } from '../resources/statistics/pull-metrics.ts';
import { ConfigurationError } from '../base/model/configuration-error.ts';
import { readCredentialProviders } from '../runtime/images/credential-provider-config.ts';
import { CredentialProviders } from '../runtime/images/credential-providers.ts';
import type { TokenManager } from '../volumes/token-manager.ts';
import type { Base } from './base.ts';

const TOKEN_SECONDS = 3600;

/**
 * Reads the configuration of the credential providers and checks their plugins. Resolves to `undefined` without the two flags.
 * Throws `ConfigurationError` if the flags, the configuration or the feature gates do not fit together.
 */
export async function credentialProviders(
  { flags, effective, clock, logger }: Base,
  client: Client | undefined,
  tokens: TokenManager,
  metrics: MetricsRegistry,
): Promise<CredentialProviders | undefined> {
  const config = flags.imageCredentialProviderConfig;
  const binDirectory = flags.imageCredentialProviderBinDir;
  if (config === '' && binDirectory === '') return undefined;
  if (config === '' || binDirectory === '')
    throw new ConfigurationError(
      '--image-credential-provider-config and --image-credential-provider-bin-dir go together: give both, or none',
    );
  const { providers, hash } = await readCredentialProviders(resolve(config));
  if (
    !effective.gates.enabled('KubeletServiceAccountTokenForCredentialProviders') &&
    providers.some(({ tokenAttributes }) => tokenAttributes !== undefined)
  )
    throw new ConfigurationError(
      `${config}: tokenAttributes is not supported when KubeletServiceAccountTokenForCredentialProviders feature gate is disabled`,
    );
  const plugins = new CredentialProviders({
    providers,
    binDirectory: resolve(binDirectory),
    client,
    token: (pod, audience) => tokens.token(pod, { audience, expirationSeconds: TOKEN_SECONDS }),
    clock,
    logger,
    observe: credentialProviderMetrics(metrics, hash),
  });
  await plugins.check();
  return plugins;
}
