/**
 * Implements the storage on an etcd cluster, which other servers may use at the same time: other control planes of this
 * project, or kube-apiservers. Keys and values are those of kube-apiserver (`keys.ts`, `values.ts`).
 *
 * One watch of etcd (`etcd-watch.ts`) fills the versions of all resources. A write is one transaction of etcd, which compares
 * the revisions of its keys, and resolves when the watch has shown it. Everything in memory is complete up to `revision()`.
 */
import { background } from '../../../api/machinery/background.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { LogRecord } from '../log-backend.ts';
import { HistoryStorage, type HistoryStorageOptions } from '../history-storage.ts';
import {
  futureError,
  occupiedError,
  type Storage,
  StorageError,
  type TimedRevision,
  type TransactionWrite,
  type WriteOptions,
} from '../storage.ts';
import type { StoredValue } from '../resource-versions.ts';
import { COMPACTION_KEY, compactEtcd, compactThrough } from './etcd-compactor.ts';
import { EtcdHealth } from './etcd-health.ts';
import { EtcdLeases } from './etcd-leases.ts';
import type { EtcdMetrics } from './etcd-metrics.ts';
import { EtcdReader, type EtcdValueLayout } from './etcd-reader.ts';
import type { EtcdServers } from './etcd-servers.ts';
import { assertComplete, type EtcdEvent, followEtcd } from './etcd-watch.ts';
import { type EtcdWrite, EtcdWriter } from './etcd-writer.ts';
import { SharedRead } from './shared-read.ts';
import { RevisionWaits } from './revision-waits.ts';

/** The storage, its limits, and the flags `--etcd-*`. */
export interface EtcdStorageOptions extends HistoryStorageOptions {
  readonly servers: EtcdServers;
  readonly layout: EtcdValueLayout;
  readonly clock: Clock;
  /** The maximum size of superseded values in memory. Beyond it, the oldest history is forgotten early. */
  readonly historyLimitBytes?: number;
  /** How often the history of etcd is compacted. 0 means never. */
  readonly compactionIntervalMs?: number;
  /** The values of `--lease-reuse-duration-seconds` and `--lease-max-object-count`. */
  readonly leaseReuseSeconds?: number;
  readonly leaseMaxObjects?: number;
  /** The values of `--etcd-healthcheck-timeout` and `--etcd-readycheck-timeout`. */
  readonly healthTimeoutMs?: number;
  readonly readyTimeoutMs?: number;
  readonly metrics?: EtcdMetrics | undefined;
  /** Called if etcd shows an older state than before: the process must restart. */
  readonly onFailure?: ((error: Error) => void) | undefined;
  /** Called for a value that cannot be read. It is skipped. */
  readonly onUnreadable?: ((resource: string) => void) | undefined;
}

const HISTORY_LIMIT_BYTES = 96 * 1024 * 1024;
/** The number of changes that are applied in one turn of the event loop. */
const PART_EVENTS = 200;
/** The maximum number of attempts of a write whose comparisons fail in etcd, but hold in the state that is read afterwards. */
const ATTEMPTS = 5;

/**
 * Opens the storage on etcd. Resolves when the objects of etcd are loaded. Throws a StorageError, and then the servers are
 * closed.
 */
export async function openEtcdStorage(options: EtcdStorageOptions): Promise<Storage> {
  const storage = new EtcdStorage(options);
  try {
    await storage.load();
  } catch (error) {
    await storage.close();
    throw error;
  }
  return storage;
}

class EtcdStorage extends HistoryStorage implements Storage {
  readonly #options: EtcdStorageOptions;
  readonly #reader: EtcdReader;
  readonly #writer: EtcdWriter;
  readonly #waits: RevisionWaits;
  readonly #health: EtcdHealth;
  readonly #stop = new AbortController();
  readonly #running = new Set<Promise<unknown>>();
  readonly #newest = new SharedRead(() => this.#readNewest());
  #closing: Promise<void> | undefined;
  #isEnded = false;

