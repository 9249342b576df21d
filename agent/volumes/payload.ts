/**
 * Computes the files of configMap, secret, downwardAPI and projected volumes. Pure, except for what it reads through
 * `PayloadSources`. Errors name the missing reference as the kubelet's events do.
 */
import { errorMessage } from '../../api/meta/error-message.ts';
import type { Container, Pod, Volume } from '../base/model/pod.ts';
import type { ReferencedObjects } from '../base/model/referenced-objects.ts';
import type { Payload, PayloadFile } from './atomic-writer.ts';
import type { CredentialBundle, PodCertificateSource } from './pod-certificates.ts';
import type { TrustBundleSource } from './trust-bundles.ts';
import { ownMember } from '../../api/meta/own-member.ts';

/** The audience and lifetime of a token. An undefined audience is that of the API server. */
export interface TokenRequestSpec {
  readonly audience: string | undefined;
  readonly expirationSeconds: number;
}

/** Where the content of files comes from. */
export interface PayloadSources {
  readonly objects: ReferencedObjects;
  /** A valid token for the pod's service account. */
  readonly token: (pod: Pod, spec: TokenRequestSpec) => Promise<string>;
  /** PEM certificates of cluster trust bundles. */
  readonly trustBundles?: (source: TrustBundleSource) => Promise<string>;
  /** Returns the key and certificates of a pod for the source with this index in its volume. */
  readonly podCertificate?: (
    pod: Pod,
    volume: string,
    index: number,
    source: PodCertificateSource,
  ) => Promise<CredentialBundle>;
  /** The downward API: a field of the pod, and a resource of a container, as text. */
  readonly fieldValue: (pod: Pod, fieldPath: string) => string;
  readonly resourceValue: (pod: Pod, container: Container, resource: string, divisor: string) => string;
}

/**
 * The maximum number of files that the sources of a volume add, also of those that later sources replace: each of thousands of
 * sources may name the same large object.
 */
const MAX_FILES = 200_000;
const MAX_BYTES = 256 << 20;

/** Counts what the sources of one volume add, apart from tokens, certificates and trust bundles. */
class VolumeBudget {
  #files = MAX_FILES;
  #bytes = MAX_BYTES;

  get isExceeded(): boolean {
    return this.#files < 0 || this.#bytes < 0;
  }

  take(bytes: number): void {
    this.#files -= 1;
    this.#bytes -= bytes;
    if (this.isExceeded) throw new Error(`the volume has more than ${MAX_FILES} files or ${MAX_BYTES >> 20} MiB`);
  }
}

interface KeyToPath {
  key: string;
  path: string;
  mode?: number;
}

/**
 * Returns the payload of a volume of one of the four kinds, or `undefined` for another kind. Throws if a reference that is not
 * optional is missing, or if the volume has too many files or bytes.
 */
export async function volumePayload(pod: Pod, volume: Volume, sources: PayloadSources): Promise<Payload | undefined> {
  if (volume.configMap !== undefined) {
    return configMapFiles(
      pod,
      volume.configMap.name ?? '',
      pickedFrom(volume.configMap, volume.configMap.defaultMode),
      sources,
    );
  }
  if (volume.secret !== undefined) {
    return secretFiles(
      pod,
      volume.secret.secretName ?? '',
      pickedFrom(volume.secret, volume.secret.defaultMode),
      sources,
    );
  }
  if (volume.downwardAPI !== undefined) {
    const { items = [], defaultMode = 0o644 } = volume.downwardAPI;
    return downwardFiles(pod, items, { defaultMode, budget: new VolumeBudget() }, sources);
  }
  if (volume.projected !== undefined) return projectedFiles(pod, volume, volume.projected, sources);
  return undefined;
}

/** Which keys of an object become files, and how. */
interface Picked {
  readonly items: readonly KeyToPath[] | undefined;
  readonly defaultMode: number;
  readonly optional: boolean;
  readonly budget: VolumeBudget;
}

