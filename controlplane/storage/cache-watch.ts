/** Defines a watch of a cache, as `WatchCache` offers it and `WatchFanout` runs it. */
import type { WatchHandle } from '../model/rest.ts';
import type { ExistingObjects } from './cache-entry.ts';
import type { Selection } from './selection.ts';

/** What a watch of a cache selects, and where it begins. */
export interface CacheWatchOptions {
  readonly selection: Selection;
  /** The watch gets the events after this revision. If it is `undefined`, the existing objects come first as ADDED. */
  readonly afterRevision: number | undefined;
  /** The existing objects with the same selection. If they are absent, the watch lists them. */
  readonly existing?: ExistingObjects;
  /** Whether to send BOOKMARK events about once a minute if there is something newer. */
  readonly bookmarks: boolean;
  /** Whether to send a marked bookmark after the existing objects. */
  readonly initialEventsEnd: boolean;
}

/** A running watch of a cache. */
export interface CacheWatchHandle extends WatchHandle {
  /** Sends a bookmark if the watch takes bookmarks, is not behind, and has not shown the newest revision yet. */
  bookmark(): void;
}
