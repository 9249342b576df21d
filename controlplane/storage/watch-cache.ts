/**
 * Implements the watch cache of one resource: every current object with its JSON bytes, and the changes since the last
 * compaction. The registry reads only from here and writes to `Storage`. A write is in the cache before its promise resolves.
 *
 * Stored values are results of `encodeObject` of `object-bytes.ts`: JSON that begins with
 * `{"kind":K,"apiVersion":V,"metadata":{` and has no resourceVersion. The storage inserts the revision as it commits. So
 * `StoredValue.value` and `CacheEntry.bytes` are the same buffer, which begins with
 * `{"kind":K,"apiVersion":V,"metadata":{"resourceVersion":"N",`.
 */
import type { Clock } from '../../api/machinery/clock.ts';
import { inOneSlice, inSlices, TimeSlice } from '../../api/machinery/time-slice.ts';
import type { Logger } from '../../api/component/logger.ts';
import type { WatchSink } from '../model/rest.ts';
import { CacheEvent, selects } from './cache-event.ts';
import { CachedObject, LabelSets, type ObjectContext } from './cached-object.ts';
import { EntryIndexes } from './entry-indexes.ts';
import type { Selection } from './selection.ts';
import type { ResourceVersions, StoredValue, StoredVersion, VersionChange } from './resource-versions.ts';
import { StorageError, type Storage, type StorageWatch } from './storage.ts';
import type { CacheWatchHandle, CacheWatchOptions } from './cache-watch.ts';
import { prefixOf } from './storages.ts';
import { WatchFanout } from './watch-fanout.ts';
import type { CacheEntry, CachedResource } from './cache-entry.ts';

interface CacheListOptions {
  readonly selection: Selection;
  /** 0 or absent means no limit. */
  readonly limit?: number;
  /** Only keys after this one are listed. It is the key of the last entry of the previous page. */
  readonly startAfter?: string;
  /** Lists the state at exactly this revision. Throws `compacted` and `future-revision`. */
  readonly revision?: number;
}

/** A page of a list. All of it is one state of the cache. */
export interface CacheList {
  readonly entries: readonly CacheEntry[];
  readonly revision: number;
  /** More entries may follow. The next page starts after the key of the last entry. */
  readonly more: boolean;
  /** The number of entries that follow. `undefined` with a selector, as in kube-apiserver, and if nothing follows. */
  readonly remaining: number | undefined;
}

/** Reads are synchronous and return shared entries, which must not be changed. */
export interface WatchCache {
  readonly resource: CachedResource;
  /** Returns the newest revision that reads show. */
  revision(): number;
  get(namespace: string, name: string): CacheEntry | undefined;
  list(options: CacheListOptions): CacheList;
  /**
   * Lists without blocking the event loop while it evaluates selectors: a selector by a field parses every object. The result
   * is one state of the cache. It is a promise if one time slice is not enough.
   */
  listInSlices(options: CacheListOptions, signal?: AbortSignal): CacheList | Promise<CacheList>;
  /** Returns the number of objects, of a namespace or of all. */
  count(namespace?: string): number;
  /** Returns the shared entry of a value from the storage (the result of a write, or `current` of a conflict). */
  entryOf(stored: StoredValue): CacheEntry;
  /** Returns the entry of a deleted object with the revision of the deletion. */
  deletedEntry(entry: CacheEntry, revision: number): CacheEntry;
  /** Resolves when reads are not older than `revision`. Throws StorageError `future-revision` after `timeoutMs` (3 s). */
  waitFor(revision: number, options?: { readonly timeoutMs?: number; readonly signal?: AbortSignal }): Promise<void>;
  /** Throws StorageError `compacted` (`too old resource version: 1 (3)`) if the history does not reach back far enough. */
  watch(options: CacheWatchOptions, sink: WatchSink): CacheWatchHandle;
  keyOf(namespace: string, name: string): string;
  /** Closes all watches (`onEnd`). */
  close(): void;
}

interface WatchCacheOptions {
  readonly storage: Storage;
  readonly resource: CachedResource;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Freezes parsed objects deeply. Tests use it. */
  readonly freeze?: boolean;
}

