/**
 * Publishes in the ConfigMap `extension-apiserver-authentication` of kube-system how this server authenticates its clients.
 * Aggregated API servers accept client certificates and the headers of the front proxy by the same CAs. The ConfigMap is
 * checked periodically, because the files of the CAs change and clients can delete the ConfigMap.
 */
import { parseExactJson, stringifyJson } from '../../../api/codec/json.ts';
import type { Logger } from '../../../api/component/logger.ts';
import { Backoff } from '../../../api/machinery/backoff.ts';
import { WakeableLoop } from '../../../api/machinery/wakeable-loop.ts';
import type { TypedClient } from '../../../api/client/typed-client.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { configMaps } from '../../../api/client/resources.ts';
import { jsonEqual } from '../../../api/meta/json-equality.ts';
import { parseCertificates } from '../../../api/pki/certificate.ts';
import { readPem } from '../../../api/pki/pem.ts';
import { isAlreadyExists, isConflict, isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import type { CaBundle } from '../files/ca-bundle.ts';
import { SYSTEM_NAMESPACE } from '../../../api/meta/system-namespaces.ts';

interface AuthenticationInfo {
  readonly clientCa: CaBundle;
  readonly frontProxyCa: CaBundle;
  readonly allowedNames: readonly string[];
  readonly usernameHeaders: readonly string[];
  readonly uidHeaders: readonly string[];
  readonly groupHeaders: readonly string[];
  readonly extraHeadersPrefix: readonly string[];
}

interface AuthenticationInfoOptions {
  readonly info: AuthenticationInfo;
  /** Whether other servers publish as well. Then their CAs and headers stay, as those of kube-apiservers do. */
  readonly isShared: boolean;
  readonly client: TypedClient;
  readonly clock: Clock;
  readonly logger: Logger;
}

const NAME = 'extension-apiserver-authentication';
const CHECK_MS = 10_000;
/** The attempts to write the ConfigMap that other servers write as well. */
const ATTEMPTS = 10;

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

/** The keys whose values are lists. */
const LISTS: ReadonlySet<string> = new Set([
  'requestheader-allowed-names',
  'requestheader-extra-headers-prefix',
  'requestheader-group-headers',
  'requestheader-uid-headers',
  'requestheader-username-headers',
]);

/**
 * Returns the data to publish: the published data with the data of this server added, in a stable order, so that servers do not
 * overwrite each other.
 */
export function mergedData(
  published: Readonly<Record<string, string>>,
  serverData: Readonly<Record<string, string>>,
  nowMs: number,
): Record<string, string> {
  const merged: Record<string, string> = { ...published };
  for (const [key, value] of Object.entries(serverData)) {
    const other = published[key];
    if (other === undefined || other === value) merged[key] = value;
    else merged[key] = LISTS.has(key) ? mergedLists(other, value) : mergedCertificates(other, value, nowMs);
  }
  return merged;
}

/**
 * Merges two lists (JSON) without duplicates. An empty list of allowed names allows every name, and the result is only empty if
 * all servers publish an empty one.
 */
function mergedLists(publishedText: string, serverText: string): string {
  const [former, added] = [listOf(publishedText), listOf(serverText)];
  if (former === undefined || added === undefined) return serverText;
  return stringifyJson([...new Set([...former, ...added])]);
}

function listOf(text: string): readonly string[] | undefined {
  try {
    const value: unknown = parseExactJson(text);
    return Array.isArray(value) && value.every((one) => typeof one === 'string') ? value : undefined;
  } catch {
    // Another program wrote it, and the value of this server replaces it.
    return undefined;
  }
}

/** Merges two PEM texts without duplicates. Drops expired certificates, and a published text that cannot be read. */
function mergedCertificates(publishedText: string, serverText: string, nowMs: number): string {
  return [...new Set([...readableBlocks(publishedText, nowMs), ...certificateBlocks(serverText, nowMs)])].join('');
}

function readableBlocks(text: string, nowMs: number): string[] {
  try {
    return certificateBlocks(text, nowMs);
  } catch {
    // Another program wrote it, and the certificates of this server replace it.
    return [];
  }
}

function certificateBlocks(text: string, nowMs: number): string[] {
  return readPem(text).flatMap(({ label, text: block }) => {
    if (label !== 'CERTIFICATE') return [];
    const [certificate] = parseCertificates(block);
    return certificate === undefined || certificate.notAfterMs < nowMs ? [] : [`${block.trim()}\n`];
  });
}

async function publish({ info, client, clock, isShared }: AuthenticationInfoOptions): Promise<void> {
  const serverData = authenticationData(info);
  const published = await tolerate(client.get(configMaps, SYSTEM_NAMESPACE, NAME), isNotFound);
  const data = isShared ? mergedData(published?.data ?? {}, serverData, clock.now()) : serverData;
  if (published === undefined) {
    const metadata = { name: NAME, namespace: SYSTEM_NAMESPACE };
    await client.create(configMaps, SYSTEM_NAMESPACE, { apiVersion: 'v1', kind: 'ConfigMap', metadata, data });
    return;
  }
  // Other keys of the ConfigMap are kept.
  const wanted = { ...published.data, ...data };
  if (!jsonEqual(published.data, wanted)) await client.update(configMaps, { ...published, data: wanted });
}

/** Repeats the work after a conflict, because servers that start together create and update the ConfigMap at the same time. */
async function retryingRaces(work: () => Promise<void>): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      await work();
      return;
    } catch (error) {
      if (attempt === ATTEMPTS || !(isConflict(error) || isAlreadyExists(error))) throw error;
    }
  }
}

/**
 * Publishes the ConfigMap and keeps it up to date until `close`. Resolves when the ConfigMap is published for the first time.
 * Rejects if that fails, and publishes nothing more then.
 */
export async function keepAuthenticationInfo(
  options: AuthenticationInfoOptions,
): Promise<{ readonly close: () => Promise<void> }> {
  const { clock, logger } = options;
  await retryingRaces(() => publish(options));
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
