/**
 * Publishes how this server knows its callers, in the ConfigMap `extension-apiserver-authentication` of kube-system: servers
 * behind it (API services) believe client certificates and the front proxy's headers by the same authorities. Looked at again
 * every few seconds, because the authorities' files change and the ConfigMap can be deleted.
 */
import type { Logger } from '../../api/component/logger.ts';
import type { TypedClient } from '../../api/machinery/typed-client.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { configMaps } from '../../api/machinery/resources.ts';
import { jsonEqual } from '../../api/meta/json-equality.ts';
import { isNotFound } from '../../api/meta/status-error.ts';
import type { CaBundle } from './ca-bundle.ts';

export interface AuthenticationInfo {
  readonly clientCa: CaBundle;
  readonly frontProxyCa: CaBundle;
  readonly allowedNames: readonly string[];
  readonly usernameHeaders: readonly string[];
  readonly uidHeaders: readonly string[];
  readonly groupHeaders: readonly string[];
  readonly extraHeadersPrefix: readonly string[];
}

export interface AuthenticationInfoOptions {
  readonly info: AuthenticationInfo;
  readonly client: TypedClient;
  readonly clock: Clock;
  readonly logger: Logger;
}

const NAMESPACE = 'kube-system';
const NAME = 'extension-apiserver-authentication';
const LOOK_EVERY_MS = 10_000;

function authenticationData(info: AuthenticationInfo): Record<string, string> {
  return {
    'client-ca-file': info.clientCa.pem(),
    'requestheader-allowed-names': JSON.stringify(info.allowedNames),
    'requestheader-client-ca-file': info.frontProxyCa.pem(),
    'requestheader-extra-headers-prefix': JSON.stringify(info.extraHeadersPrefix),
    'requestheader-group-headers': JSON.stringify(info.groupHeaders),
    'requestheader-uid-headers': JSON.stringify(info.uidHeaders),
    'requestheader-username-headers': JSON.stringify(info.usernameHeaders),
  };
}

async function publish({ info, client }: AuthenticationInfoOptions): Promise<void> {
  const data = authenticationData(info);
  let known;
  try {
    known = await client.get(configMaps, NAMESPACE, NAME);
  } catch (error) {
    if (!isNotFound(error)) throw error;
    const metadata = { name: NAME, namespace: NAMESPACE };
    await client.create(configMaps, NAMESPACE, { apiVersion: 'v1', kind: 'ConfigMap', metadata, data });
    return;
  }
  // What others have put there stays.
  const wanted = { ...known.data, ...data };
  if (!jsonEqual(known.data, wanted)) await client.update(configMaps, { ...known, data: wanted });
}

/** Resolves when it is published for the first time. */
export async function keepAuthenticationInfo(
  options: AuthenticationInfoOptions,
): Promise<{ readonly close: () => Promise<void> }> {
  const { clock, logger } = options;
  await publish(options);
  const stop = new AbortController();
  const loop = async (): Promise<void> => {
    while (!stop.signal.aborted) {
      await clock.sleep(LOOK_EVERY_MS, stop.signal);
      await publish(options).catch((error: unknown) =>
        logger.warn({ err: error, configMap: NAME }, 'How callers are known could not be published'),
      );
    }
  };
  const ended = loop().catch((error: unknown) => {
    if (!stop.signal.aborted) throw error;
  });
  return {
    close() {
      stop.abort(new Error('the server is closed'));
      return ended;
    },
  };
}
