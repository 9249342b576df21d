/**
 * Provides shared, indexed caches of resources, which reflectors keep current. The objects in a cache are shared and must never
 * be modified.
 *
 * Each handler receives every object exactly once as `add`, then its changes, and then its deletion, in order. If an object was
 * deleted and recreated under the same name between two reads, the handler receives `delete` and `add`.
 */
import { namespacedName } from '../meta/namespaced-name.ts';
import type { KubeObject } from '../meta/object.ts';
import type { Logger } from '../component/logger.ts';
import type { Client, ClientWatchEvent, Resource } from './client.ts';
import type { Clock } from '../machinery/clock.ts';
import type { ResourceOf } from './resources.ts';
import { runReflector, type ReflectorSelection, type ShapeObject } from './reflector.ts';
import { inSlices, TimeSlice } from '../machinery/time-slice.ts';

interface InformerHandler<T> {
  add?(object: T): void;
  update?(previous: T, current: T): void;
  /** Called with the last known state. */
  delete?(object: T): void;
}

/** A registered handler. */
export interface Registration {
  remove(): void;
}

/** The interface for readers. Only the informer writes. */
export interface Informer<T = KubeObject> {
  readonly resource: Resource;
  /** Whether the cache has been filled once. */
  readonly hasSynced: boolean;
  /** Resolves when the cache has been filled. Rejects with the signal's reason if the signal aborts before. */
  synced(signal?: AbortSignal): Promise<void>;
  /** The newest resource version seen. Versions of one server are comparable integers. */
  readonly seenVersion: bigint;
  /** Returns an object, or `undefined` if the cache has none of this name. `namespace` is '' for cluster-scoped objects. */
  get(namespace: string, name: string): T | undefined;
  /** Returns all objects, or those of a namespace. */
  list(namespace?: string): T[];
  readonly size: number;
  /** Returns the objects for which the index function returned `value`. Throws if there is no such index. */
  byIndex(index: string, value: string): T[];
  /** Adds an index. Adding a name again does nothing, so that several users can request the same index. */
  addIndex(name: string, values: (object: T) => readonly string[]): void;
  /** Adds a handler. It receives the objects that are already in the cache as `add` at once. */
  addHandler(handler: InformerHandler<T>): Registration;
}

/** What informers are created with. */
export interface InformersOptions {
  readonly client: Client;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Whether to read the initial contents with a watch. */
  readonly watchList?: boolean;
  /** Checks each object and returns what the cache gets. Throws if it is malformed. */
  readonly shape?: ShapeObject;
}

/** Owns the informers of one client. `close` stops all of them. */
export class Informers {
  readonly #options: InformersOptions;
  readonly #abort = new AbortController();
  readonly #informers = new Map<
    string,
    { readonly informer: CachingInformer; readonly run: Promise<void>; readonly stop: AbortController }
  >();

  constructor(options: InformersOptions) {
    this.#options = options;
  }

