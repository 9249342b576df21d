/**
 * Stores the records of image pulls in the kubelet's files. `image_manager/pulling` has a file for each image that is being
 * pulled, and `image_manager/pulled` one for each pulled image, with the credentials that succeeded. A change is on disk
 * before its call resolves. The agent and the kubelet can take over from each other.
 */
import { createHash } from 'node:crypto';
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../../api/component/logger.ts';
import { makeFolder, replaceFile } from '../../../api/machinery/replace-file.ts';
import { readRegularFile } from '../../base/files/regular-file.ts';
import { KeyedQueue } from '../../../api/machinery/serial-queue.ts';
import { isJsonObject } from '../../../api/meta/json-object.ts';

/** The secret whose credentials succeeded, with their hash. */
export interface PullSecret {
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
  readonly credentialHash: string;
}

interface PullServiceAccount {
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
}

/** The pods that may use an image: all pods of the node, or those with one of these credentials. */
export interface PullCredentials {
  readonly nodePodsAccessible?: boolean;
  readonly kubernetesSecrets?: readonly PullSecret[];
  readonly kubernetesServiceAccounts?: readonly PullServiceAccount[];
}

/** The record of one image. The names of the fields are those of the file. */
export interface PulledRecord {
  /** RFC 3339, whole seconds. */
  readonly lastUpdatedTime: string;
  /** The image's id. */
  readonly imageRef: string;
  /** The credentials by registry and path of the image, without tag and digest. */
  readonly credentialMapping?: Readonly<Record<string, PullCredentials>>;
}

const API_VERSIONS = ['kubelet.config.k8s.io/v1beta1', 'kubelet.config.k8s.io/v1alpha1'];
/** The maximum size of a record, which has some hundred bytes for each credential that was used. */
const MAX_RECORD_BYTES = 16 * 1024 * 1024;
const FILE_NAME = /^sha256-[0-9a-f]{64}$/;

/**
 * Owns the files and their content in memory. Call `load` first. Then `isBroken` is true for images whose record was not read.
 */
export class PullRecords {
  readonly #directory: string;
  readonly #logger: Logger;
  readonly #intents = new Set<string>();
  readonly #pulled = new Map<string, PulledRecord>();
  /** The names of the files of records that cannot be read. */
  readonly #broken = new Set<string>();
  /** The queues by path, because writes of one file must not overlap. */
  readonly #writes = new KeyedQueue();

  constructor(rootDirectory: string, logger: Logger) {
    this.#directory = join(rootDirectory, 'image_manager');
    this.#logger = logger;
  }

  /** Reads the records from the disk. */
  async load(): Promise<void> {
    await this.#read('pulling', 'ImagePullIntent', ({ image }) => {
      if (typeof image !== 'string') return false;
      this.#intents.add(image);
      return true;
    });
    await this.#read('pulled', 'ImagePulledRecord', (fields) => {
      const record = recordOf(fields);
      if (record === undefined) return false;
      this.#pulled.set(record.imageRef, record);
      return true;
    });
  }

  /** The images whose pull has begun and has not ended, by the references in pods. */
  get intents(): ReadonlySet<string> {
    return this.#intents;
  }

  /** The records of pulled images by `imageRef`. */
  get pulled(): ReadonlyMap<string, PulledRecord> {
    return this.#pulled;
  }

  /** Whether the image has a record that cannot be read. */
  isBroken(imageRef: string): boolean {
    return this.#broken.has(fileName(imageRef));
  }

  addIntent(image: string): Promise<void> {
    this.#intents.add(image);
    return this.#write('pulling', image, { kind: 'ImagePullIntent', apiVersion: API_VERSIONS[0], image });
  }

  removeIntent(image: string): Promise<void> {
    this.#intents.delete(image);
    return this.#write('pulling', image, undefined);
  }

  put(record: PulledRecord): Promise<void> {
    this.#pulled.set(record.imageRef, record);
    this.#broken.delete(fileName(record.imageRef));
    return this.#write('pulled', record.imageRef, {
      kind: 'ImagePulledRecord',
      apiVersion: API_VERSIONS[0],
      ...record,
    });
  }

  remove(imageRef: string): Promise<void> {
    this.#pulled.delete(imageRef);
    this.#broken.delete(fileName(imageRef));
    return this.#write('pulled', imageRef, undefined);
  }

  async #read(folder: string, kind: string, accept: (fields: Readonly<Record<string, unknown>>) => boolean) {
    const directory = join(this.#directory, folder);
    await makeFolder(directory, 0o700);
    for (const name of await readdir(directory)) {
      if (!FILE_NAME.test(name)) continue;
      let fields: unknown;
      try {
        fields = JSON.parse((await readRegularFile(join(directory, name), MAX_RECORD_BYTES)).toString());
      } catch (error) {
        this.#logger.debug({ err: error, name }, 'Cannot read or parse a record of an image pull');
      }
      if (isJsonObject(fields) && isOf(fields, kind) && accept(fields)) continue;
      this.#broken.add(name);
      this.#logger.error(
        { file: join(directory, name) },
        'Ignoring a record of an image pull that cannot be read; an image without another record is pulled again when a pod needs it',
      );
    }
  }

  #write(folder: string, key: string, content: object | undefined): Promise<void> {
    const path = join(this.#directory, folder, fileName(key));
    return this.#writes.run(path, () =>
      content === undefined ? rm(path, { force: true }) : replaceFile(path, JSON.stringify(content), { mode: 0o600 }),
    );
  }
}

function fileName(key: string): string {
  return `sha256-${createHash('sha256').update(key).digest('hex')}`;
}

function isOf(fields: Readonly<Record<string, unknown>>, kind: string): boolean {
  return fields['kind'] === kind && API_VERSIONS.includes(String(fields['apiVersion']));
}

function recordOf({ imageRef, lastUpdatedTime, credentialMapping = {} }: Readonly<Record<string, unknown>>) {
  if (typeof imageRef !== 'string' || !isJsonObject(credentialMapping)) return undefined;
  const mapping: Record<string, PullCredentials> = {};
  for (const [image, credentials] of Object.entries(credentialMapping)) {
    if (!isJsonObject(credentials)) return undefined;
    const secrets = listOf(credentials['kubernetesSecrets'], ['uid', 'namespace', 'name', 'credentialHash']);
    const accounts = listOf(credentials['kubernetesServiceAccounts'], ['uid', 'namespace', 'name']);
    if (secrets === undefined || accounts === undefined) return undefined;
    mapping[image] = {
      ...(credentials['nodePodsAccessible'] === true ? { nodePodsAccessible: true } : {}),
      ...(secrets.length > 0 ? { kubernetesSecrets: secrets } : {}),
      ...(accounts.length > 0 ? { kubernetesServiceAccounts: accounts } : {}),
    };
  }
  return { imageRef, lastUpdatedTime: String(lastUpdatedTime), credentialMapping: mapping };
}

/**
 * Returns a list of records with these text fields. Absent fields are empty. Returns `undefined` if the value is not such a
 * list.
 */
function listOf<K extends string>(value: unknown, keys: readonly K[]): readonly Record<K, string>[] | undefined {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value) || !value.every(isJsonObject)) return undefined;
  return value.map(
    (entry) => Object.fromEntries(keys.map((key) => [key, String(entry[key] ?? '')])) as Record<K, string>,
  );
}
