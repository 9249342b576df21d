/**
 * Decides whether a pod may use an image that is already on the node, or must prove by a pull that it has the credentials
 * (`imagePullCredentialsVerificationPolicy`, KEP 2535). The pull records have the images that the agent pulled and the
 * credentials of the pulls. An intent is written before each pull, so that the image of an interrupted pull does not count as
 * preloaded.
 */
import type { Logger } from '../../../api/component/logger.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { ImageInfo } from '../runtime.ts';
import { ImageReferenceError, parseImageReference, repositoryName } from '../../../api/kinds/image-reference.ts';
import type { PullCredential } from './pull-credentials.ts';
import type { PullCredentials, PulledRecord, PullRecords, PullSecret } from './pull-records.ts';

/** The value of `imagePullCredentialsVerificationPolicy`. */
export type VerificationPolicy =
  | 'NeverVerify'
  | 'NeverVerifyPreloadedImages'
  | 'NeverVerifyAllowlistedImages'
  | 'AlwaysVerify';

type CheckResult = 'credentialPolicyAllowed' | 'credentialRecordFound' | 'mustAuthenticate' | 'error';

/**
 * The maximum number of secrets in a record to which a verification adds another one. It bounds the record where namespaces are
 * created and deleted quickly. Beyond it, new content of a known secret must be verified by a pull, as in the kubelet.
 */
const MAX_SECRETS_ADDED = 100;

/** Returns the reason why an entry of `preloadedImagesVerificationAllowlist` is invalid, or `undefined`. */
export function allowlistProblem(pattern: string): string | undefined {
  if (pattern !== pattern.trim()) return `leading/trailing spaces are not allowed: ${pattern}`;
  const isPrefix = pattern.endsWith('/*');
  const fixed = isPrefix ? pattern.slice(0, -1) : pattern;
  if (fixed === '') return `the supplied pattern is too short: ${pattern}`;
  if (fixed.includes('*'))
    return `not a valid wildcard pattern, only patterns ending with '/*' are allowed: ${pattern}`;
  if (isPrefix) return fixed.length === 1 ? 'at least registry hostname is required' : undefined;
  try {
    return repositoryName(fixed) === fixed
      ? undefined
      : `neither tag nor digest is accepted in an image reference: ${pattern}`;
  } catch (error) {
    if (error instanceof ImageReferenceError) return `failed to parse as an image name: ${error.message}`;
    throw error;
  }
}

/** Whether the credentials must be verified. `isOurs` means that a record or an intent shows a pull by this agent. Pure. */
export function mustVerify(
  policy: VerificationPolicy,
  allowlist: readonly string[],
  image: string,
  isOurs: boolean,
): boolean {
  switch (policy) {
    case 'NeverVerify':
      return false;
    case 'NeverVerifyPreloadedImages':
      return isOurs;
    case 'NeverVerifyAllowlistedImages': {
      const name = repositoryName(image);
      return !allowlist.some((entry) => (entry.endsWith('/*') ? name.startsWith(entry.slice(0, -1)) : name === entry));
    }
    case 'AlwaysVerify':
      return true;
  }
}

/** Returns the record with the verified credentials added, or the same record if they are known already. Pure. */
function withCredentials(
  record: PulledRecord | undefined,
  facts: { readonly imageRef: string; readonly name: string; readonly now: string },
  found: PullCredentials | undefined,
): PulledRecord {
  const { imageRef, name, now } = facts;
  const lastUpdatedTime = now;
  if (record === undefined)
    return { lastUpdatedTime, imageRef, credentialMapping: found === undefined ? {} : { [name]: found } };
  if (found === undefined) return record;
  const recorded = record.credentialMapping?.[name];
  const merged = recorded === undefined ? found : merge(recorded, found);
  return merged === recorded
    ? record
    : { ...record, lastUpdatedTime, credentialMapping: { ...record.credentialMapping, [name]: merged } };
}