  /** Returns the shared informer of the resource and selection, and starts it if it is new. */
  for<T = KubeObject>(resource: ResourceOf<T>, selection: ReflectorSelection = {}): Informer<T> {
    const key = keyOf(resource, selection);
    const existing = this.#informers.get(key);
    // The constant of the resource guarantees the type of the objects in the cache.
    if (existing !== undefined) return existing.informer as unknown as Informer<T>;
    const informer = new CachingInformer(resource, this.#options);
    const stop = new AbortController();
    const run = runReflector(
      { ...this.#options, ...selection, resource },
      informer,
      AbortSignal.any([this.#abort.signal, stop.signal]),
    );
    this.#informers.set(key, { informer, run, stop });
    return informer as unknown as Informer<T>;
  }

  /** Stops the informer of a resource that no longer exists, for example a custom resource. */
  async stop(resource: Resource, selection: ReflectorSelection = {}): Promise<void> {
    const key = keyOf(resource, selection);
    const entry = this.#informers.get(key);
    if (entry === undefined) return;
    this.#informers.delete(key);
    entry.stop.abort(new Error('the informer was stopped'));
    await entry.run;
  }

  /** Resolves when all requested informers have synced. */
  async synced(signal?: AbortSignal): Promise<void> {
    await Promise.all([...this.#informers.values()].map(({ informer }) => informer.synced(signal)));
  }

  /** Stops all informers. Resolves when none of them runs. */
  async close(): Promise<void> {
    this.#abort.abort(new Error('the informers were closed'));
    await Promise.all([...this.#informers.values()].map(({ run }) => run));
  }
}

function keyOf(resource: Resource, selection: ReflectorSelection): string {
  const { namespace = '', labelSelector = '', fieldSelector = '' } = selection;
  return [resource.group, resource.version, resource.resource, namespace, labelSelector, fieldSelector].join('|');
}

interface Index {
  readonly values: (object: KubeObject) => readonly string[];
  readonly entries: Map<string, Set<KubeObject>>;
}

/** The cache and the sink of one reflector. */
class CachingInformer implements Informer {
  readonly resource: Resource;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #namespaces = new Map<string, Map<string, KubeObject>>();
  readonly #indexes = new Map<string, Index>();
  /**
   * The list is replaced and never modified. A handler that is added during a notification receives that object from the cache.
   */
  #handlers: readonly InformerHandler<KubeObject>[] = [];
  #waiters: (() => void)[] = [];
  #size = 0;
  #hasSynced = false;
  #seenVersion = 0n;

  constructor(resource: Resource, { clock, logger }: Pick<InformersOptions, 'clock' | 'logger'>) {
    this.resource = resource;
    this.#clock = clock;
    this.#logger = logger;
  }

  get hasSynced(): boolean {
    return this.#hasSynced;
  }

  get seenVersion(): bigint {
    return this.#seenVersion;
  }

  get size(): number {
    return this.#size;
  }

  synced(signal?: AbortSignal): Promise<void> {
    if (this.#hasSynced) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const onAbort = (): void => reject(signal?.reason as Error);
      if (signal?.aborted) return onAbort();
      signal?.addEventListener('abort', onAbort, { once: true });
      this.#waiters.push(() => {
        signal?.removeEventListener('abort', onAbort);
        resolve();
      });
    });
  }

  get(namespace: string, name: string): KubeObject | undefined {
    return this.#namespaces.get(namespace)?.get(name);
  }

  list(namespace?: string): KubeObject[] {
    if (namespace !== undefined) return [...(this.#namespaces.get(namespace)?.values() ?? [])];
    const all: KubeObject[] = [];
    for (const objects of this.#namespaces.values()) for (const object of objects.values()) all.push(object);
    return all;
  }

  byIndex(index: string, value: string): KubeObject[] {
    const found = this.#indexes.get(index);
    if (found === undefined) throw new Error(`informer of ${this.resource.resource} has no index ${index}`);
    return [...(found.entries.get(value) ?? [])];
  }

  addIndex(name: string, values: (object: KubeObject) => readonly string[]): void {
    if (this.#indexes.has(name)) return;
    const index: Index = { values, entries: new Map() };
    this.#indexes.set(name, index);
    for (const object of this.list()) addTo(index, object);
  }

  addHandler(handler: InformerHandler<KubeObject>): Registration {
    this.#handlers = [...this.#handlers, handler];
    for (const object of this.list()) this.#call(() => handler.add?.(object));
    return { remove: () => void (this.#handlers = this.#handlers.filter((other) => other !== handler)) };
  }

  /**
   * Called by the reflector with the whole contents. It works in time slices, because the handlers of thousands of objects
   * would block the event loop.
   */
  replace(items: readonly KubeObject[], resourceVersion: string, signal: AbortSignal): void | Promise<void> {
    const slice = new TimeSlice(this.#clock);
    return inSlices(this.#replace(items, resourceVersion, slice), slice, signal);
  }

  /** Replaces the contents, and calls the handlers for what differs. Yields when the slice is spent. */
  *#replace(items: readonly KubeObject[], resourceVersion: string, slice: TimeSlice): Generator<void, void, undefined> {
    const presentNames = new Set<string>();
    for (const item of items) {
      presentNames.add(namespacedName(item));
      this.#put(item);
      if (slice.isSpent) yield;
    }
    if (presentNames.size !== this.#size) {
      for (const object of this.list()) {
        if (presentNames.has(namespacedName(object))) continue;
        this.#remove(object);
        if (slice.isSpent) yield;
      }
    }
    this.#noteVersion(resourceVersion);
    this.#hasSynced = true;
    for (const waiter of this.#waiters.splice(0)) waiter();
  }

  /** Called by the reflector with a change. */
  apply(event: ClientWatchEvent): void {
    this.#noteVersion(event.object.metadata.resourceVersion ?? '');
    if (event.type === 'DELETED') this.#remove(event.object);
    else if (event.type !== 'BOOKMARK') this.#put(event.object);
  }

  #noteVersion(resourceVersion: string): void {
    if (!/^[0-9]+$/.test(resourceVersion)) return;
    const version = BigInt(resourceVersion);
    if (version > this.#seenVersion) this.#seenVersion = version;
  }

  #put(object: KubeObject): void {
    const { namespace = '', name = '' } = object.metadata;
    const previous = this.get(namespace, name);
    if (previous === undefined) {
      this.#store(object);
      for (const handler of this.#handlers) this.#call(() => handler.add?.(object));
      return;
    }
    if (previous.metadata.uid !== object.metadata.uid) {
      this.#remove(previous);
      this.#put(object);
      return;
    }
    if (previous.metadata.resourceVersion === object.metadata.resourceVersion) return;
    for (const index of this.#indexes.values()) removeFrom(index, previous);
    this.#namespaces.get(namespace)?.set(name, object);
    for (const index of this.#indexes.values()) addTo(index, object);
    for (const handler of this.#handlers) this.#call(() => handler.update?.(previous, object));
  }

  #store(object: KubeObject): void {
    const { namespace = '', name = '' } = object.metadata;
    let objects = this.#namespaces.get(namespace);
    if (objects === undefined) {
      objects = new Map();
      this.#namespaces.set(namespace, objects);
    }
    objects.set(name, object);
    this.#size++;
    for (const index of this.#indexes.values()) addTo(index, object);
  }

  #remove(object: KubeObject): void {
    const { namespace = '', name = '' } = object.metadata;
    const objects = this.#namespaces.get(namespace);
    const previous = objects?.get(name);
    if (objects === undefined || previous === undefined) return;
    objects.delete(name);
    if (objects.size === 0) this.#namespaces.delete(namespace);
    this.#size--;
    for (const index of this.#indexes.values()) removeFrom(index, previous);
    // The event contains the newest state, unless it is about another object with the same name.
    const last = object.metadata.uid === previous.metadata.uid ? object : previous;
    for (const handler of this.#handlers) this.#call(() => handler.delete?.(last));
  }

  /** Calls a handler. Its error must stop neither the other handlers nor the reflector. */
  #call(notify: () => void): void {
    try {
      notify();
    } catch (error) {
      this.#logger.error({ resource: this.resource.resource, err: error }, 'An event handler of an informer failed');
    }
  }
}

function addTo(index: Index, object: KubeObject): void {
  for (const value of index.values(object)) {
    const entry = index.entries.get(value);
    if (entry === undefined) index.entries.set(value, new Set([object]));
    else entry.add(object);
  }
}

function removeFrom(index: Index, object: KubeObject): void {
  for (const value of index.values(object)) {
    const entry = index.entries.get(value);
    entry?.delete(object);
    if (entry?.size === 0) index.entries.delete(value);
  }
}
