/**
 * Implements the storage over a durable backend, or in memory without one. It checks each write against the current values,
 * assigns its revision in the commit pipeline, and keeps the current values and the history of all resources.
 *
 * A write of a key with a running write waits for it and is then checked against its outcome.
 */
import type { StoredLog } from './stored-log.ts';
import type { Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { CommitPipeline } from './commit-pipeline.ts';
import { ExpiryQueue, type Expiry } from './expiry-queue.ts';
import { HistoryStorage, type HistoryStorageOptions } from './history-storage.ts';
import type { LogBackend, LogMarks, LogRecord } from './log-backend.ts';
import { RemovalBacklog } from './removal-backlog.ts';
import { type StoredValue, superseded, type VersionChange } from './resource-versions.ts';
import { StorageHealth } from './storage-health.ts';
import {
  futureError,
  occupiedError,
  isStorageError,
  StorageError,
  type TransactionWrite,
  type Storage,
  type TimedRevision,
  type WriteOptions,
} from './storage.ts';
import type { RequestedWrite } from './write-queue.ts';

/** The backend is undefined for a storage in memory. */
export interface RevisionLogOptions extends HistoryStorageOptions {
  readonly clock: Clock;
  readonly backend: LogBackend | undefined;
  /** The maximum size of superseded values. Beyond it, the oldest history is compacted early. */
  readonly historyLimitBytes?: number;
  /** Called if the outcome of a commit is unknown or the backend is lost. Writes then fail until the process restarts. */
  readonly onFailure?: ((error: Error) => void) | undefined;
}

/** The first revision. Clients take 1 for the beginning of time, so 1 is always compacted history. */
const FIRST_REVISION = 2;
const HISTORY_LIMIT_BYTES = 96 * 1024 * 1024;
/** The time after which an expired key is deleted again if there was no room or the deletion was refused. */
const EXPIRY_RETRY_MS = 60_000;
/** The size of the pages of the stored log. */
const PAGE_BYTES = 512 * 1024;

/** A storage that one process alone may use. */
export class RevisionLog extends HistoryStorage implements Storage {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #backend: LogBackend | undefined;
  readonly #historyLimitBytes: number;
  readonly #health: StorageHealth;
  readonly #expiries: ExpiryQueue;
  #lastCompaction: TimedRevision | undefined;
  readonly #commits: CommitPipeline;
  readonly #removals: RemovalBacklog;
  #closed: Promise<void> | undefined;
  /** The reason why no more writes are accepted. */
  #fence: string | undefined;
  #guard: () => Promise<void> | undefined = () => undefined;

  constructor(options: RevisionLogOptions) {
    super(options, FIRST_REVISION);
    this.#clock = options.clock;
    this.#logger = options.logger;
    this.#backend = options.backend;
    this.#historyLimitBytes = options.historyLimitBytes ?? HISTORY_LIMIT_BYTES;
    this.#health = new StorageHealth({
      clock: options.clock,
      logger: options.logger,
      backend: options.backend,
      lastRevision: () => this.#commits.lastRevision,
      onFailure: options.onFailure,
      onFull: () => this.#compactForRoom(),
    });
    this.#commits = new CommitPipeline({
      backend: options.backend,
      health: this.#health,
      show: (record) => this.#enter(record),
      notify: (changes) => this.#notify(changes),
    });
    this.#commits.startAfter(FIRST_REVISION);
    this.#expiries = new ExpiryQueue(this.#clock, (due) => this.#expire(due));
    this.#removals = new RemovalBacklog({
      clock: options.clock,
      remove: (compacted, revisions) => this.#remove(compacted, revisions),
      onFailure: (error) => this.#removalFailed(error),
    });
  }

  /** Fills the log before its first use with records in order. Yields the revisions of obsolete records. */
  *load(records: Iterable<LogRecord>, compactedRevision: number): Generator<number, void, undefined> {
    this.history.beginsAt(compactedRevision);
    for (const record of records) {
      const isCompacted = record.revision <= compactedRevision;
      const change = this.#enter(record, { isCompacted });
      if (isCompacted) yield* superseded(change);
    }
  }

  /** Ends loading. The newest revision is at least the last one that a record received. */
  loaded({ lastRevision, lastCompaction }: LogMarks): void {
    this.history.proceedTo(Math.max(lastRevision, this.history.compactedRevision));
    this.#lastCompaction = lastCompaction;
    this.#commits.startAfter(this.history.revision);
  }

  lastCompaction(): TimedRevision | undefined {
    return this.#lastCompaction;
  }

  async create(key: string, value: Buffer, options: WriteOptions = {}): Promise<StoredValue> {
    return this.#whenSettled(key, options.transactionWrites, (joined) => {
      const current = this.history.current(key);
      if (current !== undefined) throw new StorageError('exists', `${key} exists`, { current });
      return this.#put({ key, value, previous: undefined, expiresAtMs: options.expiresAtMs }, joined);
    });
  }

  async update(key: string, value: Buffer, expectedRevision: number, options: WriteOptions = {}): Promise<StoredValue> {
    return this.#whenSettled(key, options.transactionWrites, (joined) => {
      const previous = this.#expect(key, expectedRevision);
      return this.#put({ key, value, previous, expiresAtMs: options.expiresAtMs }, joined);
    });
  }

  async delete(
    key: string,
    expectedRevision: number,
    transactionWrites?: readonly TransactionWrite[],
  ): Promise<number> {
    return this.#whenSettled(key, transactionWrites, (joined) => {
      const previous = this.#expect(key, expectedRevision);
      return this.#commits.write({ key, value: undefined, previous, expiresAtMs: undefined }, joined());
    });
  }

  async compact(revision: number): Promise<void> {
    this.assertOpen();
    if (revision > this.history.revision) throw futureError(revision, this.history.revision);
    return this.#compact(revision);
  }

  async #compact(revision: number): Promise<void> {
    const { lastRevision } = this.#commits;
    // Without writes since the last compaction, there is nothing to store.
    const isNewer = lastRevision !== this.#lastCompaction?.revision;
    const hasDropped = await this.#forgetThrough(revision);
    // The records that remain are found when the storage is opened again.
    if (this.#closed !== undefined) return;
    const isMarkAlone = !hasDropped && isNewer && !this.#removals.isWaiting;
    if (hasDropped || isMarkAlone) this.#lastCompaction = { revision: lastRevision, atMs: this.#clock.now() };
    if (isMarkAlone) this.#queueRemoval([]);
    await this.#removals.drain();
  }

  /** Drops the history up to a revision and queues the removal of its records. Resolves to whether it dropped any changes. */
  async #forgetThrough(revision: number): Promise<boolean> {
    let hasDropped = false;
    await this.history.forgetThrough(revision, {
      isStopped: () => this.#closed !== undefined,
      // The records are queued in the turn in which their changes are dropped. In the next turn, another compaction may drop
      // later history, but records must be removed in the order of revisions.
      dropped: (changes) => {
        hasDropped ||= changes.length > 0;
        if (changes.length > 0) this.#queueRemoval(changes.flatMap(superseded));
      },
    });
    return hasDropped;
  }

  /** Removes obsolete records from the backend. Rejects if that fails, also if it is tried again later. */
  discard(revisions: readonly number[]): Promise<void> {
    this.#queueRemoval(revisions);
    return this.#removals.drain();
  }

  #queueRemoval(revisions: readonly number[]): void {
    if (this.#backend !== undefined) this.#removals.push(this.history.compactedRevision, revisions);
  }

  async #remove(compacted: number, revisions: readonly number[]): Promise<void> {
    if (this.#health.failure !== undefined) throw this.#health.failure;
    const { lastRevision } = this.#commits;
    await this.#backend?.remove(
      { compactedRevision: compacted, lastRevision, lastCompaction: this.#lastCompaction },
      revisions,
    );
  }

  /** Returns whether the removal is retried. Otherwise the storage has failed. */
  #removalFailed(error: unknown): boolean {
    if (this.#health.failure !== undefined) return false;
    if (isStorageError(error, 'full') || isStorageError(error, 'refused')) {
      if (error.code === 'full') this.#health.foundFull();
      this.#logger.warn({ err: error, waiting: this.#removals.size }, 'Old revisions wait to be removed');
      return true;
    }
    this.#health.fail(error);
    return false;
  }

  copyTo(file: string): Promise<void> {
    if (this.#backend === undefined)
      return Promise.reject(new StorageError('unusable', 'the storage is in memory: there is nothing to copy'));
    return this.#backend.copyTo(file);
  }

  async check(options: { readonly writes: boolean }): Promise<void> {
    if (options.writes && this.#fence !== undefined) throw new StorageError('unavailable', this.#fence);
    return this.#health.check(options);
  }

  get log(): StoredLog | undefined {
    const backend = this.#backend;
    if (backend === undefined) return undefined;
    return {
      read: (after) => backend.read(after, PAGE_BYTES),
      has: (mark) => backend.has(mark),
      holdRemovals: () => this.#removals.hold(),
    };
  }

  async fence(reason: string): Promise<number> {
    this.#fence = reason;
    await this.#commits.drain();
    return this.history.revision;
  }

  guard(before: () => Promise<void> | undefined): void {
    this.#guard = before;
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    this.#expiries.close();
    this.#health.close();
    await this.#commits.drain();
    await this.#removals.close();
    this.history.end(undefined);
    await this.#backend?.close();
  }

  /** Waits until no write of any of the keys is running, and then runs `write` in the same turn of the event loop. */
  async #whenSettled<T>(
    key: string,
    transactionWrites: readonly TransactionWrite[] = [],
    write: (joined: () => readonly RequestedWrite[]) => Promise<T>,
  ): Promise<T> {
    const guarded = this.#guard();
    if (guarded !== undefined) await guarded;
    this.#assertWritable();
    const keys = [key, ...transactionWrites.map((one) => one.key)];
    for (let before = this.#commits.pendingOf(keys); before !== undefined; before = this.#commits.pendingOf(keys)) {
      await before;
      this.#assertWritable();
    }
    return write(() => this.#joined(transactionWrites));
  }

  #joined(transactionWrites: readonly TransactionWrite[]): readonly RequestedWrite[] {
    return transactionWrites.flatMap(({ key, value, expectedRevision = 0 }): RequestedWrite[] => {
      const previous = this.history.current(key);
      if (value === undefined) return previous === undefined ? [] : [{ key, value, previous, expiresAtMs: undefined }];
      if ((previous?.revision ?? 0) !== expectedRevision) throw occupiedError(key);
      return [{ key, value, previous, expiresAtMs: undefined }];
    });
  }

  #expect(key: string, revision: number): StoredValue {
    const current = this.history.current(key);
    if (current === undefined) throw new StorageError('not-found', `${key} is gone`);
    if (current.revision === revision) return current;
    throw new StorageError('conflict', `${key} is at revision ${current.revision}, not ${revision}`, { current });
  }

  async #put(
    write: RequestedWrite & { readonly value: Buffer },
    joined: () => readonly RequestedWrite[],
  ): Promise<StoredValue> {
    const { key, value, previous } = write;
    const revision = await this.#commits.write(write, joined());
    const stored = this.history.current(key);
    if (stored?.revision === revision) return stored;
    // The key was written again in the turn that made this value visible.
    return {
      key,
      value: this.history.stamped(value, revision),
      createRevision: previous?.createRevision ?? revision,
      revision,
    };
  }

  #notify(changes: readonly VersionChange[]): void {
    this.history.deliver(changes);
    const limitBytes = this.#historyLimitBytes;
    if (this.history.historyBytes > limitBytes)
      this.#compactEarly(1 / 4, 'History is compacted early, because too much was overwritten');
  }

  /** Makes room for the backend, whose disk is full. */
  #compactForRoom(): void {
    this.#removals.releaseHolds();
    if (this.history.historyBytes > 0)
      this.#compactEarly(1 / 2, 'History is compacted early, because the disk is full');
  }

  /** Compacts before the next interval. `share` is the part of the revisions in the history that is dropped. */
  #compactEarly(share: number, message: string): void {
    if (this.history.isForgetting) return;
    this.#logger.warn({ bytes: this.history.historyBytes }, message);
    const revision =
      this.history.compactedRevision + Math.ceil((this.history.revision - this.history.compactedRevision) * share);
    this.#compact(revision).catch((error: unknown) => {
      this.#logger.debug({ err: error }, 'Old revisions were not removed yet');
    });
  }

  #enter(record: LogRecord, options?: { readonly isCompacted?: boolean }): VersionChange {
    const { key, revision, value, expiresAtMs } = record;
    if (value !== undefined && expiresAtMs !== undefined) this.#expiries.add({ key, revision, atMs: expiresAtMs });
    return this.history.enter(record, options);
  }

  #expire(due: readonly Expiry[]): void {
    for (const { key, revision } of due) {
      if (this.history.current(key)?.revision !== revision) continue;
      this.delete(key, revision).catch((error: unknown) => {
        const isLater = isStorageError(error, 'full') || isStorageError(error, 'refused');
        if (isLater) this.#expiries.add({ key, revision, atMs: this.#clock.now() + EXPIRY_RETRY_MS });
        else if (!isStorageError(error)) this.#logger.error({ err: error, key }, 'An expired key could not be removed');
      });
    }
  }

  protected assertOpen(): void {
    if (this.#closed !== undefined) throw new StorageError('closed', 'the storage is closed');
  }

  #assertWritable(): void {
    this.assertOpen();
    if (this.#fence !== undefined) throw new StorageError('unavailable', this.#fence);
    if (this.#health.failure !== undefined) {
      throw new StorageError('unusable', 'the storage failed and accepts no writes', { cause: this.#health.failure });
    }
  }
}