/** Resolves when the cache contains what is stored. The storage must be opened with `stamp: stampRevision`. */
export async function openWatchCache(options: WatchCacheOptions): Promise<WatchCache> {
  const { group, resource } = options.resource;
  const cache = new ResourceCache(options, await options.storage.open(prefixOf(group, resource)));
  cache.follow();
  return cache;
}

const WAIT_MS = 3000;

const INDEX_PAUSE_MS = 5;

class ResourceCache implements WatchCache {
  readonly resource: CachedResource;
  readonly #storage: Storage;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #prefix: string;
  readonly #context: ObjectContext;
  /** The versions, which are shared with the storage. The storage modifies them as it commits. */
  readonly #versions: ResourceVersions;
  /** The objects of this cache, if another cache of the resource has its objects in the versions. */
  readonly #ownObjects = new WeakMap<StoredVersion, CachedObject>();
  readonly #indexes: EntryIndexes;
  readonly #fanout: WatchFanout;
  #storageWatch: StorageWatch | undefined;
  #closed = false;

  constructor({ storage, resource, clock, logger, freeze = false }: WatchCacheOptions, versions: ResourceVersions) {
    this.#versions = versions;
    this.resource = resource;
    this.#storage = storage;
    this.#clock = clock;
    this.#logger = logger;
    this.#prefix = prefixOf(resource.group, resource.resource);
    this.#context = {
      resource,
      prefixLength: this.#prefix.length,
      labelSets: new LabelSets(),
      freeze,
      isClosed: false,
    };
    const indexedFields = resource.indexedFields ?? [];
    const objects = this.#objects.bind(this);
    const entries = {
      get size() {
        return versions.size;
      },
      values: () => objects(versions.values()),
    };
    this.#indexes = new EntryIndexes(indexedFields, entries, logger);
    this.#fanout = new WatchFanout({
      clock,
      history: {
        newest: () => versions.newest,
        after: (revision) => this.#eventsAfter(revision),
      },
      indexedFields,
      namespaced: resource.namespaced,
      revision: () => this.revision(),
      compactedRevision: () => storage.compactedRevision(),
      keyOf: (namespace, name) => this.keyOf(namespace, name),
      watchFailed: (error) => storage.watchFailed(error, this.#prefix),
    });
  }

  follow(): void {
    this.#storageWatch = this.#storage.watch(
      { prefix: this.#prefix, afterRevision: this.#storage.revision() },
      {
        onEvents: (changes) => this.#onChanges(changes),
        onEnd: () => this.close(),
        onCompacted: (revision) => this.#fanout.compacted(revision),
        onGap: (revision) => this.#fanout.expire(revision),
      },
    );
    this.#proceed(this.#indexes.fillFields());
  }

  /** Fills the indexes one piece at a time, because those of a large cache would block the event loop. */
  #proceed(pieces: Iterator<void>): void {
    try {
      if (this.#closed || pieces.next().done === true) return;
    } catch (error) {
      this.#logger.error({ err: error, resource: this.resource.resource }, 'The indexes could not be built ahead');
      return;
    }
    this.#clock.after(INDEX_PAUSE_MS, () => this.#proceed(pieces));
  }

  revision(): number {
    return this.#storage.revision();
  }

  keyOf(namespace: string, name: string): string {
    return this.resource.namespaced ? `${this.#prefix}${namespace}/${name}` : this.#prefix + name;
  }

  get(namespace: string, name: string): CachedObject | undefined {
    const version = this.#versions.get(this.keyOf(namespace, name));
    return version === undefined ? undefined : this.#objectOf(version);
  }

  count(namespace = ''): number {
    return namespace === '' ? this.#versions.size : this.#versions.count(this.#prefixOf(namespace));
  }

  list(options: CacheListOptions): CacheList {
    return inOneSlice(this.#list(options, undefined));
  }

  listInSlices(options: CacheListOptions, signal?: AbortSignal): CacheList | Promise<CacheList> {
    const slice = new TimeSlice(this.#clock);
    return inSlices(this.#list(options, slice), slice, signal);
  }

  /** Yields when the slice is spent. */
  *#list(options: CacheListOptions, slice: TimeSlice | undefined): Generator<void, CacheList, undefined> {
    const { selection, limit = 0, startAfter = '', revision } = options;
    const prefix = this.#prefixOf(selection.namespace);
    if (revision !== undefined && revision !== this.revision()) this.#assertReadable(revision);
    const isPast = (): boolean => revision !== undefined && revision < this.revision();
    const candidates = isPast() ? undefined : yield* this.#candidates(selection, slice);
    if (isPast()) this.#assertReadable(revision ?? 0);
    const newest = this.revision();
    const past = revision !== undefined && revision < newest;
    let found = past
      ? this.#objects(this.#versions.rangeAt(revision, prefix, startAfter))
      : this.#present(selection, prefix, startAfter, candidates);
    const entries: CachedObject[] = [];
    // Every candidate is in the namespace, because of its prefix.
    const all = selection.everything && selection.name === '';
    for (;;) {
      const { done, value } = found.next();
      if (done === true) break;
      if (all || selects(selection, value)) {
        entries.push(value);
        if (entries.length === limit) break;
      }
      if (all || slice?.isSpent !== true) continue;
      // The cache may change during the pause, but the list shows this state.
      found = [...found].values();
      yield;
    }
    const last = entries.length === limit && !this.#isOneKey(selection) ? entries.at(-1) : undefined;
    const remaining = last === undefined ? 0 : this.#remaining(past ? revision : undefined, prefix, last.key);
    // Like kube-apiserver, it does not look whether what remains is selected.
    return {
      entries,
      revision: revision ?? newest,
      more: remaining > 0,
      remaining: all && remaining > 0 ? remaining : undefined,
    };
  }

  *#candidates(
    { indexable, name, namespace }: Selection,
    slice: TimeSlice | undefined,
  ): Generator<void, readonly CachedObject[] | undefined, undefined> {
    if (this.#isOneKey({ name, namespace })) return undefined;
    const search = this.#indexes.candidates(indexable);
    for (;;) {
      const { done, value } = search.next();
      if (done === true) return value;
      if (slice?.isSpent === true) yield;
    }
  }

  #isOneKey({ name, namespace }: { readonly name: string; readonly namespace: string }): boolean {
    return name !== '' && (namespace !== '' || !this.resource.namespaced);
  }

  #remaining(pastRevision: number | undefined, prefix: string, after: string): number {
    if (pastRevision === undefined) return this.#versions.count(prefix, after);
    return [...this.#versions.rangeAt(pastRevision, prefix, after)].length;
  }

  /** Yields the objects that a selection may select, in order. The caller filters them. */
  *#present(
    selection: Selection,
    prefix: string,
    startAfter: string,
    candidates: readonly CachedObject[] | undefined,
  ): IterableIterator<CachedObject> {
    if (this.#isOneKey(selection)) {
      const entry = this.get(selection.namespace, selection.name);
      if (entry !== undefined && entry.key > startAfter) yield entry;
      return;
    }
    if (candidates !== undefined) {
      yield* inOrder(candidates.filter((entry) => entry.key.startsWith(prefix) && entry.key > startAfter));
      return;
    }
    for (const version of this.#versions.range(prefix, startAfter)) yield this.#objectOf(version);
  }

  entryOf(stored: StoredValue): CachedObject {
    const known = this.#versions.get(stored.key);
    return known?.revision === stored.revision ? this.#objectOf(known) : new CachedObject(this.#context, stored);
  }

  deletedEntry(entry: CacheEntry, revision: number): CachedObject {
    if (!(entry instanceof CachedObject)) throw new TypeError('not an entry of a watch cache');
    return entry.at(revision);
  }

  waitFor(
    revision: number,
    options: { readonly timeoutMs?: number; readonly signal?: AbortSignal } = {},
  ): Promise<void> {
    if (revision <= this.revision()) return Promise.resolve();
    const { timeoutMs = WAIT_MS, signal } = options;
    if (signal?.aborted === true) return Promise.reject(signal.reason as Error);
    const reached = Promise.withResolvers<void>();
    const late = (): void => reached.reject(tooLarge(revision, this.revision()));
    const onAbort = (): void => reached.reject(signal?.reason as Error);
    const look = (): void => {
      if (this.revision() >= revision) reached.resolve();
    };
    let watch: StorageWatch;
    try {
      watch = this.#storage.watch(
        { prefix: '/', afterRevision: this.revision() },
        { onEvents: look, onRevision: look, onEnd: late },
      );
    } catch (error) {
      return Promise.reject(error as Error);
    }
    const timer = this.#clock.after(timeoutMs, late);
    signal?.addEventListener('abort', onAbort, { once: true });
    return reached.promise.finally(() => {
      watch.close();
      timer.cancel();
      signal?.removeEventListener('abort', onAbort);
    });
  }

  watch(options: CacheWatchOptions, sink: WatchSink): CacheWatchHandle {
    if (this.#closed) throw new StorageError('closed', 'the watch cache is closed');
    const { afterRevision, selection } = options;
    const after = afterRevision ?? options.existing?.revision;
    if (after !== undefined && after < this.#storage.compactedRevision()) {
      const message = `too old resource version: ${after} (${this.#storage.compactedRevision()})`;
      throw new StorageError('compacted', message);
    }
    const existing = afterRevision === undefined ? (options.existing ?? this.list({ selection })) : undefined;
    return this.#fanout.add(options, existing, sink);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#context.isClosed = true;
    this.#storageWatch?.close();
    this.#fanout.end();
  }

  #prefixOf(namespace: string): string {
    return namespace === '' || !this.resource.namespaced ? this.#prefix : `${this.#prefix}${namespace}/`;
  }

  #onChanges(changes: readonly VersionChange[]): void {
    const events = changes.map((change) => this.#eventOf(change));
    for (const { previous, current } of events) this.#indexes.update(previous, current);
    this.#fanout.deliver(events);
  }

  /** Returns the object of a version, which is the same as long as the version lives. */
  #objectOf(version: StoredVersion): CachedObject {
    const { view } = version;
    // Checking the owner avoids reading the object itself, which matters for lists with thousands of objects.
    if (version.viewOwner === this.#context) return view as CachedObject;
    const own = this.#ownObjects.get(version);
    if (own !== undefined) return own;
    const object = new CachedObject(this.#context, version);
    if (view === undefined || (view instanceof CachedObject && view.isAbandoned)) {
      version.view = object;
      version.viewOwner = this.#context;
    } else this.#ownObjects.set(version, object);
    return object;
  }

  *#objects(versions: Iterable<StoredVersion>): IterableIterator<CachedObject> {
    for (const version of versions) yield this.#objectOf(version);
  }

  #eventOf(change: VersionChange): CacheEvent {
    const { view, revision, key, current, previous } = change;
    if (view instanceof CacheEvent && view.isOf(this.#context)) return view;
    const object = (version: StoredVersion | undefined): CachedObject | undefined =>
      version === undefined ? undefined : this.#objectOf(version);
    const event = new CacheEvent(revision, key, object(current), object(previous));
    change.view ??= event;
    return event;
  }

  *#eventsAfter(revision: number): Generator<CacheEvent, void, undefined> {
    for (const change of this.#versions.after(revision)) yield this.#eventOf(change);
  }

  #assertReadable(revision: number): void {
    if (revision > this.revision()) throw tooLarge(revision, this.revision());
    if (revision < this.#storage.oldestState()) {
      const compacted = this.#storage.compactedRevision();
      this.#logger.debug(
        { revision, compacted, resource: this.resource.resource },
        'A client requested a compacted revision',
      );
      throw new StorageError('compacted', `too old resource version: ${revision} (${compacted})`);
    }
  }
}

function inOrder(entries: CachedObject[]): CachedObject[] {
  return entries.sort((a, b) => (a.key < b.key ? -1 : 1));
}

function tooLarge(revision: number, current: number): StorageError {
  return new StorageError('future-revision', `Too large resource version: ${revision}, current: ${current}`);
}
