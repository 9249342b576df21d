/**
 * Implements the watch cache of one resource: every current object with its JSON bytes, and the changes since the last
 * compaction. A write is in the cache before its promise resolves.
 *
 * Stored values are results of `encodeObject` of `object-bytes.ts`: JSON that begins with
 * `{"kind":K,"apiVersion":V,"metadata":{` and has no resourceVersion. The storage inserts the revision as it commits.
 */
import type { Clock } from '../../api/machinery/clock.ts';
import { inOneSlice, inSlices, TimeSlice } from '../../api/machinery/time-slice.ts';
import type { Logger } from '../../api/component/logger.ts';
import type { WatchSink } from '../model/rest.ts';
import type { CacheEntry, CachedResource } from './cache-entry.ts';
import { type CacheList, type CacheListOptions, CacheLists } from './cache-list.ts';
import { CacheObjects } from './cache-objects.ts';
import type { CacheWatchHandle, CacheWatchOptions } from './cache-watch.ts';
import { CachedObject } from './cached-object.ts';
import { EntryIndexes } from './entry-indexes.ts';
import type { ResourceVersions, StoredValue, VersionChange } from './resource-versions.ts';
import { StorageError, type Storage, type StorageWatch } from './storage.ts';
import { prefixOf } from './storages.ts';
import { tooLarge, tooOld } from './version-errors.ts';
import { WatchFanout } from './watch-fanout.ts';

/** Reads are synchronous and return shared entries, which must not be changed. */
export interface WatchCache {
  readonly resource: CachedResource;
  /** Returns the newest revision that reads show. */
  revision(): number;
  get(namespace: string, name: string): CacheEntry | undefined;
  /** Throws StorageError `compacted` or `future-revision` for a revision that cannot be read. */
  list(options: CacheListOptions): CacheList;
  /**
   * Lists without blocking the event loop while it evaluates selectors. The result is one state of the cache. It is a promise
   * if one time slice is not enough, which rejects when the signal aborts. Throws as `list` does.
   */
  listInSlices(options: CacheListOptions, signal?: AbortSignal): CacheList | Promise<CacheList>;
  /** Returns the number of objects, of a namespace or of all. */
  count(namespace?: string): number;
  /** Returns the shared entry of a value from the storage (the result of a write, or `current` of a conflict). */
  entryOf(stored: StoredValue): CacheEntry;
  /** Returns the entry of a deleted object with the revision of the deletion. */
  deletedEntry(entry: CacheEntry, revision: number): CacheEntry;
  /**
   * Resolves when reads are not older than `revision`. Rejects with StorageError `future-revision` after `timeoutMs` (3 s) or
   * when the storage closes, and with the reason of the signal when it aborts.
   */
  waitFor(revision: number, options?: { readonly timeoutMs?: number; readonly signal?: AbortSignal }): Promise<void>;
  /**
   * Opens a watch. Throws StorageError `compacted` (`too old resource version: 1 (3)`) if the history does not reach back far
   * enough, and `closed` if the cache is closed.
   */
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
  /** Freezes parsed objects deeply. */
  readonly freeze?: boolean;
}

/**
 * Opens the watch cache of a resource. Resolves when the cache contains what is stored. The storage must be opened with `stamp:
 * stampRevision`.
 */
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
  readonly #objects: CacheObjects;
  readonly #indexes: EntryIndexes;
  readonly #lists: CacheLists;
  readonly #fanout: WatchFanout;
  #storageWatch: StorageWatch | undefined;
  #closed = false;

  constructor({ storage, resource, clock, logger, freeze = false }: WatchCacheOptions, versions: ResourceVersions) {
    this.resource = resource;
    this.#storage = storage;
    this.#clock = clock;
    this.#logger = logger;
    const { namespaced, indexedFields = [] } = resource;
    const objects = new CacheObjects({ resource, versions, freeze });
    this.#objects = objects;
    this.#indexes = new EntryIndexes(indexedFields, objects, logger);
    this.#lists = new CacheLists({
      storage,
      objects,
      indexes: this.#indexes,
      logger,
      resource: resource.resource,
      namespaced,
    });
    this.#fanout = new WatchFanout({
      clock,
      history: {
        newest: () => versions.newest,
        after: (revision) => objects.eventsAfter(revision),
      },
      indexedFields,
      namespaced,
      revision: () => this.revision(),
      compactedRevision: () => storage.compactedRevision(),
      keyOf: (namespace, name) => objects.keyOf(namespace, name),
      watchFailed: (error) => storage.watchFailed(error, objects.prefix),
    });
  }

  follow(): void {
    this.#storageWatch = this.#storage.watch(
      { prefix: this.#objects.prefix, afterRevision: this.#storage.revision() },
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
      this.#logger.error(
        { err: error, resource: this.resource.resource },
        'The indexes of cached objects could not be built in advance',
      );
      return;
    }
    this.#clock.after(INDEX_PAUSE_MS, () => this.#proceed(pieces));
  }

  revision(): number {
    return this.#storage.revision();
  }

  keyOf(namespace: string, name: string): string {
    return this.#objects.keyOf(namespace, name);
  }

  get(namespace: string, name: string): CachedObject | undefined {
    return this.#objects.get(namespace, name);
  }

  count(namespace = ''): number {
    return namespace === '' ? this.#objects.size : this.#objects.count(this.#objects.prefixOf(namespace));
  }

  list(options: CacheListOptions): CacheList {
    return inOneSlice(this.#lists.page(options, undefined));
  }

  listInSlices(options: CacheListOptions, signal?: AbortSignal): CacheList | Promise<CacheList> {
    const slice = new TimeSlice(this.#clock);
    return inSlices(this.#lists.page(options, slice), slice, signal);
  }

  entryOf(stored: StoredValue): CachedObject {
    return this.#objects.ofStored(stored);
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
    const check = (): void => {
      if (this.revision() >= revision) reached.resolve();
    };
    let watch: StorageWatch;
    try {
      watch = this.#storage.watch(
        { prefix: '/', afterRevision: this.revision() },
        { onEvents: check, onRevision: check, onEnd: late },
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
    const compacted = this.#storage.compactedRevision();
    if (after !== undefined && after < compacted) throw tooOld(after, compacted);
    const existing = afterRevision === undefined ? (options.existing ?? this.list({ selection })) : undefined;
    return this.#fanout.add(options, existing, sink);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#objects.abandon();
    this.#storageWatch?.close();
    this.#fanout.end();
  }

  #onChanges(changes: readonly VersionChange[]): void {
    const events = changes.map((change) => this.#objects.eventOf(change));
    for (const { previous, current } of events) this.#indexes.update(previous, current);
    this.#fanout.deliver(events);
  }
}
