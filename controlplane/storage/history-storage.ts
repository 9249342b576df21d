/**
 * Implements the reads and watches of a storage whose state is a `RevisionHistory`: the revision log over a local backend, and
 * the storage on etcd. The two differ in what fills the history, and in their writes.
 */
import type { Logger } from '../../api/component/logger.ts';
import type { Stamp } from './log-backend.ts';
import type { ResourceVersions, StoredValue } from './resource-versions.ts';
import { RevisionHistory } from './revision-history.ts';
import type { StorageList, StorageWatch, WatchObserver } from './storage.ts';

/** The options that both storages have. */
export interface HistoryStorageOptions {
  readonly logger: Logger;
  readonly stamp?: Stamp | undefined;
  /** Called when a watch failed and was closed. `resource` is a prefix of keys (`/core/pods/`). */
  readonly onWatchFailed?: ((resource: string) => void) | undefined;
}

/** Implements reads, watches and the closing of watches; subclasses add writes. */
export abstract class HistoryStorage {
  protected readonly history: RevisionHistory;
  readonly #logger: Logger;
  readonly #onWatchFailed: ((resource: string) => void) | undefined;

  protected constructor({ logger, stamp, onWatchFailed }: HistoryStorageOptions, firstRevision: number) {
    this.#logger = logger;
    this.#onWatchFailed = onWatchFailed;
    this.history = new RevisionHistory({
      firstRevision,
      stamp,
      watchFailed: (error, resource) => this.watchFailed(error, resource),
    });
  }

  /** Throws `closed` once `close` was called. */
  protected abstract assertOpen(): void;

  revision(): number {
    return this.history.revision;
  }

  compactedRevision(): number {
    return this.history.compactedRevision;
  }

  oldestState(): number {
    return this.history.oldestState;
  }

  counts(): Iterable<readonly [resource: string, count: number]> {
    return this.history.counts();
  }

  async open(resource: string): Promise<ResourceVersions> {
    this.assertOpen();
    return this.history.of(resource);
  }

  /** Returns the value at the revision, by default the newest. Throws if the revision cannot be read. */
  async get(key: string, options?: { readonly revision?: number }): Promise<StoredValue | undefined> {
    this.assertOpen();
    return this.history.get(key, options);
  }

  async list(
    prefix: string,
    options?: { readonly revision?: number; readonly limit?: number; readonly startAfter?: string },
  ): Promise<StorageList> {
    this.assertOpen();
    return this.history.list(prefix, options);
  }

  watch(options: { readonly prefix: string; readonly afterRevision: number }, observer: WatchObserver): StorageWatch {
    this.assertOpen();
    return this.history.watch(options, observer);
  }

  watchFailed(error: unknown, resource: string): void {
    this.#logger.error({ err: error, resource }, 'A watch of the storage failed and is closed');
    this.#onWatchFailed?.(resource);
  }
}
