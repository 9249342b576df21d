/**
 * Publishes in the ConfigMap `extension-apiserver-authentication` of kube-system how this server authenticates its clients.
 * Aggregated API servers accept client certificates and the headers of the front proxy by the same CAs. The ConfigMap is
 * checked periodically, because the files of the CAs change and clients can delete the ConfigMap.
 */
import { stringifyJson } from '../../api/codec/json.ts';
import type { Logger } from '../../api/component/logger.ts';
import { Backoff } from '../../api/machinery/backoff.ts';
import { WakeableLoop } from '../../api/machinery/wakeable-loop.ts';
import type { TypedClient } from '../../api/machinery/typed-client.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { configMaps } from '../../api/machinery/resources.ts';
import { jsonEqual } from '../../api/meta/json-equality.ts';
import { isNotFound, tolerate } from '../../api/meta/status-error.ts';
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
const CHECK_MS = 10_000;

function authenticationData(info: AuthenticationInfo): Record<string, string> {
  return {
    'client-ca-file': info.clientCa.pem(),
    'requestheader-allowed-names': stringifyJson(info.allowedNames),
    'requestheader-client-ca-file': info.frontProxyCa.pem(),
    'requestheader-extra-headers-prefix': stringifyJson(info.extraHeadersPrefix),
    'requestheader-group-headers': stringifyJson(info.groupHeaders),
    'requestheader-uid-headers': stringifyJson(info.uidHeaders),
    'requestheader-username-headers': stringifyJson(info.usernameHeaders),
  };
}

async function publish({ info, client }: AuthenticationInfoOptions): Promise<void> {
  const data = authenticationData(info);
  const known = await tolerate(client.get(configMaps, NAMESPACE, NAME), isNotFound);
  if (known === undefined) {
    const metadata = { name: NAME, namespace: NAMESPACE };
    await client.create(configMaps, NAMESPACE, { apiVersion: 'v1', kind: 'ConfigMap', metadata, data });
    return;
  }
  // Other keys of the ConfigMap are kept.
  const wanted = { ...known.data, ...data };
  if (!jsonEqual(known.data, wanted)) await client.update(configMaps, { ...known, data: wanted });
}

/** Resolves when the ConfigMap is published for the first time. */
export async function keepAuthenticationInfo(
  options: AuthenticationInfoOptions,
): Promise<{ readonly close: () => Promise<void> }> {
  const { clock, logger } = options;
  await publish(options);
  const stop = new AbortController();
  const loop = new WakeableLoop({
    clock,
    backoff: new Backoff({ firstMs: CHECK_MS, longestMs: CHECK_MS }),
    onError: (error) =>
      logger.warn({ err: error, configMap: NAME }, 'The configuration of authentication could not be published'),
  });
  const running = loop.run(stop.signal, async () => {
    await publish(options);
    return CHECK_MS;
  });
  return {
    async close() {
      stop.abort(new Error('the server is closed'));
      await running;
    },
  };
}
