/**
 * Commits all writes of the storage. Groups of writes pass one at a time, in this order:
 *
 * 1. The backend makes the group durable.
 * 2. The versions show it, and therefore every cache does.
 * 3. Its writers get their results.
 * 4. The watches are notified, each with a guard of its own, so that a failure in one does not reach the commit.
 *
 * Steps 2 to 4 are one turn of the event loop. So a client that awaits a write then reads it, and no reader sees what is not
 * durable. The writes of one turn, and all that arrive during a commit, form a group, up to a limit.
 */
import type { LogBackend, LogRecord } from './log-backend.ts';
import type { VersionChange } from './resource-versions.ts';
import type { StorageHealth } from './storage-health.ts';
import { isStorageError, StorageError } from './storage.ts';
import { WriteQueue, type PendingWrite, type RequestedWrite } from './write-queue.ts';

interface CommitPipelineOptions {
  readonly backend: LogBackend | undefined;
  readonly health: StorageHealth;
  /** Adds a durable record to the versions. */
  readonly show: (record: LogRecord) => VersionChange;
  /** Sends the changes to the watches and closes those whose observers throw. If `notify` itself throws, the storage fails. */
  readonly notify: (changes: readonly VersionChange[]) => void;
}

/**
 * Commits groups of writes, at most one group at a time. If a group fails, its writers fail, except those whose writes can be
 * committed without the cause: the other transactions if a value is refused, and deletions if the disk is full.
 */
export class CommitPipeline {
  readonly #options: CommitPipelineOptions;
  readonly #queue = new WriteQueue();
  #committing: Promise<void> | undefined;
  #isScheduled = false;
  #lastRevision = 0;

  constructor(options: CommitPipelineOptions) {
    this.#options = options;
  }

  /** The newest revision that a record received. The revisions of a failed commit are not reused. */
  get lastRevision(): number {
    return this.#lastRevision;
  }

  /** Sets the last revision. The first record receives the revision after this one. */
  startAfter(revision: number): void {
    this.#lastRevision = revision;
  }

  /** Returns a promise that settles with a running write of one of the keys, or `undefined` if none is running. */
  pendingOf(keys: readonly string[]): Promise<void> | undefined {
    return this.#queue.pendingOf(keys);
  }

  /**
   * Resolves to the revision of `write`. The `joined` writes succeed or fail with it. None of the keys may have a running
   * write. Rejects with StorageError `full` or `refused` if nothing was written, and `unknown-outcome` if the storage failed.
   */
  write(write: RequestedWrite, joined: readonly RequestedWrite[]): Promise<number> {
    const written = this.#queue.add(write, joined);
    if (!this.#isScheduled && this.#committing === undefined) {
      this.#isScheduled = true;
      setImmediate(() => {
        this.#isScheduled = false;
        this.#commit();
      });
    }
    return written;
  }

  /** Resolves when no write is waiting or running. */
  async drain(): Promise<void> {
    for (this.#commit(); this.#committing !== undefined; this.#commit()) await this.#committing;
  }

  #commit(): void {
    if (this.#committing === undefined && this.#queue.length > 0) this.#committing = this.#commitAll();
  }

  async #commitAll(): Promise<void> {
    while (this.#queue.length > 0) await this.#commitGroup(this.#queue.takeGroup());
    // This runs in the turn in which the queue was found empty, so a later write begins a commit of its own.
    this.#committing = undefined;
  }

  /** Makes a group durable and publishes it. Never rejects, because the writers receive a failure. */
  async #commitGroup(writes: readonly PendingWrite[]): Promise<void> {
    const { backend, health } = this.#options;
    const records = writes.map((write) => this.#record(write));
    try {
      if (health.failure !== undefined) throw health.failure;
      await backend?.append(records);
    } catch (error) {
      await this.#commitParts(writes, error);
      return;
    }
    this.#complete(writes, records);
  }

  /** After the whole group failed, commits the parts that can be committed separately. */
  async #commitParts(writes: readonly PendingWrite[], error: unknown): Promise<void> {
    const units = unitsOf(writes);
    const deletions = units.filter((unit) => unit.every(({ value }) => value === undefined));
    const isFull = isStorageError(error, 'full');
    if (isStorageError(error, 'refused') && units.length > 1) {
      // A value that cannot be stored must not prevent the other writes of its group.
      for (const unit of units) await this.#commitGroup(unit);
    } else if (isFull && deletions.length > 0 && deletions.length < units.length) {
      // Deletions free space, and may find room when values do not.
      this.#refuse(units.filter((unit) => !deletions.includes(unit)).flat(), error);
      await this.#commitGroup(deletions.flat());
    } else this.#refuse(writes, error);
  }

  #record({ key, value, previous, expiresAtMs }: PendingWrite): LogRecord {
    this.#lastRevision += 1;
    const revision = this.#lastRevision;
    return { revision, key, value, createRevision: previous?.createRevision ?? revision, expiresAtMs };
  }

  #complete(writes: readonly PendingWrite[], records: readonly LogRecord[]): void {
    const { health, show, notify } = this.#options;
    let changes: VersionChange[];
    try {
      changes = records.map(show);
    } catch (error) {
      // The record is on disk but not in memory, and only a restart makes them consistent.
      this.#refuse(writes, error);
      return;
    }
    // A deletion may succeed when there is no room for a value.
    if (writes.some(({ value }) => value !== undefined)) health.succeeded();
    for (const [at, write] of writes.entries()) {
      this.#queue.settled(write.key);
      write.resolve(records[at]?.revision ?? 0);
    }
    try {
      notify(changes);
    } catch (error) {
      // Some watches have lost events, and only a restart makes them begin again. Later commits must not wait for this one.
      health.fail(error);
    }
  }

  #refuse(writes: readonly PendingWrite[], cause: unknown): void {
    const { health } = this.#options;
    const isClean = isStorageError(cause, 'full') || isStorageError(cause, 'refused');
    if (!isClean) health.fail(cause);
    else if (cause.code === 'full') health.foundFull();
    const [code, message] = isClean
      ? [cause.code, cause.message]
      : (['unknown-outcome', 'the storage failed while writing'] as const);
    for (const write of writes) {
      this.#queue.settled(write.key);
      write.reject(new StorageError(code, message, { cause }));
    }
  }
}

/** Returns the writes of each transaction, which succeed or fail together. */
function unitsOf(writes: readonly PendingWrite[]): PendingWrite[][] {
  const units: PendingWrite[][] = [];
  for (let at = 0; at < writes.length;) {
    const end = at + 1 + (writes[at]?.joinedWrites ?? 0);
    units.push(writes.slice(at, end));
    at = end;
  }
  return units;
}
