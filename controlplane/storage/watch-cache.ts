/**
 * The watch cache of one resource: every current object with its JSON bytes, and what changed within the compaction
 * window. The registry reads from here alone and writes to `Storage`; a write is in the cache before its promise resolves.
 *
 * Stored values are what `encodeObject` of `object-bytes.ts` gives: JSON that begins
 * `{"kind":K,"apiVersion":V,"metadata":{` and has no resourceVersion; the storage stamps the revision in as it commits,
 * so `StoredValue.value` and `CacheEntry.bytes` are the same buffer and always begin
 * `{"kind":K,"apiVersion":V,"metadata":{"resourceVersion":"N",`.
 */
import type { Clock } from '../../api/machinery/clock.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import type { Logger } from '../../api/component/logger.ts';
import type { Entry, WatchHandle, WatchSink } from '../registry/rest.ts';
import type { Selection } from './selection.ts';
import type { Storage, StoredValue } from './storage.ts';

/** An object of the cache. One instance per revision, shared by everyone, so a WeakMap on it caches other encodings. */
export interface CacheEntry extends Entry {
  readonly key: string;
  /** `''` for cluster scope. */
  readonly namespace: string;
  readonly name: string;
  /** As a number; `bytes` and `object` hold it as text. */
  readonly revision: number;
  readonly createRevision: number;
  /** Read without parsing the object; equal label sets are one map. */
  readonly labels: Readonly<Record<string, string>>;
  /** Parsed on first use, kept as long as somebody holds it. */
  readonly object: KubeObject;
}

export interface CachedResource {
  /** `core` or the group, and the plural: the first two segments of keys. */
  readonly group: string;
  readonly resource: string;
  readonly namespaced: boolean;
  /** Selectable fields beyond `metadata.name` and `metadata.namespace`, as their text. */
  readonly fields?: (object: KubeObject) => Readonly<Record<string, string>>;
  /** Of `fields`, those that an index is worth (`spec.nodeName`). Built on first use. */
  readonly indexedFields?: readonly string[];
}

export interface CacheListOptions {
  readonly selection: Selection;
  /** 0 or absent: no limit. */
  readonly limit?: number;
  /** Only keys after it (of the last entry of the page before). */
  readonly startAfter?: string;
  /** The state at exactly this revision. Throws `compacted` and `future-revision`. */
  readonly revision?: number;
}

export interface CacheList {
  readonly entries: readonly CacheEntry[];
  readonly revision: number;
  /** Entries may follow: the next page starts after the last entry's key. */
  readonly more: boolean;
  /** How many objects follow; `undefined` when a selector is given (as the reference) or nothing follows. */
  readonly remaining: number | undefined;
}

export interface CacheWatchOptions {
  readonly selection: Selection;
  /** Events after this revision; `undefined`: what is there comes first as ADDED. */
  readonly afterRevision: number | undefined;
  /** BOOKMARK events about once a minute, when there is something newer. */
  readonly bookmarks: boolean;
  /** After what was there first comes a bookmark that says so. */
  readonly initialEventsEnd: boolean;
}

export interface CacheWatchHandle extends WatchHandle {
  /** Sends a bookmark now if the watch has not shown the newest revision yet (the server calls it before a watch's end). */
  bookmark(): void;
}

export interface WatchCache {
  readonly resource: CachedResource;
  /** The newest revision that reads show. */
  revision(): number;
  get(namespace: string, name: string): CacheEntry | undefined;
  list(options: CacheListOptions): CacheList;
  /** Number of objects, of a namespace or of all. */
  count(namespace?: string): number;
  /** The shared entry of a value that the storage gave (result of a write, `current` of a conflict). */
  entryOf(stored: StoredValue): CacheEntry;
  /** Of a deleted object: as it was, with the revision of the deletion. */
  deletedEntry(entry: CacheEntry, revision: number): CacheEntry;
  /** Resolves when reads are not older than `revision`; throws StorageError `future-revision` after `timeoutMs` (3 s). */
  waitFor(revision: number, options?: { readonly timeoutMs?: number; readonly signal?: AbortSignal }): Promise<void>;
  /** Throws StorageError `compacted` (`too old resource version: 1 (3)`) when history no longer reaches back. */
  watch(options: CacheWatchOptions, sink: WatchSink): CacheWatchHandle;
  keyOf(namespace: string, name: string): string;
  /** Ends all watches (`onEnd`). */
  close(): void;
}

export interface WatchCacheOptions {
  readonly storage: Storage;
  readonly resource: CachedResource;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Deep-freezes parsed objects (tests). */
  readonly freeze?: boolean;
}

/** Resolves when the cache holds what is stored. The storage must have been opened with `stamp: stampRevision`. */
export declare function openWatchCache(options: WatchCacheOptions): Promise<WatchCache>;
