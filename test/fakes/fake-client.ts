/**
 * Implements an API in memory behind the `Client` interface, for tests of the clients of the API. It has increasing versions,
 * conflicts, finalizers, graceful deletion of pods, and watches with history. It has no defaulting, validation or
 * authorization.
 *
 * `calls` records every write. `intercept` makes a call fail or responds to it.
 */
import { newAlreadyExists, newConflict, newExpired, newInvalid, newNotFound } from '../../api/meta/status-error.ts';
import { type KubeList, type KubeObject, apiVersionOf } from '../../api/meta/object.ts';
import { formatTime, type Clock } from '../../api/machinery/clock.ts';
import type {
  Client,
  ClientDeleteOptions,
  ClientListOptions,
  ClientWatchEvent,
  ClientWatchOptions,
  ClientWriteOptions,
  ClientPatch,
  PatchType,
  Resource,
} from '../../api/client/client.ts';
import { applyTestPatch, matchesFields, matchesLabels } from './fake-client-rules.ts';

export interface FakeCall {
  readonly verb: 'get' | 'list' | 'watch' | 'create' | 'update' | 'patch' | 'delete' | 'deletecollection';
  readonly resource: Resource;
  readonly namespace: string;
  readonly name: string;
  readonly subresource?: string;
  readonly object?: KubeObject;
  readonly patch?: unknown;
  readonly patchType?: PatchType;
  readonly options?: ClientDeleteOptions;
}

interface LogEntry {
  readonly revision: number;
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED';
  readonly key: string;
  readonly object: KubeObject;
  readonly previous: KubeObject | undefined;
}

type Interceptor = (call: FakeCall) => KubeObject | undefined | Promise<KubeObject | undefined>;

/** The fake API and its client in one object. `seed` stores objects without recording a write. */
export class FakeClient implements Client {
  readonly calls: FakeCall[] = [];
  readonly #clock: Clock;
  readonly #objects = new Map<string, Map<string, KubeObject>>();
  readonly #log: LogEntry[] = [];
  readonly #listeners = new Set<() => void>();
  readonly #interceptors: Interceptor[] = [];
  #revision = 100;
  #uids = 0;
  #compacted = 0;
  #cutWatches = 0;

  constructor(clock: Clock, objects: readonly (readonly [Resource, KubeObject])[] = []) {
    this.#clock = clock;
    for (const [resource, object] of objects) this.seed(resource, object);
  }

  /** Stores an object unchanged, apart from the metadata that a server always sets. */
  seed<T extends KubeObject>(resource: Resource, object: T): T {
    const stored = this.#stamp(resource, structuredClone(object));
    this.#write(resource, stored, this.#table(resource).get(keyOf(stored)));
    return structuredClone(stored) as T;
  }

  /** The number of watches that are open. */
  get openWatches(): number {
    return this.#listeners.size;
  }

  /** Returns the stored object without recording a call. */
  peek<T = KubeObject>(
    resource: Resource & { readonly objectType?: T },
    namespace: string,
    name: string,
  ): T | undefined {
    return this.#table(resource).get(`${namespace}/${name}`) as T | undefined;
  }

