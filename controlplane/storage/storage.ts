/**
 * Defines the storage.
 *
 * Keys are `/<group>/<resource>/[<namespace>/]<name>`, and the core group is `core`. Values are opaque bytes. One increasing
 * revision counts the writes of all keys. Before the promise of a write resolves, the write is visible to readers and watches,
 * and durable unless the storage is in memory.
 */

import type { ResourceVersions, StoredValue, VersionChange } from './resource-versions.ts';
import type { StoredLog } from './stored-log.ts';

/** A page of a list. */
export interface StorageList {
  readonly items: readonly StoredValue[];
  /** The revision that the list shows. */
  readonly revision: number;
  /** The number of items that follow the page. */
  readonly remaining: number;
}

/** A revision that was the newest one at a wall-clock time. */
export interface TimedRevision {
  readonly revision: number;
  readonly atMs: number;
}

/**
 * Another operation of one transaction: either all operations are committed or none. With a value, the key is written; the
 * whole write throws `occupied` unless the key has the expected revision. Without a value, the key is removed if it exists.
 */
export interface TransactionWrite {
  readonly key: string;
  readonly value: Buffer | undefined;
  /** 0, the default, means that the key must not exist. */
  readonly expectedRevision?: number;
}

/** What a write has beside its key and value. */
export interface WriteOptions {
  /** The wall-clock time at which the key is removed automatically (events). */
  readonly expiresAtMs?: number;
  readonly transactionWrites?: readonly TransactionWrite[];
}

/** An open watch. */
export interface StorageWatch {
  /** Ends the watch. No event is delivered after this returns. */
  close(): void;
}

/** The receiver of a watch. It is called synchronously in the turn of a commit and must return quickly. */
export interface WatchObserver {
  /**
   * Receives the events of one commit group in the order of their revisions. If an observer throws, its watch is closed and
   * `onEnd` is called.
   */
  onEvents(events: readonly VersionChange[]): void;
  /**
   * Called when the storage ends the watch: its observer threw (`unusable`), or the storage closed. It is not called after
   * `StorageWatch.close`.
   */
  onEnd(error: StorageError | undefined): void;
  /** Called when the history up to `revision` was compacted. */
  onCompacted?(revision: number): void;
  /** Called when the storage proceeded to a revision without a change, unless the prefix of the watch is exactly a resource. */
  onRevision?(): void;
  /**
   * Called when the storage could not follow every change up to `revision`. The events that come next lead to the state at that
   * revision, but changes between are missing.
   */
  onGap?(revision: number): void;
}