function merge(recorded: PullCredentials, found: PullCredentials): PullCredentials {
  if (found.nodePodsAccessible === true) return recorded.nodePodsAccessible === true ? recorded : found;
  const { kubernetesSecrets: secrets = [], kubernetesServiceAccounts: accounts = [] } = recorded;
  const newSecrets = (found.kubernetesSecrets ?? []).filter(
    (secret) => !secrets.some((one) => isSame(one, secret) && one.credentialHash === secret.credentialHash),
  );
  const newAccounts = (found.kubernetesServiceAccounts ?? []).filter(
    (account) => !accounts.some((one) => isSame(one, account)),
  );
  if (newSecrets.length === 0 && newAccounts.length === 0) return recorded;
  const unchangedSecrets = secrets.filter((one) => !newSecrets.some((secret) => isSame(one, secret)));
  return {
    ...recorded,
    ...(unchangedSecrets.length + newSecrets.length > 0
      ? { kubernetesSecrets: [...unchangedSecrets, ...newSecrets].toSorted(byName) }
      : {}),
    ...(accounts.length + newAccounts.length > 0
      ? { kubernetesServiceAccounts: [...accounts, ...newAccounts].toSorted(byName) }
      : {}),
  };
}

interface Coordinates {
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
}

const isSame = (a: Coordinates, b: Coordinates): boolean =>
  a.uid === b.uid && a.namespace === b.namespace && a.name === b.name;

const keyOf = ({ namespace, name, uid }: Coordinates): string => `${namespace}\0${name}\0${uid}`;

function byName(a: Coordinates, b: Coordinates): number {
  const [left, right] = [keyOf(a), keyOf(b)];
  return left < right ? -1 : left > right ? 1 : 0;
}

/**
 * Returns what a record stores of the credentials of a pull. A pull without credentials, or with those of the node, makes the
 * image usable for all pods.
 */
function credentialsOf(used: PullCredential | undefined): PullCredentials {
  const { source } = used ?? {};
  if (source === undefined) return { nodePodsAccessible: true };
  const { kind, ...coordinates } = source;
  return kind === 'secret'
    ? { kubernetesSecrets: [{ ...coordinates, credentialHash: used?.hash ?? '' }] }
    : { kubernetesServiceAccounts: [coordinates] };
}

interface PullVerificationOptions {
  readonly policy: VerificationPolicy;
  readonly allowlist: readonly string[];
  readonly records: PullRecords;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly onCheck?: (result: CheckResult) => void;
}

/** Decides by the records of this node, and keeps them up to date around each pull. */
export class PullVerification {
  readonly #options: PullVerificationOptions;
  /** The number of current pulls of each image. */
  readonly #pulling = new Map<string, number>();

  constructor(options: PullVerificationOptions) {
    this.#options = options;
  }

  /**
   * Records images of interrupted pulls as pulled by this agent, without credentials, and removes their intents. Intents of
   * images that are not on the node stay.
   */
  async recordInterrupted(listImages: () => Promise<readonly ImageInfo[]>): Promise<void> {
    const { records } = this.#options;
    if (records.intents.size === 0) return;
    const images = await listImages();
    for (const intent of records.intents) {
      const wanted = fullName(intent);
      const image = images.find(({ repoTags, repoDigests }) =>
        [...repoTags, ...repoDigests].some((name) => fullName(name) === wanted),
      );
      if (image === undefined) continue;
      await this.#record(intent, image.id, undefined);
      await records.removeIntent(intent);
    }
  }

  /** Called before a pull. Throws if the intent cannot be written. */
  async starts(image: string): Promise<void> {
    this.#pulling.set(image, (this.#pulling.get(image) ?? 0) + 1);
    try {
      await this.#options.records.addIntent(image);
    } catch (error) {
      this.#endPull(image);
      throw error;
    }
  }

  /** Called after a successful pull with the credentials `used`. A record that cannot be written is logged. */
  async pulled(image: string, imageRef: string, used: PullCredential | undefined): Promise<void> {
    try {
      await this.#record(image, imageRef, credentialsOf(used));
    } catch (error) {
      // The intent stays: the image is still known as ours.
      this.#endPull(image);
      this.#options.logger.error({ err: error, image }, 'Cannot write the record of an image pull');
      return;
    }
    await this.#removeIntent(image);
  }

  /** Called when a pull has failed. */
  async failed(image: string): Promise<void> {
    await this.#removeIntent(image);
  }

  /** Ends a pull and removes its intent, unless another pull of the image is running. A failure to remove it is logged. */
  async #removeIntent(image: string): Promise<void> {
    if (this.#endPull(image) > 0) return;
    await this.#options.records
      .removeIntent(image)
      .catch((error: unknown) =>
        this.#options.logger.error({ err: error, image }, 'Cannot remove the intent of an image pull'),
      );
  }

