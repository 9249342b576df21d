/**
 * Reads the state of an etcd cluster and converts keys and values of kube-apiserver to records of this project.
 *
 * Keys of other programs and of unknown resources are ignored. A value that cannot be read is logged, counted and skipped, so
 * that one object does not stop the server. Only at the start, a value that cannot be decrypted is an error: with a wrong key,
 * every object would be missing.
 */
import type { Logger } from '../../../api/component/logger.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import type { LogRecord } from '../log-backend.ts';
import { isStorageError, StorageError } from '../storage.ts';
import { isSealed, type ValueTransformer } from '../value-transformer.ts';
import { resourceOf } from '../version-store.ts';
import { endOf } from './etcd-interface.ts';
import type { EtcdMetrics, EtcdOperation } from './etcd-metrics.ts';
import type { EtcdServers } from './etcd-servers.ts';
import type { EtcdEvent } from './etcd-watch.ts';
import type { EtcdKeys } from './keys.ts';
import type { EtcdValues } from './values.ts';

/** The form of keys and values in etcd. */
export interface EtcdValueLayout {
  /** `/registry`, without a slash at its end. */
  readonly prefix: string;
  readonly keys: EtcdKeys;
  readonly values: EtcdValues;
  /** Encrypts and decrypts the values of etcd, with its keys as their contexts. */
  readonly transformer: ValueTransformer;
}

interface EtcdReaderOptions {
  readonly servers: Pick<EtcdServers, 'run' | 'watch'>;
  readonly layout: EtcdValueLayout;
  readonly logger: Logger;
  readonly onUnreadable: ((resource: string) => void) | undefined;
  readonly metrics?: EtcdMetrics | undefined;
}

interface EtcdState {
  readonly revision: number;
  /** The records in the order of revisions. */
  readonly records: readonly LogRecord[];
}

/** The number of keys that one request reads, with their values. */
const PAGE = 250;
/** How many revisions a server reads from etcd's history when it starts, so that watches continue from before. */
const HISTORY_REVISIONS = 10_000;
/** The number of states that the start tries to read, because etcd may compact each of them before it is read. */
const ATTEMPTS = 5;
/** The maximum number of unknown resources that are logged. */
const LOGGED_RESOURCES = 100;

/** Reads etcd. Its errors are `StorageError`s. */
export class EtcdReader {
  readonly #servers: Pick<EtcdServers, 'run' | 'watch'>;
  readonly #layout: EtcdValueLayout;
  readonly #logger: Logger;
  readonly #onUnreadable: ((resource: string) => void) | undefined;
  readonly #metrics: EtcdMetrics | undefined;
  readonly #unknown = new Set<string>();

  constructor({ servers, layout, logger, onUnreadable, metrics }: EtcdReaderOptions) {
    this.#metrics = metrics;
    this.#servers = servers;
    this.#layout = layout;
    this.#logger = logger;
    this.#onUnreadable = onUnreadable;
  }

  /** Resolves to the newest revision that a majority of the members has. */
  async newestRevision(): Promise<number> {
    const key = Buffer.from(`${this.#layout.prefix}/health`);
    const read = () => this.#servers.run((rpc, options) => rpc.call('range', { key, countOnly: true }, options));
    const { header } = await this.#measured('get', read);
    return header?.revision ?? 0;
  }

