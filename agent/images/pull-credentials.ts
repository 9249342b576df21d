/** Registry credentials from a pod's image pull secrets (`.dockerconfigjson` and the older `.dockercfg`). */
import type { Pod, ReferencedObjects } from '../core-types.ts';
import type { RegistryAuth } from '../runtime/runtime.ts';
import { matchesImage } from './image-match.ts';
import { parseImageReference } from './image-reference.ts';

interface Entry {
  readonly auth?: string;
  readonly username?: string;
  readonly password?: string;
  readonly identitytoken?: string;
}

/** Those that match the image's registry and path, the most specific first. */
export async function pullCredentials(
  image: string,
  pod: Pod,
  objects: ReferencedObjects,
): Promise<readonly RegistryAuth[]> {
  const { registry, repository } = parseImageReference(image);
  const target = `${registry}/${repository}`;
  const found: { readonly key: string; readonly auth: RegistryAuth }[] = [];
  for (const { name = '' } of pod.spec.imagePullSecrets ?? []) {
    if (name === '') continue;
    const secret = await objects.secret(pod.metadata.namespace, name);
    const data = (secret?.['data'] ?? {}) as Record<string, string>;
    for (const [key, entry] of Object.entries(entriesOf(data))) {
      const pattern = normalizeKey(key);
      if (matchesImage(pattern, target)) found.push({ key: pattern, auth: authOf(entry, registry) });
    }
  }
  return found.toSorted((a, b) => b.key.length - a.key.length).map((entry) => entry.auth);
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

function authOf(entry: Entry, registry: string): RegistryAuth {
  const decoded = entry.auth === undefined ? '' : Buffer.from(entry.auth, 'base64').toString('utf8');
  const colon = decoded.indexOf(':');
  const username = entry.username ?? (colon === -1 ? '' : decoded.slice(0, colon));
  const password = entry.password ?? (colon === -1 ? '' : decoded.slice(colon + 1).replace(/\0+$/, ''));
  return {
    username,
    password,
    serverAddress: registry,
    ...(entry.identitytoken === undefined ? {} : { identityToken: entry.identitytoken }),
  };
}