  /** Whether a pod with these credentials has to pull the image although the node has it as `imageRef`. */
  async mustPull(
    image: string,
    imageRef: string,
    credentials: () => Promise<readonly PullCredential[]>,
  ): Promise<boolean> {
    const result = await this.#check(image, imageRef, credentials);
    this.#options.onCheck?.(result);
    return result === 'mustAuthenticate' || result === 'error';
  }

  /** Removes the records of images that are gone, if they were last written before `beforeMs` (wall clock). */
  async prune(imageRefs: ReadonlySet<string>, beforeMs: number): Promise<void> {
    const { records } = this.#options;
    for (const { imageRef, lastUpdatedTime } of records.pulled.values()) {
      // A record without a valid time counts as old.
      const isNewer = Date.parse(lastUpdatedTime) >= beforeMs;
      if (!imageRefs.has(imageRef) && !isNewer) await records.remove(imageRef);
    }
  }

  async #check(
    image: string,
    imageRef: string,
    credentials: () => Promise<readonly PullCredential[]>,
  ): Promise<CheckResult> {
    const { policy, allowlist, records } = this.#options;
    if (records.isBroken(imageRef)) return 'error';
    const record = records.pulled.get(imageRef);
    const isOurs = record !== undefined || records.intents.has(image);
    if (!mustVerify(policy, allowlist, image, isOurs)) return 'credentialPolicyAllowed';
    const recorded = record?.credentialMapping?.[repositoryName(image)];
    if (recorded === undefined) return 'mustAuthenticate';
    if (recorded.nodePodsAccessible === true) return 'credentialRecordFound';
    const { kubernetesSecrets: secrets = [], kubernetesServiceAccounts: accounts = [] } = recorded;
    if (secrets.length === 0 && accounts.length === 0) return 'mustAuthenticate';
    const podCredentials = await credentials();
    for (const { source, hash } of podCredentials) {
      if (source?.kind !== 'secret') continue;
      const { kind: _kind, ...coordinates } = source;
      const secret = { ...coordinates, credentialHash: hash };
      const mayAdd = secrets.length < MAX_SECRETS_ADDED;
      if (!secrets.some((one) => hasSameCredentials(one, secret) || (mayAdd && isSame(one, secret)))) continue;
      // A new secret with valid credentials, or new content of a known secret, is recorded, so that both are accepted the next
      // time.
      if (mayAdd) await this.#remember(image, imageRef, secret);
      return 'credentialRecordFound';
    }
    const account = podCredentials.find(({ source }) => source?.kind === 'serviceAccount')?.source;
    return account !== undefined && accounts.some((one) => isSame(one, account))
      ? 'credentialRecordFound'
      : 'mustAuthenticate';
  }

  async #remember(image: string, imageRef: string, secret: PullSecret): Promise<void> {
    await this.#record(image, imageRef, { kubernetesSecrets: [secret] }).catch((error: unknown) =>
      this.#options.logger.error({ err: error, image }, 'Cannot write the record of an image pull'),
    );
  }

  async #record(image: string, imageRef: string, found: PullCredentials | undefined): Promise<void> {
    const { records, clock } = this.#options;
    const record = records.pulled.get(imageRef);
    const now = `${new Date(clock.now()).toISOString().slice(0, 19)}Z`;
    const next = withCredentials(record, { imageRef, name: repositoryName(image), now }, found);
    if (next !== record) await records.put(next);
  }

  /** Counts a pull of the image as ended. Returns the number of its pulls that are still running. */
  #endPull(image: string): number {
    const left = (this.#pulling.get(image) ?? 1) - 1;
    if (left > 0) this.#pulling.set(image, left);
    else this.#pulling.delete(image);
    return left;
  }
}

/** Whether two secrets have the same credentials. */
function hasSameCredentials(recorded: PullSecret, secret: PullSecret): boolean {
  return recorded.credentialHash !== '' && recorded.credentialHash === secret.credentialHash;
}

function fullName(name: string): string {
  try {
    const { tag, digest } = parseImageReference(name);
    return `${repositoryName(name)}:${tag}@${digest}`;
  } catch (error) {
    if (error instanceof ImageReferenceError) return name;
    throw error;
  }
}
