/**
 * The revision log over a backend that keeps it durably (or over none): the truth of all keys in memory, order, checks,
 * revisions, watches, history. A backend only appends records and removes them again.
 *
 * Writes of one turn of the event loop, and all that come while a commit is under way, are appended as one commit. Nothing
 * is visible before its commit is durable; a write of a key that has one under way waits for that one and is then checked
 * against what became of it. Made by `sqlite/sqlite-storage.ts` and `memory.ts`.
 */
import type { Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { ExpiryQueue, type Expiry } from './expiry-queue.ts';
import type { LogBackend, LogRecord, Stamp } from './log-backend.ts';
import { LogWatches } from './log-watches.ts';
import { RemovalBacklog } from './removal-backlog.ts';
import { superseded, type ResourceVersions, type VersionChange } from './resource-versions.ts';
import { StorageHealth } from './storage-health.ts';
import {
  isStorageError,
  StorageError,
  type SideWrite,
  type Storage,
  type StorageList,
  type StorageWatch,
  type StoredValue,
  type WatchObserver,
  type WriteOptions,
} from './storage.ts';
import { VersionStore } from './version-store.ts';
import { WriteQueue, type PendingWrite, type RequestedWrite } from './write-queue.ts';

export interface RevisionLogOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly backend: LogBackend | undefined;
  readonly stamp?: Stamp | undefined;
  /** Bytes of superseded values to keep at most; beyond it the oldest history is compacted early. */
  readonly historyLimitBytes?: number;
  /** The outcome of a commit is unknown: no write is taken any more, the process should start again. */
  readonly onFailure?: ((error: Error) => void) | undefined;
  /** A watch failed and was closed. `resource` is a prefix of keys (`/core/pods/`). */
  readonly onWatchFailed?: ((resource: string) => void) | undefined;
}

/** Where revisions begin: 1, which clients take for the beginning of time, is always history that is gone. */
const FIRST_REVISION = 2;
const HISTORY_LIMIT_BYTES = 96 * 1024 * 1024;

export class RevisionLog implements Storage {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #backend: LogBackend | undefined;
  readonly #stamp: Stamp;
  readonly #historyLimitBytes: number;
  readonly #health: StorageHealth;
  readonly #onWatchFailed: ((resource: string) => void) | undefined;
  readonly #versions = new VersionStore();
  readonly #watches: LogWatches;
  readonly #expiries: ExpiryQueue;
  #revision = FIRST_REVISION;
  #compacted = FIRST_REVISION;
  /** Revisions of a failed commit are not given again. */
  #lastGiven = FIRST_REVISION;
  readonly #queue = new WriteQueue();
  #committing: Promise<void> | undefined;
  #scheduled = false;
  readonly #removals: RemovalBacklog;
  #closed: Promise<void> | undefined;

