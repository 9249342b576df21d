/**
 * Reads registry credentials from files in Docker's format: a pod's image pull secrets (`.dockerconfigjson` and the older
 * `.dockercfg`), and the node's `config.json`, which all pods of the node may use.
 */
import { trimEnd } from '../../../api/component/trim.ts';
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { escapeMarkup } from '../../../api/codec/json.ts';
import type { Logger } from '../../../api/component/logger.ts';
import type { Pod } from '../../model/pod.ts';
import type { ReferencedObjects } from '../../model/referenced-objects.ts';
import type { RegistryAuth } from '../runtime.ts';
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

interface Entry {
  readonly auth?: string;
  readonly username?: string;
  readonly password?: string;
  readonly email?: string;
  readonly identitytoken?: string;
}

interface Found {
  readonly pattern: string;
  readonly credential: PullCredential;
}

/** Returns the credentials of the pod's secrets that match the image's registry and path, the most specific first. */
export async function pullCredentials(
  image: string,
  pod: Pod,
  objects: ReferencedObjects,
): Promise<readonly PullCredential[]> {
  const found: Found[] = [];
  for (const name of pullSecretNames(pod)) {
    const secret = await objects.secret(pod, name);
    if (secret === undefined) continue;
    const data = (secret['data'] ?? {}) as Record<string, string>;
    const { uid = '', namespace = '' } = secret.metadata;
    found.push(...matching(image, entriesOf(data), { kind: 'secret', uid, namespace, name }));
  }
  return ordered(found);
}

/** Each name once, because a pod may name the same large secret thousands of times. */
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
 * Reads the node's credentials: `config.json` in the root directory, else the file that `docker login` wrote for the agent's
 * user. Called for each pull.
 */
export async function nodeCredentials(
  image: string,
  rootDirectory: string,
  logger: Logger,
): Promise<readonly PullCredential[]> {
  for (const path of [join(rootDirectory, 'config.json'), join(homedir(), '.docker/config.json')]) {
    try {
      const { auths = {} } = JSON.parse(await readFile(path, 'utf8')) as { readonly auths?: Record<string, Entry> };
      return ordered(matching(image, auths, undefined));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT')
        logger.warn({ path, err: error }, 'Cannot read the registry credentials');
    }
  }
  return [];
}

function matching(
  image: string,
  entries: Readonly<Record<string, Entry>>,
  source: CredentialSource | undefined,
): readonly Found[] {
  const { registry, repository } = parseImageReference(image);
  return Object.entries(entries).flatMap(([key, entry]) => {
    const pattern = normalizeKey(key);
    return matchesImage(pattern, `${registry}/${repository}`)
      ? [{ pattern, credential: credentialOf(entry, registry, source) }]
      : [];
  });
}

function ordered(found: readonly Found[]): readonly PullCredential[] {
  return found.toSorted((a, b) => b.pattern.length - a.pattern.length).map(({ credential }) => credential);
}

function entriesOf(data: Readonly<Record<string, string>>): Record<string, Entry> {
  const modern = data['.dockerconfigjson'];
  const text = modern ?? data['.dockercfg'];
  if (text === undefined) return {};
  const parsed: unknown = JSON.parse(Buffer.from(text, 'base64').toString('utf8'));
  const entries = modern === undefined ? parsed : (parsed as { auths?: unknown }).auths;
  return (entries ?? {}) as Record<string, Entry>;
}

function normalizeKey(key: string): string {
  const bare = key
    .replace(/^https?:\/\//, '')
    .replace(/\/v[12]\/?$/, '')
    .replace(/\/$/, '');
  return bare === 'index.docker.io' || bare === 'docker.io' ? 'docker.io' : bare;
}

function credentialOf(entry: Entry, registry: string, source: CredentialSource | undefined): PullCredential {
  const decoded = entry.auth === undefined ? '' : Buffer.from(entry.auth, 'base64').toString('utf8');
  const colon = decoded.indexOf(':');
  const username = entry.username ?? (colon === -1 ? '' : decoded.slice(0, colon));
  const password = entry.password ?? (colon === -1 ? '' : trimEnd(decoded.slice(colon + 1), '\0'));
  return {
    auth: {
      username,
      password,
      serverAddress: registry,
      ...(entry.identitytoken === undefined ? {} : { identityToken: entry.identitytoken }),
    },
    source,
    hash: credentialHash({ username, password, email: entry.email ?? '' }),
  };
}

/** Returns the hash of the fields that are not empty, in Go's JSON encoding. */
export function credentialHash(fields: {
  readonly username: string;
  readonly password: string;
  readonly email?: string;
}): string {
  const given = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== ''));
  return createHash('sha256')
    .update(escapeMarkup(JSON.stringify(given)))
    .digest('hex');
}
