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
import { EventHistory, superseded } from './event-history.ts';
import { ExpiryQueue, type Expiry } from './expiry-queue.ts';
import type { LogBackend, LogRecord, Stamp } from './log-backend.ts';
import { LogWatches } from './log-watches.ts';
import { SortedKeys } from './sorted-keys.ts';
import {
  isStorageError,
  StorageError,
  type SideWrite,
  type Storage,
  type StorageEvent,
  type StorageList,
  type StorageWatch,
  type StoredValue,
  type WatchObserver,
  type WriteOptions,
} from './storage.ts';
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
}

/** Where revisions begin: 1, which clients take for the beginning of time, is always history that is gone. */
const FIRST_REVISION = 2;
const HISTORY_LIMIT_BYTES = 96 * 1024 * 1024;
const REMOVE_STEP = 1000;

export class RevisionLog implements Storage {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #backend: LogBackend | undefined;
  readonly #stamp: Stamp;
  readonly #historyLimitBytes: number;
  readonly #onFailure: ((error: Error) => void) | undefined;
  readonly #current = new Map<string, StoredValue>();
  readonly #keys = new SortedKeys();
  readonly #history = new EventHistory();
  readonly #watches = new LogWatches();
  readonly #expiries: ExpiryQueue;
  #revision = FIRST_REVISION;
  #compacted = FIRST_REVISION;
  /** Revisions of a failed commit are not given again. */
  #lastGiven = FIRST_REVISION;
  readonly #queue = new WriteQueue();
  #committing: Promise<void> | undefined;
  #scheduled = false;
  #removing: Promise<void> = Promise.resolve();
  #closed: Promise<void> | undefined;
  #failure: Error | undefined;

  constructor(options: RevisionLogOptions) {
    this.#clock = options.clock;
    this.#logger = options.logger;
    this.#backend = options.backend;
    this.#stamp = options.stamp ?? ((value) => value);
    this.#historyLimitBytes = options.historyLimitBytes ?? HISTORY_LIMIT_BYTES;
    this.#onFailure = options.onFailure;
    this.#expiries = new ExpiryQueue(this.#clock, (due) => this.#expire(due));
  }

