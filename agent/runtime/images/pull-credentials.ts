/**
 * Reads registry credentials from files in Docker's format: a pod's image pull secrets (`.dockerconfigjson` and the older
 * `.dockercfg`), and the node's `config.json`, which all pods of the node may use.
 */
import { createHash } from 'node:crypto';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { escapeMarkup } from '../../../api/codec/json.ts';
import type { Logger } from '../../../api/component/logger.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import type { Pod } from '../../base/model/pod.ts';
import type { ReferencedObjects } from '../../base/model/referenced-objects.ts';
import type { RegistryAuth } from '../runtime.ts';
import { readOwnFile } from '../../base/files/regular-file.ts';
import { loginsOf, type RegistryLogin } from './docker-config.ts';
import { matchesImage } from './image-match.ts';
import { parseImageReference } from '../../../api/kinds/image-reference.ts';

/** The origin of the credentials. Those of the node have none. */
export interface CredentialSource {
  readonly kind: 'secret' | 'serviceAccount';
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
}

/** Credentials for one registry, with their origin. `source` is undefined for those that every pod of the node may use. */
export interface PullCredential {
  readonly auth: RegistryAuth;
  readonly source: CredentialSource | undefined;
  /** The hash of the credentials, computed as in the kubelet, so that its records are valid here. */
  readonly hash: string;
}

interface Found {
  readonly pattern: string;
  readonly credential: PullCredential;
}

/**
 * Returns the credentials of the pod's secrets that match the image's registry and path, in the order of the attempts. Skips
 * secrets that do not exist. Rejects if a secret cannot be read or decoded.
 */
export async function pullCredentials(
  image: string,
  pod: Pod,
  objects: ReferencedObjects,
): Promise<readonly PullCredential[]> {
  const found: Found[] = [];
  for (const name of pullSecretNames(pod)) {
    const secret = await objects.secret(pod, name);
    if (secret === undefined) continue;
    const { uid = '', namespace = '' } = secret.metadata;
    found.push(...matching(image, loginsOfSecret(secret), { kind: 'secret', uid, namespace, name }));
  }
  return ordered(found);
}

/**
 * Returns the names of the pod's pull secrets without duplicates, because a pod may name the same large secret thousands of
 * times.
 */
const pullSecretNames = (pod: Pod): ReadonlySet<string> =>
  new Set((pod.spec.imagePullSecrets ?? []).flatMap(({ name = '' }) => (name === '' ? [] : name)));

/** Returns the names of the pod's image pull secrets that do not exist or cannot be read. */
export async function missingPullSecrets(pod: Pod, objects: Pick<ReferencedObjects, 'secret'>): Promise<string[]> {
  const missing: string[] = [];
  for (const name of pullSecretNames(pod)) {
    // The kube-apiserver may be unavailable. Pulling the image reports that.
    if ((await objects.secret(pod, name).catch(() => undefined)) === undefined) missing.push(name);
  }
  return missing;
}

/**
 * Reads the node's credentials for the image: from `config.json` in the root directory, else from the file that `docker
 * login` wrote for the agent's user. A file that cannot be read is logged and skipped.
 */
export async function nodeCredentials(
  image: string,
  rootDirectory: string,
  logger: Logger,
): Promise<readonly PullCredential[]> {
  for (const path of [join(rootDirectory, 'config.json'), join(homedir(), '.docker/config.json')]) {
    try {
      return ordered(matching(image, loginsOf(await readOwnFile(path), 'config.json'), undefined));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT')
        logger.warn({ path, err: error }, 'Cannot read the registry credentials');
    }
  }
  return [];
}

function matching(
  image: string,
  logins: ReturnType<typeof loginsOf>,
  source: CredentialSource | undefined,
): readonly Found[] {
  const { registry, repository } = parseImageReference(image);
  return logins.flatMap(([pattern, login]) =>
    matchesImage(pattern, `${registry}/${repository}`)
      ? [{ pattern, credential: credentialOf(login, registry, source) }]
      : [],
  );
}

function ordered(found: readonly Found[]): readonly PullCredential[] {
  return found.toSorted((a, b) => lastPatternFirst(a.pattern, b.pattern)).map(({ credential }) => credential);
}

/** Compares patterns in descending order, as the kubelet does: so a longer path comes before its beginning, and `*` last. */
export const lastPatternFirst = (a: string, b: string): number => (a < b ? 1 : a > b ? -1 : 0);

/** The formats of image pull secrets by their type, with the key of the data. Secrets of other types have no credentials. */
const FORMATS = new Map<unknown, readonly [key: string, format: Parameters<typeof loginsOf>[1]]>([
  ['kubernetes.io/dockerconfigjson', ['.dockerconfigjson', 'config.json']],
  ['kubernetes.io/dockercfg', ['.dockercfg', 'dockercfg']],
]);

function loginsOfSecret(secret: KubeObject): ReturnType<typeof loginsOf> {
  const [key, format] = FORMATS.get(secret['type']) ?? [];
  const { [key ?? '']: encoded = '' } = (secret['data'] ?? {}) as Record<string, string>;
  return encoded === '' || format === undefined
    ? []
    : loginsOf(Buffer.from(encoded, 'base64').toString('utf8'), format);
}

function credentialOf(login: RegistryLogin, registry: string, source: CredentialSource | undefined): PullCredential {
  const { identityToken, ...fields } = login;
  const { username, password } = fields;
  return {
    auth: { username, password, serverAddress: registry, ...(identityToken === '' ? {} : { identityToken }) },
    source,
    hash: credentialHash({ ...fields, identitytoken: identityToken }),
  };
}

/** Returns the hash of the fields that are not empty, in Go's JSON encoding. */
export function credentialHash(fields: {
  readonly username: string;
  readonly password: string;
  readonly email?: string;
  /** The kubelet reads no identity tokens, so its hashes have none. */
  readonly identitytoken?: string;
}): string {
  const nonEmpty = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== ''));
  return createHash('sha256')
    .update(escapeMarkup(JSON.stringify(nonEmpty)))
    .digest('hex');
}
