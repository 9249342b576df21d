/**
 * Lists the objects of one watch cache: all of them or a selection, in pages, now or at an earlier revision. A list shows one
 * state, also if it pauses.
 */
import type { Logger } from '../../api/component/logger.ts';
import type { TimeSlice } from '../../api/machinery/time-slice.ts';
import type { CacheEntry } from './cache-entry.ts';
import { selects } from './cache-event.ts';
import type { CachedObject } from './cached-object.ts';
import type { CacheObjects } from './cache-objects.ts';
import type { EntryIndexes } from './entry-indexes.ts';
import type { Selection } from './selection.ts';
import type { Storage } from './storage.ts';
import { tooLarge, tooOld } from './version-errors.ts';

/** Which objects are listed. */
export interface CacheListOptions {
  readonly selection: Selection;
  /** 0 or absent means no limit. */
  readonly limit?: number;
  /** The key after which the list begins: the key of the last entry of the previous page. */
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

interface CacheListsOptions {
  readonly storage: Pick<Storage, 'revision' | 'compactedRevision' | 'oldestState'>;
  readonly objects: CacheObjects;
  readonly indexes: EntryIndexes;
  readonly logger: Logger;
  /** The plural, for log lines. */
  readonly resource: string;
  readonly namespaced: boolean;
}

/** Computes the lists of one cache. */
export class CacheLists {
  readonly #options: CacheListsOptions;

  constructor(options: CacheListsOptions) {
    this.#options = options;
  }

  /** Returns the page. Yields when the slice is spent. Throws `compacted` or `future-revision`. */
  *page(options: CacheListOptions, slice: TimeSlice | undefined): Generator<void, CacheList, undefined> {
    const { selection, limit = 0, startAfter = '', revision } = options;
    const { objects, storage } = this.#options;
    const prefix = objects.prefixOf(selection.namespace);
    if (revision !== undefined && revision !== storage.revision()) this.#assertReadable(revision);
    const isPast = (): boolean => revision !== undefined && revision < storage.revision();
    const candidates = isPast() ? undefined : yield* this.#candidates(selection, slice);
    if (isPast()) this.#assertReadable(revision ?? 0);
    const newest = storage.revision();
    const past = revision !== undefined && revision < newest;
    // Every candidate is in the namespace, because of its prefix.
    const all = selection.everything && selection.name === '';
    const entries =
      all && !past
        ? objects.page(prefix, startAfter, limit === 0 ? undefined : limit)
        : yield* this.#selected(
            past
              ? objects.rangeAt(revision, prefix, startAfter)
              : this.#present(selection, prefix, startAfter, candidates),
            { selection, limit, slice },
          );
    const last = entries.length === limit && !this.#isOneKey(selection) ? entries.at(-1) : undefined;
    const remaining = last === undefined ? 0 : this.#remaining(past ? revision : undefined, prefix, last.key);
    // As in kube-apiserver, `more` is true also if none of the remaining objects is selected.
    return {
      entries,
      revision: revision ?? newest,
      more: remaining > 0,
      remaining: all && remaining > 0 ? remaining : undefined,
    };
  }

  *#selected(
    present: IterableIterator<CachedObject>,
    {
      selection,
      limit,
      slice,
    }: { readonly selection: Selection; readonly limit: number; readonly slice: TimeSlice | undefined },
  ): Generator<void, CachedObject[], undefined> {
    let found = present;
    const entries: CachedObject[] = [];
    for (;;) {
      const { done, value } = found.next();
      if (done === true) return entries;
      if (selects(selection, value) && entries.push(value) === limit) return entries;
      if (slice?.isSpent !== true) continue;
      // The cache may change during the pause, but the list shows this state.
      found = [...found].values();
      yield;
    }
  }

  *#candidates(
    { indexable, name, namespace }: Selection,
    slice: TimeSlice | undefined,
  ): Generator<void, readonly CachedObject[] | undefined, undefined> {
    if (this.#isOneKey({ name, namespace })) return undefined;
    const search = this.#options.indexes.candidates(indexable);
    for (;;) {
      const { done, value } = search.next();
      if (done === true) return value;
      if (slice?.isSpent === true) yield;
    }
  }

  #isOneKey({ name, namespace }: { readonly name: string; readonly namespace: string }): boolean {
    return name !== '' && (namespace !== '' || !this.#options.namespaced);
  }

  #remaining(pastRevision: number | undefined, prefix: string, after: string): number {
    const { objects } = this.#options;
    if (pastRevision === undefined) return objects.count(prefix, after);
    return [...objects.rangeAt(pastRevision, prefix, after)].length;
  }

  /** Returns the objects that a selection may select, in order. The caller filters them. */
  #present(
    selection: Selection,
    prefix: string,
    startAfter: string,
    candidates: readonly CachedObject[] | undefined,
  ): IterableIterator<CachedObject> {
    const { objects } = this.#options;
    if (this.#isOneKey(selection)) {
      const entry = objects.get(selection.namespace, selection.name);
      return (entry !== undefined && entry.key > startAfter ? [entry] : []).values();
    }
    if (candidates === undefined) return objects.range(prefix, startAfter);
    return candidates
      .filter(({ key }) => key.startsWith(prefix) && key > startAfter)
      .sort((a, b) => (a.key < b.key ? -1 : 1))
      .values();
  }

  #assertReadable(revision: number): void {
    const { storage, logger, resource } = this.#options;
    if (revision > storage.revision()) throw tooLarge(revision, storage.revision());
    if (revision >= storage.oldestState()) return;
    const compacted = storage.compactedRevision();
    logger.debug({ revision, compacted, resource }, 'A client requested a compacted revision');
    throw tooOld(revision, compacted);
  }
}