/** The keys that a volume names, or one source of a projected volume. */
interface KeySelection {
  readonly items?: readonly KeyToPath[];
  readonly optional?: boolean;
}

function pickedFrom({ items, optional }: KeySelection, defaultMode = 0o644, budget = new VolumeBudget()): Picked {
  return { items, defaultMode, optional: optional === true, budget };
}

async function configMapFiles(
  pod: Pod,
  name: string,
  picked: Picked,
  sources: PayloadSources,
): Promise<Map<string, PayloadFile>> {
  const configMap = await sources.objects.configMap(pod, name);
  if (configMap === undefined) {
    if (picked.optional) return new Map();
    throw new Error(`configmap "${name}" not found`);
  }
  const data = (configMap['data'] ?? {}) as Record<string, string>;
  const binary = (configMap['binaryData'] ?? {}) as Record<string, string>;
  const content = (key: string): Buffer | undefined => {
    const encoded = ownMember(binary, key);
    const text = ownMember(data, key);
    if (encoded !== undefined) return Buffer.from(encoded, 'base64');
    return text === undefined ? undefined : Buffer.from(text);
  };
  const keys = (): string[] => [...Object.keys(data), ...Object.keys(binary)];
  return pick(keys, content, picked, 'configmap references non-existent config key');
}

async function secretFiles(
  pod: Pod,
  name: string,
  picked: Picked,
  sources: PayloadSources,
): Promise<Map<string, PayloadFile>> {
  const secret = await sources.objects.secret(pod, name);
  if (secret === undefined) {
    if (picked.optional) return new Map();
    throw new Error(`secret "${name}" not found`);
  }
  const data = (secret['data'] ?? {}) as Record<string, string>;
  const content = (key: string): Buffer | undefined => {
    const encoded = ownMember(data, key);
    return encoded === undefined ? undefined : Buffer.from(encoded, 'base64');
  };
  return pick(() => Object.keys(data), content, picked, 'references non-existent secret key');
}

/**
 * Returns the files of the keys that the volume names, or of all `keys` if it names none. Only their content is decoded. Throws
 * the text `missing` with the key if a key has no content, unless the reference is optional.
 */
function pick(
  keys: () => readonly string[],
  content: (key: string) => Buffer | undefined,
  { items, defaultMode, optional, budget }: Picked,
  missing: string,
): Map<string, PayloadFile> {
  const files = new Map<string, PayloadFile>();
  const named = items !== undefined && items.length > 0 ? items : keys().map((key) => ({ key, path: key }));
  for (const { key, path, mode = defaultMode } of named as readonly KeyToPath[]) {
    const found = content(key);
    if (found === undefined) {
      if (optional) continue;
      throw new Error(`${missing}: ${key}`);
    }
    budget.take(found.length);
    files.set(path, { content: found, mode });
  }
  return files;
}

type DownwardItem = NonNullable<NonNullable<Volume['downwardAPI']>['items']>[number];

function downwardFiles(
  pod: Pod,
  items: readonly DownwardItem[],
  { defaultMode, budget }: Pick<Picked, 'defaultMode' | 'budget'>,
  sources: PayloadSources,
): Map<string, PayloadFile> {
  const files = new Map<string, PayloadFile>();
  for (const item of items) {
    let text = '';
    if (item.fieldRef !== undefined) text = sources.fieldValue(pod, item.fieldRef.fieldPath);
    else if (item.resourceFieldRef !== undefined) {
      const container = [...pod.spec.containers, ...(pod.spec.initContainers ?? [])].find(
        (candidate) => candidate.name === item.resourceFieldRef?.containerName,
      );
      if (container === undefined) throw new Error(`container ${item.resourceFieldRef.containerName ?? ''} not found`);
      const { resource, divisor } = item.resourceFieldRef;
      text = sources.resourceValue(pod, container, resource, divisor ?? '0');
    }
    budget.take(text.length);
    files.set(item.path, { content: Buffer.from(text), mode: item.mode ?? defaultMode });
  }
  return files;
}