  constructor(options: EtcdStorageOptions) {
    super(options, 1);
    this.#options = options;
    const { clock, logger, servers, layout, onUnreadable, metrics } = options;
    this.#reader = new EtcdReader({ servers, layout, logger, onUnreadable, metrics });
    const { leaseReuseSeconds: reuseSeconds = 60, leaseMaxObjects: maxObjects = 1000 } = options;
    this.#writer = new EtcdWriter({
      servers,
      layout,
      clock,
      leases: new EtcdLeases({ servers, clock, reuseSeconds, maxObjects, metrics }),
      metrics,
    });
    this.#waits = new RevisionWaits(clock);
    this.#health = new EtcdHealth({
      servers,
      prefix: layout.prefix,
      healthTimeoutMs: options.healthTimeoutMs,
      readyTimeoutMs: options.readyTimeoutMs,
    });
  }

  async load(): Promise<void> {
    const { clock, logger, servers, compactionIntervalMs: intervalMs = 0 } = this.#options;
    const newest = await this.#reader.newestRevision();
    const { revision, records } = await this.#reader.oldestState(newest);
    for (const record of records) this.history.enter(record, { isCompacted: true });
    this.history.jumpTo(revision, []);
    background(this.#follow(), { logger, what: 'Following etcd' });
    await this.#waits.reached(newest, () => this.history.revision);
    if (intervalMs === 0) return;
    const { signal } = this.#stop;
    background(compactEtcd({ servers, clock, logger, intervalMs, signal }), { logger, what: 'Compacting etcd' });
  }

  #follow(): Promise<void> {
    const { clock, logger, servers } = this.#options;
    return followEtcd({
      clock,
      logger,
      servers,
      signal: this.#stop.signal,
      applied: () => this.history.revision,
      verify: async () => void (await this.#newest.get()),
      apply: (events) => this.#take(events),
      reload: () => this.#reload(),
    });
  }

  /** Applies changes. If they are many or encrypted, it applies them in parts and returns the promise of the end. */
  #take(events: readonly EtcdEvent[]): Promise<void> | undefined {
    if (events.length <= PART_EVENTS && !this.#reader.isSealed(events)) {
      this.#apply(events);
      return undefined;
    }
    return this.#takeInParts(events);
  }

  async #takeInParts(events: readonly EtcdEvent[]): Promise<void> {
    await this.#reader.unlock(events);
    for (let from = 0; from < events.length;) {
      let to = Math.min(from + PART_EVENTS, events.length);
      // The changes of one revision are shown together.
      while (to < events.length && events[to]?.revision === events[to - 1]?.revision) to += 1;
      this.#apply(events.slice(from, to));
      from = to;
      if (from < events.length) await new Promise(setImmediate);
    }
  }

  /** Shows changes to readers, sends them to watches, and then resolves the waits for them, in one turn of the event loop. */
  #apply(events: readonly EtcdEvent[]): void {
    if (this.#isEnded) return;
    assertComplete(events, this.history.revision);
    const fresh = events.filter(({ revision }) => revision > this.history.revision);
    const changes = this.#reader.recordsOf(fresh).flatMap((record) => {
      // The key was never shown, because its value could not be read.
      if (record.value === undefined && this.history.current(record.key) === undefined) return [];
      return [this.history.enter(record)];
    });
    this.history.deliver(changes);
    this.history.proceedTo(events.at(-1)?.revision ?? 0);
    this.#waits.applied(this.history.revision);
    this.#forgetCompacted(fresh);
    this.#forgetEarly();
  }

  /** Forgets what the servers on this etcd have agreed to compact. */
  #forgetCompacted(events: readonly EtcdEvent[]): void {
    const compaction = events.findLast(({ key, value }) => key === COMPACTION_KEY && value !== undefined);
    const revision = Number(compaction?.value?.toString() ?? 0);
    if (Number.isSafeInteger(revision) && revision <= this.history.revision) this.#forget(revision);
  }

  #forgetEarly(): void {
    const { historyLimitBytes = HISTORY_LIMIT_BYTES, logger } = this.#options;
    const { historyBytes, compactedRevision, revision } = this.history;
    if (historyBytes <= historyLimitBytes || this.history.isForgetting) return;
    logger.warn(
      { bytes: historyBytes },
      'History is compacted early, because its superseded values exceed their limit',
    );
    this.#forget(compactedRevision + Math.ceil((revision - compactedRevision) / 4));
  }

  #forget(revision: number): void {
    if (revision > this.history.compactedRevision)
      background(this.#forgetThrough(revision), { logger: this.#options.logger, what: 'Forgetting history' });
  }

  #forgetThrough(revision: number): Promise<void> {
    return this.history.forgetThrough(revision, {
      dropped: () => undefined,
      isStopped: () => this.#isEnded,
    });
  }

  /** Reloads all objects, because etcd has compacted changes that this server has not read. */
  async #reload(): Promise<void> {
    const { logger } = this.#options;
    const revision = await this.#newest.get();
    const before = this.history.revision;
    logger.warn({ before, revision }, 'etcd was compacted before its changes were read: all objects are loaded again');
    const records = await this.#reader.stateAt(revision, { isStart: false });
    const unlisted = new Map([...this.#currentValues()].map((one) => [one.key, one]));
    const changed = records.filter(({ key, revision: at }) => unlisted.get(key)?.revision !== at);
    for (const { key } of records) unlisted.delete(key);
    const deleted = [...unlisted.values()].map(({ key, createRevision }): LogRecord => {
      return { key, revision, createRevision, value: undefined, expiresAtMs: undefined };
    });
    this.history.jumpTo(revision, [...changed, ...deleted]);
    this.#waits.applied(revision);
  }

  *#currentValues(): Generator<StoredValue, void, undefined> {
    for (const [resource] of this.history.counts()) yield* this.history.of(resource).values();
  }

  async catchUp(): Promise<void> {
    this.assertOpen();
    await this.#waits.reached(await this.#newest.get(), () => this.history.revision);
  }

  async #readNewest(): Promise<number> {
    const before = this.history.revision;
    const newest = await this.#reader.newestRevision();
    if (newest >= before) return newest;
    const why = `etcd is at revision ${newest}, and was at ${before} before: it was restored, or is another cluster`;
    const error = new StorageError('unusable', why);
    this.#options.logger.error({ err: error }, 'etcd shows an older state than before, so the process must restart');
    this.#options.onFailure?.(error);
    throw error;
  }

  /** Returns nothing, because several servers compact one etcd (`etcd-compactor.ts`) and none of them stores the time. */
  lastCompaction(): TimedRevision | undefined {
    return undefined;
  }

  async create(key: string, value: Buffer, options: WriteOptions = {}): Promise<StoredValue> {
    return this.#put(key, value, 0, options);
  }

  async update(key: string, value: Buffer, expectedRevision: number, options: WriteOptions = {}): Promise<StoredValue> {
    return this.#put(key, value, expectedRevision, options);
  }

  async delete(
    key: string,
    expectedRevision: number,
    transactionWrites: readonly TransactionWrite[] = [],
  ): Promise<number> {
    return this.#write({ key, value: undefined, expectedRevision, expiresAtMs: undefined, transactionWrites });
  }

  async #put(key: string, value: Buffer, expectedRevision: number, options: WriteOptions): Promise<StoredValue> {
    const { expiresAtMs, transactionWrites = [] } = options;
    const before = this.history.current(key);
    const revision = await this.#write({ key, value, expectedRevision, expiresAtMs, transactionWrites });
    const stored = this.history.current(key);
    if (stored?.revision === revision) return stored;
    // The key was written again in the turn that made this value visible, or the value cannot be read.
    const createRevision = expectedRevision === 0 ? revision : (before?.createRevision ?? revision);
    return { key, value: this.history.stamped(value, revision), createRevision, revision };
  }

  /** Resolves to the revision of the write when readers see it. */
  async #write(write: EtcdWrite): Promise<number> {
    this.assertOpen();
    const running = this.#writeUntilDecided(write);
    this.#running.add(running);
    try {
      return await running;
    } finally {
      this.#running.delete(running);
    }
  }

  async #writeUntilDecided(write: EtcdWrite): Promise<number> {
    for (let attempt = 1; attempt <= ATTEMPTS; attempt += 1) {
      const { succeeded, revision } = await this.#writer.write(write);
      try {
        await this.#waits.reached(revision, () => this.history.revision);
      } catch (cause) {
        if (!succeeded) throw cause;
        throw new StorageError('unknown-outcome', 'the write was stored, but this server does not see it yet', {
          cause,
        });
      }
      if (succeeded) return revision;
      this.#assertExpected(write);
    }
    throw new StorageError('refused', `${write.key} is in etcd, but its value cannot be read`);
  }

  /** Throws the reason why the comparisons failed. Returns if none is left: keys were written again, or cannot be read. */
  #assertExpected({ key, expectedRevision, transactionWrites }: EtcdWrite): void {
    const current = this.history.current(key);
    if (expectedRevision === 0) {
      if (current !== undefined) throw new StorageError('exists', `${key} exists`, { current });
    } else {
      if (current === undefined) throw new StorageError('not-found', `${key} is gone`);
      if (current.revision !== expectedRevision)
        throw new StorageError('conflict', `${key} is at revision ${current.revision}, not ${expectedRevision}`, {
          current,
        });
    }
    for (const { key: other, value, expectedRevision: expected = 0 } of transactionWrites) {
      const isOccupied = value !== undefined && (this.history.current(other)?.revision ?? 0) !== expected;
      if (isOccupied) throw occupiedError(other);
    }
  }

  async compact(revision: number): Promise<void> {
    this.assertOpen();
    if (revision > this.history.revision) throw futureError(revision, this.history.revision);
    await compactThrough(this.#options.servers, revision);
    await this.#forgetThrough(revision);
  }

  copyTo(): Promise<void> {
    const why = 'the objects are in etcd, from which orchlet backup reads them';
    return Promise.reject(new StorageError('unusable', why));
  }

  async check(options: { readonly writes: boolean }): Promise<void> {
    this.assertOpen();
    await this.#health.check(options);
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    await Promise.allSettled(this.#running);
    this.#isEnded = true;
    this.#stop.abort();
    this.#waits.fail(new StorageError('closed', 'the storage is closed'));
    this.history.end(undefined);
    this.#options.servers.close();
  }

  protected assertOpen(): void {
    if (this.#closing !== undefined) throw new StorageError('closed', 'the storage is closed');
  }
}