  #measured<T>(operation: EtcdOperation, request: () => Promise<T>): Promise<T> {
    return this.#metrics === undefined ? request() : this.#metrics.measure(operation, '', request);
  }

  /**
   * Reads the oldest state from which all changes up to `newest` can be followed, at most `HISTORY_REVISIONS` before it. Throws
   * `compacted` if etcd is compacted again during each attempt.
   */
  async oldestState(newest: number): Promise<EtcdState> {
    let revision = Math.max(1, newest - HISTORY_REVISIONS);
    for (let attempt = 1; ; attempt += 1) {
      try {
        return { revision, records: await this.stateAt(revision, { isStart: true }) };
      } catch (error) {
        if (!isStorageError(error, 'compacted') || attempt === ATTEMPTS) throw error;
        revision = await this.#compactedRevision(revision);
      }
    }
  }

  /**
   * Reads all objects as they were at a revision. Throws `compacted`, and with `isStart` also `unusable` for a value that
   * cannot be decrypted.
   */
  async stateAt(revision: number, { isStart }: { readonly isStart: boolean }): Promise<LogRecord[]> {
    const records: LogRecord[] = [];
    for await (const page of this.#pages(revision)) {
      await this.unlock(page);
      for (const event of page) {
        const record = this.#recordOf(event, { isStart });
        if (record !== undefined) records.push(record);
      }
    }
    return records.sort((a, b) => a.revision - b.revision);
  }

  /** Whether `unlock` has to be called before `recordsOf`. */
  isSealed(events: readonly EtcdEvent[]): boolean {
    return events.some(({ value }) => value !== undefined && isSealed(value));
  }

  /** Fetches the keys of encrypted values. */
  async unlock(events: readonly EtcdEvent[]): Promise<void> {
    const values = events.flatMap(({ key: etcdKey, value }) => {
      const key = value === undefined ? undefined : this.#keyOf(etcdKey);
      return key === undefined || value === undefined ? [] : [{ key, value }];
    });
    await this.#layout.transformer.unlock(values);
  }

  /** Converts changes of etcd. Leaves out keys that are not of objects, and values that cannot be read. */
  recordsOf(events: readonly EtcdEvent[]): LogRecord[] {
    return events.flatMap((event) => this.#recordOf(event, { isStart: false }) ?? []);
  }

  #recordOf(event: EtcdEvent, { isStart }: { readonly isStart: boolean }): LogRecord | undefined {
    const key = this.#keyOf(event.key);
    if (key === undefined) return undefined;
    const { revision, createRevision } = event;
    if (event.value === undefined) return { key, revision, createRevision, value: undefined, expiresAtMs: undefined };
    try {
      const opened = this.#open(key, event.key, event.value);
      return { key, revision, createRevision, value: this.#layout.values.fromEtcd(opened), expiresAtMs: undefined };
    } catch (error) {
      if (isStart && isStorageError(error, 'unusable')) throw error;
      this.#logger.error({ err: error, key: event.key }, 'A value in etcd cannot be read and is skipped');
      this.#onUnreadable?.(resourceOf(key));
      return undefined;
    }
  }

  #open(key: string, etcdKey: string, value: Buffer): Buffer {
    try {
      return this.#layout.transformer.open(key, value, etcdKey);
    } catch (error) {
      throw new StorageError('unusable', errorMessage(error), { cause: error });
    }
  }

  /** Returns `undefined` for a key that is not of an object of a known resource. */
  #keyOf(etcdKey: string): string | undefined {
    const { prefix, keys } = this.#layout;
    if (!etcdKey.startsWith(`${prefix}/`)) return undefined;
    try {
      return keys.fromEtcd(etcdKey);
    } catch (error) {
      const resource = etcdKey.slice(prefix.length + 1).split('/', 1)[0] ?? '';
      if (!this.#unknown.has(resource) && this.#unknown.size < LOGGED_RESOURCES) {
        this.#unknown.add(resource);
        this.#logger.warn({ err: error, key: etcdKey }, 'Keys of an unknown resource in etcd are ignored');
      }
      return undefined;
    }
  }

  async *#pages(revision: number): AsyncGenerator<readonly EtcdEvent[], void, undefined> {
    const { prefix } = this.#layout;
    let key = Buffer.from(`${prefix}/`);
    const rangeEnd = endOf(`${prefix}/`);
    for (;;) {
      const request = { key, rangeEnd, limit: PAGE, revision };
      const read = () => this.#servers.run((rpc, options) => rpc.call('range', request, options));
      const { kvs, more } = await this.#measured('list', read);
      yield kvs.map((kv) => ({
        key: kv.key.toString(),
        value: kv.value,
        createRevision: kv.createRevision,
        revision: kv.modRevision,
      }));
      const last = kvs.at(-1);
      if (!more || last === undefined) return;
      key = Buffer.concat([last.key, Buffer.alloc(1)]);
    }
  }

  /**
   * Finds out the compacted revision, which only the error of a watch contains. Resolves to `revision` if the member in use now
   * has not compacted it, unlike the member that reported it as compacted.
   */
  async #compactedRevision(revision: number): Promise<number> {
    const stop = new AbortController();
    let compacted = 0;
    const request = { key: Buffer.alloc(1), rangeEnd: Buffer.alloc(0), startRevision: revision };
    await this.#servers.watch(
      request,
      (response) => {
        // A member that sends events has not compacted the revision.
        if (!response.canceled && response.events.length === 0) return;
        compacted = response.compactRevision;
        stop.abort();
      },
      stop.signal,
    );
    return Math.max(revision, compacted);
  }
}
