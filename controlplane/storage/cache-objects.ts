/**
 * Holds the objects of one watch cache: a `CachedObject` for each stored version, and a `CacheEvent` for each change. They are
 * created on first use and kept with the version, so that all readers share them.
 */
import { CacheEvent } from './cache-event.ts';
import type { CachedResource } from './cache-entry.ts';
import { CachedObject, LabelSets, type ObjectContext } from './cached-object.ts';
import type { ResourceVersions, StoredValue, StoredVersion, VersionChange } from './resource-versions.ts';
import { prefixOf } from './storages.ts';

interface CacheObjectsOptions {
  readonly resource: CachedResource;
  /** The versions, which are shared with the storage. The storage modifies them as it commits. */
  readonly versions: ResourceVersions;
  /** Freezes parsed objects deeply. */
  readonly freeze: boolean;
}

/** Owns the objects of one cache. */
export class CacheObjects {
  /** The prefix of the keys of the resource. */
  readonly prefix: string;
  readonly #versions: ResourceVersions;
  readonly #context: ObjectContext;
  /** The objects of this cache, if another cache of the resource has its objects in the versions. */
  readonly #unshared = new WeakMap<StoredVersion, CachedObject>();

  constructor({ resource, versions, freeze }: CacheObjectsOptions) {
    this.prefix = prefixOf(resource.group, resource.resource);
    this.#versions = versions;
    this.#context = {
      resource,
      prefixLength: this.prefix.length,
      labelSets: new LabelSets(),
      freeze,
      isClosed: false,
    };
  }

  get size(): number {
    return this.#versions.size;
  }

  values(): IterableIterator<CachedObject> {
    return this.#objects(this.#versions.values());
  }

  /** Returns the storage key of an object. */
  keyOf(namespace: string, name: string): string {
    return this.#context.resource.namespaced ? `${this.prefix}${namespace}/${name}` : this.prefix + name;
  }

  /** Returns the prefix of the keys of a namespace, or of all keys for `''` or a cluster-scoped resource. */
  prefixOf(namespace: string): string {
    return namespace === '' || !this.#context.resource.namespaced ? this.prefix : `${this.prefix}${namespace}/`;
  }

  get(namespace: string, name: string): CachedObject | undefined {
    const version = this.#versions.get(this.keyOf(namespace, name));
    return version === undefined ? undefined : this.#objectOf(version);
  }

  /** Returns the object of a value from the storage, which is shared if the value is current. */
  ofStored(stored: StoredValue): CachedObject {
    const current = this.#versions.get(stored.key);
    return current?.revision === stored.revision ? this.#objectOf(current) : new CachedObject(this.#context, stored);
  }

  /** Yields the current objects with keys below `prefix` and after `startAfter`, in order. */
  range(prefix: string, startAfter: string): IterableIterator<CachedObject> {
    return this.#objects(this.#versions.range(prefix, startAfter));
  }

  /** Returns the first `limit` objects that `range` yields, or all without a limit. */
  page(prefix: string, startAfter: string, limit?: number): CachedObject[] {
    return this.#versions.page(prefix, startAfter, limit).map((version) => this.#objectOf(version));
  }

  /** Yields what `range` yielded at an earlier revision. */
  rangeAt(revision: number, prefix: string, startAfter: string): IterableIterator<CachedObject> {
    return this.#objects(this.#versions.rangeAt(revision, prefix, startAfter));
  }

  /** Returns the number of current objects with keys below `prefix` and after `startAfter`. */
  count(prefix: string, startAfter?: string): number {
    return this.#versions.count(prefix, startAfter);
  }

  /** Returns the event of a change. All watches share it, unless the change already has an event of another cache. */
  eventOf(change: VersionChange): CacheEvent {
    const { view, revision, key, current, previous } = change;
    if (view instanceof CacheEvent && view.isOf(this.#context)) return view;
    const object = (version: StoredVersion | undefined): CachedObject | undefined =>
      version === undefined ? undefined : this.#objectOf(version);
    const event = new CacheEvent(revision, key, object(current), object(previous));
    change.view ??= event;
    return event;
  }

  /** Yields the events after a revision, in order. */
  *eventsAfter(revision: number): Generator<CacheEvent, void, undefined> {
    for (const change of this.#versions.after(revision)) yield this.eventOf(change);
  }

  /** Allows another cache of the resource to replace the objects of this one in the versions. The cache is closed. */
  abandon(): void {
    this.#context.isClosed = true;
  }

  *#objects(versions: Iterable<StoredVersion>): IterableIterator<CachedObject> {
    for (const version of versions) yield this.#objectOf(version);
  }

  /** Returns the object of a version, which is the same as long as the version lives and the cache is open. */
  #objectOf(version: StoredVersion): CachedObject {
    const { view } = version;
    // Checking the owner avoids reading the object itself, which matters for lists with thousands of objects.
    if (version.viewOwner === this.#context) return view as CachedObject;
    const unshared = this.#unshared.get(version);
    if (unshared !== undefined) return unshared;
    const object = new CachedObject(this.#context, version);
    if (view === undefined || (view instanceof CachedObject && view.isAbandoned)) {
      version.view = object;
      version.viewOwner = this.#context;
    } else this.#unshared.set(version, object);
    return object;
  }
}