  /** Returns all objects of a resource, without recording a call. */
  peekAll<T = KubeObject>(resource: Resource & { readonly objectType?: T }): T[] {
    return [...this.#table(resource).values()] as T[];
  }

  /** Runs before each call. If it throws, the call fails; if it returns an object, that is the response. */
  intercept(interceptor: Interceptor): void {
    this.#interceptors.push(interceptor);
  }

  /** Drops the history, so that older watches fail with Expired. */
  compact(): void {
    this.#compacted = this.#revision;
  }

  /** Ends all watches, like a server that stops. */
  endWatches(): void {
    this.#cutWatches++;
    for (const listener of this.#listeners) listener();
  }

  /** Returns the recorded calls of a verb, by default those of all writing verbs. */
  writes(verb?: FakeCall['verb']): FakeCall[] {
    const reads = ['get', 'list', 'watch'];
    return this.calls.filter((call) => (verb === undefined ? !reads.includes(call.verb) : call.verb === verb));
  }

  async get(
    resource: Resource,
    namespace: string,
    name: string,
    options: { subresource?: string } = {},
  ): Promise<KubeObject> {
    const call: FakeCall = { verb: 'get', resource, namespace, name, ...pickSubresource(options) };
    return (await this.#intercepted(call)) ?? structuredClone(this.#existing(resource, namespace, name));
  }

  async list(resource: Resource, options: ClientListOptions = {}): Promise<KubeList> {
    await this.#intercepted({ verb: 'list', resource, namespace: options.namespace ?? '', name: '' });
    const all = [...this.#table(resource).values()]
      .filter((object) => this.#selects(options, object))
      .toSorted((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
    const start = options.continue === undefined ? 0 : Number(options.continue);
    const end = options.limit === undefined ? all.length : Math.min(all.length, start + options.limit);
    return {
      apiVersion: apiVersionOf(resource),
      kind: `${resource.kind}List`,
      metadata: { resourceVersion: String(this.#revision), ...(end < all.length ? { continue: String(end) } : {}) },
      items: structuredClone(all.slice(start, end)),
    };
  }

  async create(
    resource: Resource,
    namespace: string,
    object: KubeObject,
    options: ClientWriteOptions & { name?: string } = {},
  ): Promise<KubeObject> {
    const given = structuredClone(object);
    if (resource.namespaced) given.metadata.namespace = namespace;
    const generated = given.metadata.name === undefined && given.metadata.generateName !== undefined;
    if (generated)
      given.metadata.name = `${given.metadata.generateName}${(++this.#uids).toString(36).padStart(5, 'x')}`;
    const name = options.name ?? given.metadata.name ?? '';
    const call: FakeCall = { verb: 'create', resource, namespace, name, ...pickSubresource(options), object: given };
    const answer = await this.#intercepted(call);
    if (answer !== undefined) return answer;
    if (options.subresource !== undefined) return given;
    if (this.#table(resource).has(keyOf(given))) throw newAlreadyExists(resource, name);
    delete given.metadata.resourceVersion;
    const stored = this.#stamp(resource, given);
    this.#write(resource, stored, undefined);
    return structuredClone(stored);
  }

  async update(resource: Resource, object: KubeObject, options: ClientWriteOptions = {}): Promise<KubeObject> {
    const { namespace = '', name = '', resourceVersion } = object.metadata;
    const given = structuredClone(object);
    const call: FakeCall = { verb: 'update', resource, namespace, name, ...pickSubresource(options), object: given };
    const answer = await this.#intercepted(call);
    if (answer !== undefined) return answer;
    const current = this.#existing(resource, namespace, name);
    if (resourceVersion !== undefined && resourceVersion !== current.metadata.resourceVersion) {
      throw newConflict(
        resource,
        name,
        'the object has been modified; please apply your changes to the latest version and try again',
      );
    }
    return this.#store(resource, current, given, options.subresource);
  }

  async patch(resource: Resource, namespace: string, name: string, patch: ClientPatch): Promise<KubeObject> {
    const { type, body, ...options } = patch;
    const call: FakeCall = {
      verb: 'patch',
      resource,
      namespace,
      name,
      ...pickSubresource(options),
      patch: body,
      patchType: type,
    };
    const answer = await this.#intercepted(call);
    if (answer !== undefined) return answer;
    const current = this.#existing(resource, namespace, name);
    const patched = applyTestPatch(structuredClone(current), type, body);
    const { uid, resourceVersion } = patched.metadata;
    if (uid !== undefined && uid !== current.metadata.uid)
      throw newConflict(resource, name, 'the UID in the precondition does not match');
    if (resourceVersion !== undefined && resourceVersion !== current.metadata.resourceVersion) {
      throw newConflict(resource, name, 'the object has been modified');
    }
    return this.#store(resource, current, patched, options.subresource);
  }

  async delete(
    resource: Resource,
    namespace: string,
    name: string,
    options: ClientDeleteOptions = {},
  ): Promise<unknown> {
    const answer = await this.#intercepted({ verb: 'delete', resource, namespace, name, options });
    if (answer !== undefined) return answer;
    const current = this.#existing(resource, namespace, name);
    const { uid, resourceVersion } = options.preconditions ?? {};
    if (uid !== undefined && uid !== current.metadata.uid) {
      throw newConflict(
        resource,
        name,
        `the UID in the precondition (${uid}) does not match the UID in record (${current.metadata.uid}). The object might have been deleted and then recreated`,
      );
    }
    if (resourceVersion !== undefined && resourceVersion !== current.metadata.resourceVersion) {
      throw newConflict(resource, name, 'the ResourceVersion in the precondition does not match');
    }
    return this.#mark(resource, current, options);
  }

  async deleteCollection(resource: Resource, options: ClientListOptions & ClientDeleteOptions): Promise<void> {
    await this.#intercepted({
      verb: 'deletecollection',
      resource,
      namespace: options.namespace ?? '',
      name: '',
      options,
    });
    for (const object of this.peekAll(resource)) {
      if (this.#selects(options, object)) this.#mark(resource, object, options);
    }
  }

  async *watch(resource: Resource, options: ClientWatchOptions = {}): AsyncIterable<ClientWatchEvent> {
    await this.#intercepted({ verb: 'watch', resource, namespace: options.namespace ?? '', name: '' });
    const cut = this.#cutWatches;
    let revision = Number(options.resourceVersion ?? 0);
    if (options.sendInitialEvents === true || revision === 0) {
      for (const object of this.peekAll(resource)) {
        if (this.#selects(options, object)) yield { type: 'ADDED', object: structuredClone(object) };
      }
      revision = this.#revision;
      if (options.sendInitialEvents === true) yield bookmark(resource, revision);
    } else if (revision < this.#compacted)
      throw newExpired(`too old resource version: ${revision} (${this.#compacted})`);
    const prefix = tableName(resource);
    while (options.signal?.aborted !== true && cut === this.#cutWatches) {
      const entry = this.#log.find((candidate) => candidate.revision > revision);
      if (entry === undefined) {
        await this.#changed(options.signal);
        continue;
      }
      revision = entry.revision;
      const event = entry.key.startsWith(prefix) ? this.#seenThrough(options, entry) : undefined;
      if (event !== undefined) yield structuredClone(event);
    }
  }

  /** Returns the event that a watch with selectors gets for a write. */
  #seenThrough(options: ClientWatchOptions, entry: LogEntry): ClientWatchEvent | undefined {
    const after = entry.type !== 'DELETED' && this.#selects(options, entry.object);
    const before = entry.previous !== undefined && this.#selects(options, entry.previous);
    if (after) return { type: before ? 'MODIFIED' : 'ADDED', object: entry.object };
    return before ? { type: 'DELETED', object: entry.object } : undefined;
  }

  #changed(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        this.#listeners.delete(wake);
        signal?.removeEventListener('abort', wake);
        resolve();
      };
      this.#listeners.add(wake);
      signal?.addEventListener('abort', wake, { once: true });
    });
  }

  async #intercepted(call: FakeCall): Promise<KubeObject | undefined> {
    this.calls.push(call);
    for (const interceptor of this.#interceptors) {
      const answer = await interceptor(call);
      if (answer !== undefined) return answer;
    }
    return undefined;
  }

  #table(resource: Resource): Map<string, KubeObject> {
    const name = tableName(resource);
    let table = this.#objects.get(name);
    if (table === undefined) {
      table = new Map();
      this.#objects.set(name, table);
    }
    return table;
  }

  #existing(resource: Resource, namespace: string, name: string): KubeObject {
    const found = this.#table(resource).get(`${namespace}/${name}`);
    if (found === undefined) throw newNotFound(resource, name);
    return found;
  }

  #selects(options: ClientListOptions | ClientWatchOptions, object: KubeObject): boolean {
    if (options.namespace !== undefined && options.namespace !== '' && object.metadata.namespace !== options.namespace)
      return false;
    return matchesLabels(options.labelSelector, object) && matchesFields(options.fieldSelector, object);
  }

  #stamp(resource: Resource, object: KubeObject): KubeObject {
    object.apiVersion ??= apiVersionOf(resource);
    object.kind ??= resource.kind;
    object.metadata.uid ??= `uid-${++this.#uids}`;
    object.metadata.creationTimestamp ??= formatTime(this.#clock.now());
    if (object['spec'] !== undefined) object.metadata.generation ??= 1;
    return object;
  }

  #store(resource: Resource, current: KubeObject, given: KubeObject, subresource: string | undefined): KubeObject {
    if (given.metadata.uid !== undefined && given.metadata.uid !== current.metadata.uid) {
      throw newInvalid({ group: resource.group, resource: resource.kind }, current.metadata.name ?? '', []);
    }
    let next: KubeObject;
    if (subresource === 'status') {
      next = { ...structuredClone(current), status: given['status'] };
      // The API accepts changes of metadata through `/status`, too. Controllers change these this way.
      if (given.metadata.annotations !== undefined) next.metadata.annotations = { ...given.metadata.annotations };
      if (given.metadata.finalizers !== undefined) next.metadata.finalizers = [...given.metadata.finalizers];
    } else {
      next =
        subresource === undefined && hasStatus(resource)
          ? { ...given, status: structuredClone(current['status']) }
          : given;
      if (JSON.stringify(next['spec']) !== JSON.stringify(current['spec'])) {
        next.metadata.generation = (current.metadata.generation ?? 0) + 1;
      } else if (current.metadata.generation !== undefined) next.metadata.generation = current.metadata.generation;
      if (current.metadata.deletionTimestamp !== undefined)
        next.metadata.deletionTimestamp = current.metadata.deletionTimestamp;
      if (next['status'] === undefined) delete next['status'];
    }
    const uid = current.metadata.uid;
    if (uid !== undefined) next.metadata.uid = uid;
    if (
      next.metadata.deletionTimestamp !== undefined &&
      finalizersOf(next).length === 0 &&
      !isGraceful(resource, next)
    ) {
      this.#remove(resource, next);
      return structuredClone(next);
    }
    if (
      JSON.stringify({ ...next, metadata: { ...next.metadata, resourceVersion: '' } }) ===
      JSON.stringify({ ...current, metadata: { ...current.metadata, resourceVersion: '' } })
    ) {
      return structuredClone(current);
    }
    this.#write(resource, next, current);
    return structuredClone(next);
  }

  #mark(resource: Resource, current: KubeObject, options: ClientDeleteOptions): KubeObject {
    const next = structuredClone(current);
    if (options.propagationPolicy === 'Foreground') addFinalizer(next, 'foregroundDeletion');
    if (options.propagationPolicy === 'Orphan') addFinalizer(next, 'orphan');
    const graceful = isGraceful(resource, next) && options.gracePeriodSeconds !== 0;
    if (!graceful && finalizersOf(next).length === 0) {
      this.#remove(resource, next);
      return next;
    }
    next.metadata.deletionTimestamp ??= formatTime(this.#clock.now());
    if (graceful) next.metadata.deletionGracePeriodSeconds ??= options.gracePeriodSeconds ?? 30;
    this.#write(resource, next, current);
    return next;
  }

  #write(resource: Resource, object: KubeObject, previous: KubeObject | undefined): void {
    object.metadata.resourceVersion = String(++this.#revision);
    this.#table(resource).set(keyOf(object), object);
    this.#record(resource, previous === undefined ? 'ADDED' : 'MODIFIED', object, previous);
  }

  #remove(resource: Resource, object: KubeObject): void {
    const previous = this.#table(resource).get(keyOf(object));
    this.#table(resource).delete(keyOf(object));
    object.metadata.resourceVersion = String(++this.#revision);
    this.#record(resource, 'DELETED', object, previous);
  }

  #record(resource: Resource, type: LogEntry['type'], object: KubeObject, previous: KubeObject | undefined): void {
    this.#log.push({ revision: this.#revision, type, key: `${tableName(resource)}${keyOf(object)}`, object, previous });
    for (const listener of this.#listeners) listener();
  }
}

function pickSubresource(options: { readonly subresource?: string }): { subresource?: string } {
  return options.subresource === undefined ? {} : { subresource: options.subresource };
}

function tableName(resource: Resource): string {
  return `${resource.group}/${resource.resource}:`;
}

function keyOf(object: KubeObject): string {
  return `${object.metadata.namespace ?? ''}/${object.metadata.name ?? ''}`;
}

function hasStatus(resource: Resource): boolean {
  return !['events', 'leases', 'configmaps', 'secrets', 'serviceaccounts', 'endpoints', 'endpointslices'].includes(
    resource.resource,
  );
}

/** Returns the finalizers of an object. Namespaces have finalizers in the spec, too. */
function finalizersOf(object: KubeObject): readonly string[] {
  const spec = object['spec'] as { finalizers?: string[] } | undefined;
  return [...(object.metadata.finalizers ?? []), ...(object.kind === 'Namespace' ? (spec?.finalizers ?? []) : [])];
}

/** Whether the object is deleted gracefully, as only pods that run on a node are. */
function isGraceful(resource: Resource, object: KubeObject): boolean {
  const spec = object['spec'] as { nodeName?: string } | undefined;
  return resource.resource === 'pods' && (spec?.nodeName ?? '') !== '';
}

function addFinalizer(object: KubeObject, finalizer: string): void {
  const finalizers = object.metadata.finalizers ?? [];
  if (!finalizers.includes(finalizer)) object.metadata.finalizers = [...finalizers, finalizer];
}

function bookmark(resource: Resource, revision: number): ClientWatchEvent {
  return {
    type: 'BOOKMARK',
    object: {
      apiVersion: apiVersionOf(resource),
      kind: resource.kind,
      metadata: { resourceVersion: String(revision), annotations: { 'k8s.io/initial-events-end': 'true' } },
    },
  };
}