  constructor(options: RevisionLogOptions) {
    this.#clock = options.clock;
    this.#logger = options.logger;
    this.#backend = options.backend;
    this.#stamp = options.stamp ?? ((value) => value);
    this.#historyLimitBytes = options.historyLimitBytes ?? HISTORY_LIMIT_BYTES;
    this.#health = new StorageHealth({
      clock: options.clock,
      logger: options.logger,
      backend: options.backend,
      lastRevision: () => this.#lastGiven,
      onFailure: options.onFailure,
    });
    this.#onWatchFailed = options.onWatchFailed;
    this.#expiries = new ExpiryQueue(this.#clock, (due) => this.#expire(due));
    this.#watches = new LogWatches((error, prefix) => this.watchFailed(error, prefix));
    this.#removals = new RemovalBacklog({
      clock: options.clock,
      remove: (compacted, revisions) => this.#remove(compacted, revisions),
      onFailure: (error) => this.#removalFailed(error),
    });
  }

  /** Fills the log before its first use, with records in order. Returns revisions of records that nothing needs. */
  *load(records: Iterable<LogRecord>, compactedRevision: number): Generator<number, void, undefined> {
    this.#compacted = Math.max(FIRST_REVISION, compactedRevision);
    for (const record of records) {
      const isCompacted = record.revision <= compactedRevision;
      const change = this.#enter(record, { isCompacted });
      if (isCompacted) yield* superseded(change);
    }
  }

  /** Ends loading: the newest revision is at least this. */
  loaded(lastRevision: number): void {
    this.#revision = Math.max(this.#revision, lastRevision, this.#compacted);
    this.#lastGiven = this.#revision;
  }

  revision(): number {
    return this.#revision;
  }

  compactedRevision(): number {
    return this.#compacted;
  }

  async open(resource: string): Promise<ResourceVersions> {
    this.#assertOpen();
    return this.#versions.of(resource);
  }

  async get(
    key: string,
    { revision = this.#revision }: { readonly revision?: number } = {},
  ): Promise<StoredValue | undefined> {
    this.#assertOpen();
    this.#assertReadable(revision);
    return revision === this.#revision ? this.#versions.get(key) : this.#versions.getAt(revision, key);
  }

  async list(
    prefix: string,
    options: { readonly revision?: number; readonly limit?: number; readonly startAfter?: string } = {},
  ): Promise<StorageList> {
    this.#assertOpen();
    const { limit = 0, startAfter = '', revision = this.#revision } = options;
    this.#assertReadable(revision);
    if (revision < this.#revision) {
      const all = [...this.#versions.rangeAt(revision, prefix, startAfter)];
      const items = limit > 0 ? all.slice(0, limit) : all;
      return { items, revision, remaining: all.length - items.length };
    }
    const items: StoredValue[] = [];
    for (const item of this.#versions.range(prefix, startAfter)) {
      if (limit > 0 && items.length === limit) break;
      items.push(item);
    }
    return { items, revision, remaining: this.#versions.count(prefix, startAfter) - items.length };
  }

  async create(key: string, value: Buffer, options: WriteOptions = {}): Promise<StoredValue> {
    return this.#whenSettled(key, options.alongside, (sides) => {
      const current = this.#versions.get(key);
      if (current !== undefined) throw new StorageError('exists', `${key} exists`, { current });
      return this.#put({ key, value, previous: undefined, expiresAtMs: options.expiresAtMs }, sides);
    });
  }

  async update(key: string, value: Buffer, expectedRevision: number, options: WriteOptions = {}): Promise<StoredValue> {
    return this.#whenSettled(key, options.alongside, (sides) => {
      const previous = this.#expect(key, expectedRevision);
      return this.#put({ key, value, previous, expiresAtMs: options.expiresAtMs }, sides);
    });
  }

  async delete(key: string, expectedRevision: number, alongside?: readonly SideWrite[]): Promise<number> {
    return this.#whenSettled(key, alongside, (sides) => {
      const previous = this.#expect(key, expectedRevision);
      return this.#write({ key, value: undefined, previous, expiresAtMs: undefined }, sides());
    });
  }

  watch(options: { readonly prefix: string; readonly afterRevision: number }, observer: WatchObserver): StorageWatch {
    this.#assertOpen();
    if (options.afterRevision < this.#compacted) throw compactedError(options.afterRevision, this.#compacted);
    const { prefix, afterRevision } = options;
    return this.#watches.add(prefix, afterRevision, this.#versions.after(afterRevision, prefix), observer);
  }

  async compact(revision: number): Promise<void> {
    this.#assertOpen();
    if (revision > this.#revision) throw futureError(revision, this.#revision);
    return this.#compact(revision);
  }

  #compact(revision: number): Promise<void> {
    if (revision <= this.#compacted) return this.#removals.drain();
    const dropped = this.#versions.dropThrough(revision);
    this.#compacted = revision;
    this.#watches.compacted(revision);
    // Where nothing was written since the last time there is nothing to write now either.
    if (dropped.length === 0) return this.#removals.drain();
    return this.discard(dropped.flatMap((event) => [...superseded(event)]));
  }

  /** Removes records that nothing needs from the backend. Rejects when that fails; they are tried again later. */
  discard(revisions: readonly number[]): Promise<void> {
    if (this.#backend === undefined) return Promise.resolve();
    return this.#removals.add(this.#compacted, revisions);
  }

  async #remove(compacted: number, revisions: readonly number[]): Promise<void> {
    if (this.#health.failure !== undefined) throw this.#health.failure;
    await this.#backend?.remove(compacted, this.#lastGiven, revisions);
    this.#health.succeeded();
  }

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

  check(options: { readonly writes: boolean }): Promise<void> {
    return this.#health.check(options);
  }

  watchFailed(error: unknown, resource: string): void {
    this.#logger.error({ err: error, resource }, 'A watch failed and is closed');
    this.#onWatchFailed?.(resource);
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    this.#expiries.close();
    this.#health.close();
    while (this.#queue.length > 0 || this.#committing !== undefined) {
      if (this.#committing === undefined) this.#commit();
      await this.#committing;
    }
    await this.#removals.close();
    this.#watches.end(undefined);
    await this.#backend?.close();
  }

  /** Runs `write` when no write of any of the keys is under way, in the same turn as that is seen. */
  async #whenSettled<T>(
    key: string,
    alongside: readonly SideWrite[] = [],
    write: (sides: () => readonly RequestedWrite[]) => Promise<T>,
  ): Promise<T> {
    this.#assertWritable();
    const keys = [key, ...alongside.map((side) => side.key)];
    for (let before = this.#queue.pendingOf(keys); before !== undefined; before = this.#queue.pendingOf(keys)) {
      await before;
      this.#assertWritable();
    }
    return write(() => this.#sides(alongside));
  }

  #sides(alongside: readonly SideWrite[]): readonly RequestedWrite[] {
    return alongside.flatMap(({ key, value }): RequestedWrite[] => {
      const previous = this.#versions.get(key);
      if (value === undefined) return previous === undefined ? [] : [{ key, value, previous, expiresAtMs: undefined }];
      if (previous !== undefined) throw new StorageError('occupied', `${key} exists`, { current: previous });
      return [{ key, value, previous, expiresAtMs: undefined }];
    });
  }

  #expect(key: string, revision: number): StoredValue {
    const current = this.#versions.get(key);
    if (current === undefined) throw new StorageError('not-found', `${key} is gone`);
    if (current.revision === revision) return current;
    throw new StorageError('conflict', `${key} is at revision ${current.revision}, not ${revision}`, { current });
  }

  async #put(
    write: RequestedWrite & { readonly value: Buffer },
    sides: () => readonly RequestedWrite[],
  ): Promise<StoredValue> {
    const { key, value, previous } = write;
    const revision = await this.#write(write, sides());
    const stored = this.#versions.get(key);
    if (stored?.revision === revision) return stored;
    // Written again within the same turn that made this one visible.
    return { key, value: this.#stamp(value, revision), createRevision: previous?.createRevision ?? revision, revision };
  }

  #write(write: RequestedWrite, sides: readonly RequestedWrite[]): Promise<number> {
    const written = this.#queue.add(write, sides);
    if (!this.#scheduled && this.#committing === undefined) {
      this.#scheduled = true;
      setImmediate(() => {
        this.#scheduled = false;
        if (this.#committing === undefined && this.#queue.length > 0) this.#commit();
      });
    }
    return written;
  }

  #commit(): void {
    this.#committing = this.#commitAll();
  }

  async #commitAll(): Promise<void> {
    while (this.#queue.length > 0) await this.#commitGroup(this.#queue.takeGroup());
    // In the same turn as the queue was found empty: a write that comes later begins a commit of its own.
    this.#committing = undefined;
  }

  /** Never rejects: a failure is the writers' outcome. */
  async #commitGroup(writes: readonly PendingWrite[]): Promise<void> {
    const records = writes.map((write) => this.#record(write));
    try {
      if (this.#health.failure !== undefined) throw this.#health.failure;
      await this.#backend?.append(records);
    } catch (error) {
      const units = unitsOf(writes);
      // One value that cannot be kept must not refuse the others of its group.
      if (isStorageError(error, 'refused') && units.length > 1) for (const unit of units) await this.#commitGroup(unit);
      else this.#refuse(writes, error);
      return;
    }
    this.#apply(writes, records);
  }

  #record({ key, value, previous, expiresAtMs }: PendingWrite): LogRecord {
    this.#lastGiven += 1;
    const revision = this.#lastGiven;
    return { revision, key, value, createRevision: previous?.createRevision ?? revision, expiresAtMs };
  }

  /**
   * The commit is durable. First the versions show it, then the writers are answered, then the watches are notified, each
   * behind a guard of its own: nothing that fails in a watch reaches the commit. All of it is one turn of the event loop, so
   * whoever awaits a write reads it in every cache.
   */
  #apply(writes: readonly PendingWrite[], records: readonly LogRecord[]): void {
    const changes = records.map((record) => this.#enter(record));
    for (const { key } of records) this.#queue.settled(key);
    this.#health.succeeded();
    for (const [at, write] of writes.entries()) write.resolve(records[at]?.revision ?? 0);
    this.#watches.deliver(changes);
    if (this.#versions.historyBytes > this.#historyLimitBytes) this.#compactEarly();
  }

  #compactEarly(): void {
    const bytes = this.#versions.historyBytes;
    this.#logger.warn({ bytes }, 'History is compacted early, because too much was overwritten');
    this.#compact(this.#versions.revisionForBytes(this.#historyLimitBytes * 0.75)).catch((error: unknown) => {
      this.#logger.debug({ err: error }, 'Old revisions were not removed yet');
    });
  }

  #enter(record: LogRecord, options?: { readonly isCompacted?: boolean }): VersionChange {
    const { key, revision, value, expiresAtMs } = record;
    this.#revision = revision;
    const stamped = value === undefined ? undefined : this.#stamp(value, revision);
    if (value !== undefined && expiresAtMs !== undefined) this.#expiries.add({ key, revision, atMs: expiresAtMs });
    return this.#versions.enter(record, stamped, options);
  }

  #refuse(writes: readonly PendingWrite[], cause: unknown): void {
    const isClean = isStorageError(cause, 'full') || isStorageError(cause, 'refused');
    if (!isClean) this.#health.fail(cause);
    else if (cause.code === 'full') this.#health.foundFull();
    const [code, message] = isClean
      ? [cause.code, cause.message]
      : (['unknown-outcome', 'the storage failed while writing'] as const);
    for (const write of writes) {
      this.#queue.settled(write.key);
      write.reject(new StorageError(code, message, { cause }));
    }
  }

  #expire(due: readonly Expiry[]): void {
    for (const { key, revision } of due) {
      if (this.#versions.get(key)?.revision !== revision) continue;
      this.delete(key, revision).catch((error: unknown) => {
        if (isStorageError(error, 'full')) this.#expiries.add({ key, revision, atMs: this.#clock.now() + 60_000 });
        else if (!isStorageError(error)) this.#logger.error({ err: error, key }, 'An expired key could not be removed');
      });
    }
  }

  #assertReadable(revision: number): void {
    if (revision > this.#revision) throw futureError(revision, this.#revision);
    if (revision < this.#compacted) throw compactedError(revision, this.#compacted);
  }

  #assertOpen(): void {
    if (this.#closed !== undefined) throw new StorageError('closed', 'the storage is closed');
  }

  #assertWritable(): void {
    this.#assertOpen();
    if (this.#health.failure !== undefined) {
      throw new StorageError('unusable', 'the storage failed and takes no writes', { cause: this.#health.failure });
    }
  }
}

function compactedError(revision: number, compacted: number): StorageError {
  return new StorageError('compacted', `revision ${revision} is older than what is kept (${compacted})`);
}

function futureError(revision: number, current: number): StorageError {
  return new StorageError('future-revision', `revision ${revision} is newer than the newest (${current})`);
}

/** Each write with those that succeed or fail together with it. */
function unitsOf(writes: readonly PendingWrite[]): PendingWrite[][] {
  const units: PendingWrite[][] = [];
  for (let at = 0; at < writes.length;) {
    const end = at + 1 + (writes[at]?.alongside ?? 0);
    units.push(writes.slice(at, end));
    at = end;
  }
  return units;
}
