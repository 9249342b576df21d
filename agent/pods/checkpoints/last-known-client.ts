/**
 * An API client that stores what it reads for pods of this node: config maps, secrets, claims and their volumes, and
 * service-account tokens. It returns the stored objects while the API server cannot be reached. A response that an object does
 * not exist or is forbidden counts as a response and is never replaced.
 *
 * Secrets and tokens are therefore on the disk, readable by root only, as long as a pod of this node refers to them. A host
 * that must not store them runs with `--pod-checkpoints=false`.
 */
import { createHash } from 'node:crypto';
import type {
  Client,
  ClientDeleteOptions,
  ClientListOptions,
  ClientWatchEvent,
  ClientWatchOptions,
  ClientCreateOptions,
  ClientWriteOptions,
  ClientPatch,
  Resource,
} from '../../../api/client/client.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { isStatusError } from '../../../api/meta/status-error.ts';
import type { KubeList, KubeObject } from '../../../api/meta/object.ts';
import type { CheckpointStore } from './checkpoint-store.ts';

const REMEMBERED: ReadonlySet<string> = new Set([
  'configmaps',
  'secrets',
  'persistentvolumeclaims',
  'persistentvolumes',
]);

/** The longest percent-encoded name in a key. With the prefix, it must fit into the 255 bytes of a file name. */
const MAX_NAME_CHARACTERS = 160;

/** The time after which the client returns a stored object, if it has one, instead of waiting for a response. */
const RESPONSE_WAIT_MS = 3_000;

interface LastKnownClientOptions {
  readonly client: Client;
  readonly store: CheckpointStore;
  readonly clock: Clock;
}

/**
 * Wraps the client of one API server. Requests are passed through. Only a get and the creation of a token return a stored
 * object.
 */
export class LastKnownClient implements Client {
  readonly #client: Client;
  readonly #store: CheckpointStore;
  readonly #clock: Clock;

  constructor({ client, store, clock }: LastKnownClientOptions) {
    this.#client = client;
    this.#store = store;
    this.#clock = clock;
  }

  async get(
    resource: Resource,
    namespace: string,
    name: string,
    options: Parameters<Client['get']>[3] = {},
  ): Promise<KubeObject> {
    if (!REMEMBERED.has(resource.resource) || options.subresource !== undefined)
      return this.#client.get(resource, namespace, name, options);
    const key = objectKey(resource.resource, namespace, name);
    const object = await this.#orLastKnown(key, () => this.#client.get(resource, namespace, name, options));
    this.#store.put(key, () => stored(object));
    return object;
  }

  async list(resource: Resource, options: ClientListOptions = {}): Promise<KubeList> {
    const list = await this.#client.list(resource, options);
    if (REMEMBERED.has(resource.resource) && isOfOneName(options))
      for (const item of list.items) this.#remember(resource, item);
    return list;
  }

  /**
   * Creates an object. A token that is bound to a pod is stored, and the stored one is returned while the API server does not
   * respond.
   */
  async create(
    resource: Resource,
    namespace: string,
    object: KubeObject,
    options: ClientCreateOptions = {},
  ): Promise<KubeObject> {
    const key =
      resource.resource === 'serviceaccounts' && options.subresource === 'token'
        ? tokenKey(namespace, options.name ?? '', object)
        : undefined;
    if (key === undefined) return this.#client.create(resource, namespace, object, options);
    const answer = await this.#orLastKnown(key, () => this.#client.create(resource, namespace, object, options));
    this.#store.put(key, () => answer);
    return answer;
  }

  update(resource: Resource, object: KubeObject, options?: ClientWriteOptions): Promise<KubeObject> {
    return this.#client.update(resource, object, options);
  }

  patch(resource: Resource, namespace: string, name: string, patch: ClientPatch): Promise<KubeObject> {
    return this.#client.patch(resource, namespace, name, patch);
  }

  delete(resource: Resource, namespace: string, name: string, options?: ClientDeleteOptions): Promise<unknown> {
    return this.#client.delete(resource, namespace, name, options);
  }

  deleteCollection(resource: Resource, options: ClientListOptions & ClientDeleteOptions): Promise<void> {
    return this.#client.deleteCollection(resource, options);
  }

  async *watch(resource: Resource, options: ClientWatchOptions = {}): AsyncIterable<ClientWatchEvent> {
    const remembers = REMEMBERED.has(resource.resource) && isOfOneName(options);
    for await (const event of this.#client.watch(resource, options)) {
      if (remembers && (event.type === 'ADDED' || event.type === 'MODIFIED')) this.#remember(resource, event.object);
      yield event;
    }
  }

  #remember(resource: Resource, object: KubeObject): void {
    const { namespace = '', name = '' } = object.metadata;
    this.#store.put(objectKey(resource.resource, namespace, name), () => stored(object));
  }

  /**
   * Requests the object. Returns the stored one if there is one, and the API server does not respond in time or cannot be
   * reached.
   */
  async #orLastKnown(key: string, request: () => Promise<KubeObject>): Promise<KubeObject> {
    const response = request();
    const limit = new AbortController();
    const outcome = response.then(
      (object) => ({ object }),
      (error: unknown) => ({ error }),
    );
    const first = await Promise.race([
      outcome,
      this.#clock.sleep(RESPONSE_WAIT_MS, limit.signal).then(
        () => undefined,
        () => undefined,
      ),
    ]);
    limit.abort();
    if (first !== undefined && 'object' in first) return first.object;
    if (first !== undefined && !isUnreachable(first.error)) throw first.error;
    const last = await this.#store.get(key);
    return last === undefined ? response : (last as KubeObject);
  }
}

/** Returns the key under which an object is stored. */
export function objectKey(resource: string, namespace: string, name: string): string {
  return boundedKey(`objects/${resource}_`, namespace === '' ? name : `${namespace}_${name}`);
}

/**
 * Returns the key of the prefix and the name, or of a hash of the name if the name is too long. Names of objects and audiences
 * can be longer than a file name, and one file that cannot be written would delay the others.
 */
function boundedKey(prefix: string, name: string): string {
  return encodeURIComponent(name).length <= MAX_NAME_CHARACTERS
    ? `${prefix}${name}`
    : `${prefix}~${createHash('sha256').update(name).digest('hex')}`;
}

/** Returns how the names of the tokens of a pod begin below `objects/`. */
export function tokenPrefix(podUid: string): string {
  return `token_${podUid}_`;
}

/** Returns the key under which a token is stored, or `undefined` if the request does not bind the token to a pod. */
function tokenKey(namespace: string, account: string, request: KubeObject): string | undefined {
  const spec = request['spec'] as
    | { readonly boundObjectRef?: { readonly uid?: string }; readonly audiences?: readonly string[] }
    | undefined;
  const uid = spec?.boundObjectRef?.uid;
  if (uid === undefined) return undefined;
  return boundedKey(`objects/${tokenPrefix(uid)}`, [namespace, account, ...(spec?.audiences ?? [])].join('_'));
}

function isOfOneName({ fieldSelector }: ClientListOptions): boolean {
  return fieldSelector?.startsWith('metadata.name=') === true;
}

/** Whether the error shows no decision of the API server: no Status at all, or the codes 401, 429, and 500 or higher. */
function isUnreachable(error: unknown): boolean {
  if (!isStatusError(error)) return true;
  const { code } = error;
  return code >= 500 || code === 429 || code === 401;
}

function stored(object: KubeObject): KubeObject {
  const { managedFields: _owners, ...metadata } = object.metadata;
  return { ...object, metadata };
}