  /** Fills the log before its first use, with records in order. Returns revisions of records that nothing needs. */
  *load(records: Iterable<LogRecord>, compactedRevision: number): Generator<number, void, undefined> {
    this.#compacted = Math.max(FIRST_REVISION, compactedRevision);
    for (const record of records) {
      const previous = this.#current.get(record.key);
      const event = this.#enter(record, previous);
      if (record.revision > compactedRevision) this.#history.push(event);
      else yield* superseded(event);
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

  async get(key: string, options: { readonly revision?: number } = {}): Promise<StoredValue | undefined> {
    this.#assertOpen();
    const current = this.#current.get(key);
    if (options.revision === undefined || options.revision === this.#revision) return current;
    this.#assertReadable(options.revision);
    const states = this.#history.statesAt(options.revision, key);
    return states.has(key) ? states.get(key) : current;
  }

  async list(
    prefix: string,
    options: { readonly revision?: number; readonly limit?: number; readonly startAfter?: string } = {},
  ): Promise<StorageList> {
    this.#assertOpen();
    const { limit = 0, startAfter = '' } = options;
    const revision = options.revision ?? this.#revision;
    this.#assertReadable(revision);
    if (revision < this.#revision) return this.#listPast(prefix, revision, limit, startAfter);
    const items: StoredValue[] = [];
    for (const key of this.#keys.range(prefix, startAfter)) {
      if (limit > 0 && items.length === limit) break;
      const item = this.#current.get(key);
      if (item !== undefined) items.push(item);
    }
    return { items, revision, remaining: this.#keys.count(prefix, startAfter) - items.length };
  }

  #listPast(prefix: string, revision: number, limit: number, startAfter: string): StorageList {
    const states = this.#history.statesAt(revision, prefix);
    const items: StoredValue[] = [];
    for (const key of this.#keys.range(prefix, startAfter)) {
      const item = this.#current.get(key);
      if (item !== undefined && !states.has(key)) items.push(item);
    }
    for (const [key, item] of states) {
      if (item !== undefined && key > startAfter) items.push(item);
    }
    items.sort((a, b) => (a.key < b.key ? -1 : 1));
    const page = limit > 0 ? items.slice(0, limit) : items;
    return { items: page, revision, remaining: items.length - page.length };
  }

  async create(key: string, value: Buffer, options: WriteOptions = {}): Promise<StoredValue> {
    return this.#whenSettled(key, options.alongside, (sides) => {
      const current = this.#current.get(key);
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
    return this.#watches.add(
      options.prefix,
      options.afterRevision,
      this.#history.after(options.afterRevision),
      observer,
    );
  }

  async compact(revision: number): Promise<void> {
    this.#assertOpen();
    if (revision > this.#revision) throw futureError(revision, this.#revision);
    if (revision <= this.#compacted) return this.#removing;
    const dropped = this.#history.dropThrough(revision);
    this.#compacted = revision;
    this.#watches.compacted(revision);
    // Nothing was written since the last time: nothing is to be noted either.
    if (dropped.length === 0) return this.#removing;
    return this.discard(dropped.flatMap((event) => [...superseded(event)]));
  }

  /** Removes records that nothing needs from the backend, step by step. */
  discard(revisions: readonly number[]): Promise<void> {
    const backend = this.#backend;
    if (backend === undefined) return Promise.resolve();
    const remove = async (): Promise<void> => {
      for (let from = 0; from === 0 || from < revisions.length; from += REMOVE_STEP) {
        if (this.#failure !== undefined) return;
        await backend.remove(this.#compacted, this.#revision, revisions.slice(from, from + REMOVE_STEP));
      }
    };
    this.#removing = this.#removing.then(remove).catch((error: unknown) => {
      // What stays is found again at the next start; only room is lost.
      this.#logger.warn({ error }, 'Old revisions could not be removed from the storage.');
    });
    return this.#removing;
  }

  copyTo(file: string): Promise<void> {
    if (this.#backend === undefined)
      return Promise.reject(new StorageError('unusable', 'the storage is in memory: there is nothing to copy'));
    return this.#backend.copyTo(file);
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    this.#expiries.close();
    while (this.#queue.length > 0 || this.#committing !== undefined) {
      if (this.#committing === undefined) this.#commit();
      await this.#committing;
    }
    await this.#removing;
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
      const previous = this.#current.get(key);
      if (value === undefined) return previous === undefined ? [] : [{ key, value, previous, expiresAtMs: undefined }];
      if (previous !== undefined) throw new StorageError('occupied', `${key} exists`, { current: previous });
      return [{ key, value, previous, expiresAtMs: undefined }];
    });
  }

  #expect(key: string, revision: number): StoredValue {
    const current = this.#current.get(key);
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
    const stored = this.#current.get(key);
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
    const writes = this.#queue.takeGroup();
    const records = writes.map((write): LogRecord => {
      this.#lastGiven += 1;
      const { key, value, previous, expiresAtMs } = write;
      return {
        revision: this.#lastGiven,
        key,
        value,
        createRevision: previous?.createRevision ?? this.#lastGiven,
        expiresAtMs,
      };
    });
    const append = this.#failure === undefined ? this.#backend?.append(records) : Promise.reject(this.#failure);
    this.#committing = (append ?? Promise.resolve())
      .then(
        () => this.#apply(writes, records),
        (error: unknown) => this.#refuse(writes, error),
      )
      .then(() => {
        this.#committing = undefined;
        if (this.#queue.length > 0) this.#commit();
      });
  }

  #apply(writes: readonly PendingWrite[], records: readonly LogRecord[]): void {
    const events: StorageEvent[] = [];
    for (const record of records) {
      const event = this.#enter(record, this.#current.get(record.key));
      this.#history.push(event);
      events.push(event);
      this.#queue.settled(record.key);
    }
    this.#watches.deliver(events);
    for (const [at, write] of writes.entries()) write.resolve(records[at]?.revision ?? 0);
    if (this.#history.cost > this.#historyLimitBytes) {
      this.#logger.warn({ bytes: this.#history.cost }, 'History is compacted early: too much was overwritten.');
      void this.compact(this.#history.revisionForCost(this.#historyLimitBytes * 0.75));
    }
  }

  #enter(record: LogRecord, previous: StoredValue | undefined): StorageEvent {
    const { key, revision, value, createRevision } = record;
    this.#revision = revision;
    if (value === undefined) {
      this.#current.delete(key);
      this.#keys.delete(key);
      // A deletion is only ever recorded of what is there; a record without it belongs to compacted history.
      const gone = previous ?? { key, value: Buffer.alloc(0), createRevision, revision };
      return { type: 'delete', key, revision, previous: gone };
    }
    const current: StoredValue = { key, value: this.#stamp(value, revision), createRevision, revision };
    this.#current.set(key, current);
    if (previous === undefined) this.#keys.add(key);
    if (record.expiresAtMs !== undefined) this.#expiries.add({ key, revision, atMs: record.expiresAtMs });
    return { type: 'put', created: previous === undefined, current, previous };
  }

  #refuse(writes: readonly PendingWrite[], cause: unknown): void {
    if (!isStorageError(cause, 'full')) this.#fail(cause);
    const [code, message] = isStorageError(cause, 'full')
      ? (['full', cause.message] as const)
      : (['unknown-outcome', 'the storage failed while writing'] as const);
    for (const write of writes) {
      this.#queue.settled(write.key);
      write.reject(new StorageError(code, message, { cause }));
    }
  }

  #fail(cause: unknown): void {
    if (this.#failure !== undefined) return;
    this.#failure = cause instanceof Error ? cause : new Error(String(cause));
    this.#logger.error(
      { error: this.#failure },
      'The storage failed; nothing is written any more until the next start.',
    );
    this.#onFailure?.(this.#failure);
  }

  #expire(due: readonly Expiry[]): void {
    for (const { key, revision } of due) {
      if (this.#current.get(key)?.revision !== revision) continue;
      this.delete(key, revision).catch((error: unknown) => {
        if (isStorageError(error, 'full')) this.#expiries.add({ key, revision, atMs: this.#clock.now() + 60_000 });
        else if (!isStorageError(error)) throw error;
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
    if (this.#failure !== undefined) {
      throw new StorageError('unusable', 'the storage failed and takes no writes', { cause: this.#failure });
    }
  }
}

function compactedError(revision: number, compacted: number): StorageError {
  return new StorageError('compacted', `revision ${revision} is older than what is kept (${compacted})`);
}

function futureError(revision: number, current: number): StorageError {
  return new StorageError('future-revision', `revision ${revision} is newer than the newest (${current})`);
}
