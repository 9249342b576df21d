/**
 * The revision log: what every backend (`sqlite/`, `memory.ts`) implements, and what its contract suite
 * (`test/contract/storage-contract.ts`) tests.
 *
 * Keys are `/<group>/<resource>/[<namespace>/]<name>` (group `core` is written `core`); values are opaque bytes. One
 * increasing revision counts all writes of all keys. A write is durable, and visible to readers and watchers, before its
 * promise resolves; readers never see what is not durable.
 */

import type { ResourceVersions, StoredValue, VersionChange } from './resource-versions.ts';

export type { StoredValue, VersionChange };

export interface StorageList {
  readonly items: readonly StoredValue[];
  /** The revision that the list shows. */
  readonly revision: number;
  /** Items that follow the page. */
  readonly remaining: number;
}

/** The newest revision at a wall-clock time. */
export interface TimedRevision {
  readonly revision: number;
  readonly atMs: number;
}

/**
 * A write that stands or falls with another: both are in one commit, or neither is written. With a value the key must not
 * be there yet (the write throws `occupied`); without one it is removed if it is there.
 */
export interface SideWrite {
  readonly key: string;
  readonly value: Buffer | undefined;
}

export interface WriteOptions {
  /** Wall clock: removes the key by itself then (events). */
  readonly expiresAtMs?: number;
  readonly alongside?: readonly SideWrite[];
}

export interface StorageWatch {
  /** No event is delivered after it returns. */
  close(): void;
}

export interface WatchObserver {
  /** Events of one commit group, in order of revision. An observer that throws loses its watch: `onEnd` is called. */
  onEvents(events: readonly VersionChange[]): void;
  /** The watch ended by itself: its observer threw (`unusable`), or the storage closed. */
  onEnd(error: StorageError | undefined): void;
  /** What was superseded at or below `revision` is forgotten. */
  onCompacted?(revision: number): void;
}

export interface Storage {
  /** The newest durable revision. */
  revision(): number;
  get(key: string, options?: { readonly revision?: number }): Promise<StoredValue | undefined>;
  /** The versions of one resource (`/core/pods/`), which show each commit before its writers are answered. */
  open(resource: string): Promise<ResourceVersions>;
  /** Ordered by key. `revision` reads the past; throws `compacted` or `future-revision`. */
  list(
    prefix: string,
    options?: { readonly revision?: number; readonly limit?: number; readonly startAfter?: string },
  ): Promise<StorageList>;
  /** Throws `exists`. */
  create(key: string, value: Buffer, options?: WriteOptions): Promise<StoredValue>;
  /** Throws `conflict` when the key's revision is another, `not-found` when it is gone. */
  update(key: string, value: Buffer, expectedRevision: number, options?: WriteOptions): Promise<StoredValue>;
  /** Resolves to the revision of the deletion. Throws as `update` does. */
  delete(key: string, expectedRevision: number, alongside?: readonly SideWrite[]): Promise<number>;
  /** Events with a revision above `afterRevision`; the past first. Throws `compacted`. */
  watch(options: { readonly prefix: string; readonly afterRevision: number }, observer: WatchObserver): StorageWatch;
  /** Forgets versions that were superseded at or below `revision`, and keeps the newest revision with the time. */
  compact(revision: number): Promise<void>;
  compactedRevision(): number;
  /** The newest revision at the last compaction, also of an earlier process. `undefined` if there was none. */
  lastCompaction(): TimedRevision | undefined;
  /** How many values each resource has, by `/<group>/<resource>/`. */
  counts(): Iterable<readonly [resource: string, count: number]>;
  /** A consistent copy of all that is kept, in a new file, while writes go on. Throws `unusable` where nothing is kept. */
  copyTo(file: string): Promise<void>;
  /** Throws why the storage does not work; with `writes` also why it takes no writes at present (the disk is full). */
  check(options: { readonly writes: boolean }): Promise<void>;
  /** Logs and counts a watch of `resource` (a prefix of keys) that failed and was closed. */
  watchFailed(error: unknown, resource: string): void;
  /** Waits for the writes under way. */
  close(): Promise<void>;
}

export type StorageErrorCode =
  | 'exists'
  /** A key that was to be made alongside is there already. */
  | 'occupied'
  | 'not-found'
  | 'conflict'
  | 'compacted'
  | 'future-revision'
  /** There is no room. Nothing was written; the same write succeeds when there is room again. */
  | 'full'
  /** The value cannot be kept (it cannot be encrypted). Nothing was written. */
  | 'refused'
  | 'locked'
  | 'unusable'
  | 'closed'
  /** The write may or may not have come through. */
  | 'unknown-outcome';

export class StorageError extends Error {
  readonly code: StorageErrorCode;
  /** `conflict` and `exists`: what is there. */
  readonly current: StoredValue | undefined;

  constructor(
    code: StorageErrorCode,
    message: string,
    options: ErrorOptions & { readonly current?: StoredValue } = {},
  ) {
    super(message, options);
    this.name = 'StorageError';
    this.code = code;
    this.current = options.current;
  }
}

export function isStorageError(error: unknown, code?: StorageErrorCode): error is StorageError {
  return error instanceof StorageError && (code === undefined || error.code === code);
}

export function compactedError(revision: number, compacted: number): StorageError {
  return new StorageError('compacted', `revision ${revision} is older than what is kept (${compacted})`);
}

export function futureError(revision: number, current: number): StorageError {
  return new StorageError('future-revision', `revision ${revision} is newer than the newest (${current})`);
}