/** Every method but `check` rejects with a `StorageError`, or throws it where it is synchronous. */
export interface Storage {
  /** Returns the newest durable revision that readers see. */
  revision(): number;
  /**
   * Resolves when readers see every write that was acknowledged before the call, also by other processes. Absent if no other
   * process writes, because then readers always do. Throws `unavailable`.
   */
  catchUp?(): Promise<void>;
  get(key: string, options?: { readonly revision?: number }): Promise<StoredValue | undefined>;
  /** Returns the versions of one resource (`/core/pods/`), which show each commit before its writers get their results. */
  open(resource: string): Promise<ResourceVersions>;
  /** Lists values in the order of their keys. `revision` reads the past. Throws `compacted` or `future-revision`. */
  list(
    prefix: string,
    options?: { readonly revision?: number; readonly limit?: number; readonly startAfter?: string },
  ): Promise<StorageList>;
  /** Creates a key. Throws `exists`. */
  create(key: string, value: Buffer, options?: WriteOptions): Promise<StoredValue>;
  /** Updates a key. Throws `conflict` if the key has another revision, and `not-found` if it does not exist. */
  update(key: string, value: Buffer, expectedRevision: number, options?: WriteOptions): Promise<StoredValue>;
  /** Deletes a key. Resolves to the revision of the deletion. Throws as `update` does. */
  delete(key: string, expectedRevision: number, transactionWrites?: readonly TransactionWrite[]): Promise<number>;
  /** Delivers the events above `afterRevision`, beginning with past ones. Throws `compacted`. */
  watch(options: { readonly prefix: string; readonly afterRevision: number }, observer: WatchObserver): StorageWatch;
  /** Drops versions that were superseded up to `revision`. Throws `future-revision`. */
  compact(revision: number): Promise<void>;
  compactedRevision(): number;
  /**
   * The oldest revision whose state can be read. Before anything is compacted, it is less than the compacted revision, from
   * which watches begin.
   */
  oldestState(): number;
  /**
   * Returns the newest revision at the last compaction, also if an earlier process ran it. Returns `undefined` if it is not
   * known.
   */
  lastCompaction(): TimedRevision | undefined;
  /** Returns the number of values of each resource, by `/<group>/<resource>/`. */
  counts(): Iterable<readonly [resource: string, count: number]>;
  /**
   * Writes a consistent copy of all data to a new file while writes continue. Throws `unusable` for a storage in memory or in
   * etcd.
   */
  copyTo(file: string): Promise<void>;
  /** The records on the disk. Absent if nothing is stored durably, or if other processes own the stored objects. */
  readonly log?: StoredLog | undefined;
  /**
   * Accepts no more writes: they throw `unavailable` with this reason. Resolves to the newest revision, when the running writes
   * are done. Absent if other processes write as well.
   */
  fence?(reason: string): Promise<number>;
  /** Each write first waits for what `before` returns. Present where `fence` is. */
  guard?(before: () => Promise<void> | undefined): void;
  /**
   * Throws the reason why the storage does not work, as any error. With `writes`, also throws the reason why it accepts no
   * writes now (the disk is full).
   */
  check(options: { readonly writes: boolean }): Promise<void>;
  /** Logs and counts a watch of `resource` (a prefix of keys) that failed and was closed. */
  watchFailed(error: unknown, resource: string): void;
  /** Waits for the running writes. */
  close(): Promise<void>;
}

/** What went wrong. Callers decide by it; the message is for logs. */
export type StorageErrorCode =
  | 'exists'
  /** The key of another operation of the transaction exists already, or has another revision. */
  | 'occupied'
  | 'not-found'
  | 'conflict'
  | 'compacted'
  | 'future-revision'
  /** There is no room. Nothing was written. The same write succeeds when there is room again. */
  | 'full'
  /** The value cannot be stored, for example because it cannot be encrypted. Nothing was written. */
  | 'refused'
  /** Another process uses the database. */
  | 'locked'
  /** The storage cannot be opened, has failed, or does not support the operation. */
  | 'unusable'
  /** No server of the backend answers now, or the storage is fenced. Nothing was written. */
  | 'unavailable'
  | 'closed'
  /** The write may or may not have succeeded. */
  | 'unknown-outcome';

/** The error of the storage, which the registry turns into a `StatusError`. */
export class StorageError extends Error {
  readonly code: StorageErrorCode;
  /** The current value of the key, for `conflict` and `exists`. */
  readonly current: StoredValue | undefined;
  /** The key of the other operation, for `occupied`. */
  readonly occupiedKey: string | undefined;

  constructor(
    code: StorageErrorCode,
    message: string,
    options: ErrorOptions & { readonly current?: StoredValue; readonly occupiedKey?: string } = {},
  ) {
    super(message, options);
    this.name = 'StorageError';
    this.code = code;
    this.current = options.current;
    this.occupiedKey = options.occupiedKey;
  }
}

/** Whether an error is a `StorageError` of the code, or of any code if none is given. */
export function isStorageError(error: unknown, code?: StorageErrorCode): error is StorageError {
  return error instanceof StorageError && (code === undefined || error.code === code);
}

/** Creates the error of a transaction of which another operation met a conflict. */
export function occupiedError(key: string): StorageError {
  return new StorageError('occupied', `${key} exists, or was changed`, { occupiedKey: key });
}

/** Creates the error of a read or a watch from a compacted revision. */
export function compactedError(revision: number, compacted: number): StorageError {
  return new StorageError('compacted', `revision ${revision} is older than what is kept (${compacted})`);
}

/** Creates the error of a read of a revision that does not exist yet. */
export function futureError(revision: number, current: number): StorageError {
  return new StorageError('future-revision', `revision ${revision} is newer than the newest (${current})`);
}