type ProjectedSource = NonNullable<NonNullable<Volume['projected']>['sources']>[number];

async function projectedFiles(
  pod: Pod,
  { name: volumeName }: Volume,
  projected: NonNullable<Volume['projected']>,
  sources: PayloadSources,
): Promise<Map<string, PayloadFile>> {
  const files = new Map<string, PayloadFile>();
  const budget = new VolumeBudget();
  const mode = projected.defaultMode ?? 0o644;
  const add = (more: ReadonlyMap<string, PayloadFile>): void => {
    for (const [path, file] of more) files.set(path, file);
  };
  const failures: string[] = [];
  const project = async (source: ProjectedSource, index: number): Promise<void> => {
    if (source.configMap !== undefined) {
      const picked = pickedFrom(source.configMap, mode, budget);
      add(await configMapFiles(pod, source.configMap.name ?? '', picked, sources));
    } else if (source.secret !== undefined) {
      const picked = pickedFrom(source.secret, mode, budget);
      add(await secretFiles(pod, source.secret.name ?? '', picked, sources));
    } else if (source.downwardAPI !== undefined) {
      add(downwardFiles(pod, source.downwardAPI.items ?? [], { defaultMode: mode, budget }, sources));
    } else if (source.serviceAccountToken !== undefined) {
      const { audience, expirationSeconds, path } = source.serviceAccountToken;
      const token = await sources.token(pod, { audience, expirationSeconds: expirationSeconds ?? 3600 });
      files.set(path, credentialFile(pod, token, mode));
    } else if (source.clusterTrustBundle !== undefined) {
      if (sources.trustBundles === undefined)
        throw new Error('cluster trust bundles need an API server and the feature gate ClusterTrustBundleProjection');
      const pem = await sources.trustBundles(source.clusterTrustBundle);
      files.set(source.clusterTrustBundle.path, { content: Buffer.from(pem), mode });
    } else if (source.podCertificate !== undefined) {
      if (sources.podCertificate === undefined)
        throw new Error('pod certificates need an API server and the feature gate PodCertificateRequest');
      const bundle = await sources.podCertificate(pod, volumeName, index, source.podCertificate);
      add(certificateFiles(pod, source.podCertificate, bundle, mode));
    }
    // The API server drops the fields of kinds that it does not know. An empty source projects nothing, as with the kubelet.
  };
  // Reports everything that is missing in one error.
  for (const [index, source] of (projected.sources ?? []).entries()) {
    if (budget.isExceeded) break;
    await project(source, index).catch((error: unknown) => failures.push(errorMessage(error)));
  }
  if (failures.length > 0) throw new Error(failures.length === 1 ? failures[0] : `[${failures.join(', ')}]`);
  return files;
}

function certificateFiles(
  pod: Pod,
  { credentialBundlePath = '', keyPath = '', certificateChainPath = '' }: PodCertificateSource,
  { key, chain }: CredentialBundle,
  mode: number,
): Map<string, PayloadFile> {
  const parts = [
    [credentialBundlePath, key + chain],
    [keyPath, key],
    [certificateChainPath, chain],
  ] as const;
  return new Map(parts.filter(([path]) => path !== '').map(([path, text]) => [path, credentialFile(pod, text, mode)]));
}

/**
 * Returns the file of a token or key. If all containers have the same user, the file belongs to this user and is private. It is
 * also private with an `fsGroup`, which is then allowed to read it when the volume gets its group.
 */
function credentialFile(pod: Pod, text: string, mode: number): PayloadFile {
  const content = Buffer.from(text);
  const users = new Set(
    [...pod.spec.containers, ...(pod.spec.initContainers ?? [])].map(
      (container) => container.securityContext?.runAsUser ?? pod.spec.securityContext?.runAsUser,
    ),
  );
  const [only] = users;
  if (users.size === 1 && only !== undefined) return { content, mode: 0o600, uid: only };
  return { content, mode: pod.spec.securityContext?.fsGroup === undefined ? mode : 0o600 };
}
