/**
 * Holds what readers of a storage see: the versions of all resources, the newest revision, the compacted revision, and the
 * watches. A storage enters what is durable and then delivers it.
 */
import type { LogRecord, Stamp } from './log-backend.ts';
import { LogWatches } from './log-watches.ts';
import type { ResourceVersions, StoredValue, StoredVersion, VersionChange } from './resource-versions.ts';
import {
  compactedError,
  futureError,
  type StorageError,
  type StorageList,
  type StorageWatch,
  type WatchObserver,
} from './storage.ts';
import { VersionStore } from './version-store.ts';

interface RevisionHistoryOptions {
  readonly firstRevision: number;
  readonly stamp: Stamp | undefined;
  /** Called with the error that the observer of a watch throws. */
  readonly watchFailed: (error: unknown, prefix: string) => void;
}

/** The number of revisions that are dropped in one turn of the event loop, which takes a few milliseconds. */
const STEP_REVISIONS = 5000;

/** Reads and changes are synchronous, so no read sees half of a change. */
export class RevisionHistory {
  readonly #versions = new VersionStore();
  readonly #watches: LogWatches;
  readonly #stamp: Stamp;
  readonly #firstRevision: number;
  #revision: number;
  #compacted: number;
  #isForgetting = false;

  constructor({ firstRevision, stamp, watchFailed }: RevisionHistoryOptions) {
    this.#firstRevision = firstRevision;
    this.#revision = firstRevision;
    this.#compacted = firstRevision;
    this.#stamp = stamp ?? ((value) => value);
    this.#watches = new LogWatches(watchFailed);
  }

  get revision(): number {
    return this.#revision;
  }

  /** Changes up to this revision are no longer kept. A watch can begin after it. */
  get compactedRevision(): number {
    return this.#compacted;
  }

  /**
   * The oldest revision whose state can be read. Nothing is stored before the first revision, so until the first compaction the
   * earlier states are known to be empty.
   */
  get oldestState(): number {
    return this.#compacted === this.#firstRevision ? 1 : this.#compacted;
  }

  /** The bytes of the history, before any compression. */
  get historyBytes(): number {
    return this.#versions.historyBytes;
  }

  /** Whether a compaction is removing old versions. */
  get isForgetting(): boolean {
    return this.#isForgetting;
  }

  counts(): Iterable<readonly [resource: string, count: number]> {
    return this.#versions.counts();
  }

  of(resource: string): ResourceVersions {
    return this.#versions.of(resource);
  }

  current(key: string): StoredVersion | undefined {
    return this.#versions.get(key);
  }

  /** Returns the value at the revision, by default the newest. Throws if the revision cannot be read. */
  get(
    key: string,
    { revision = this.#revision }: { readonly revision?: number | undefined } = {},
  ): StoredValue | undefined {
    this.#assertReadable(revision);
    return revision === this.#revision ? this.#versions.get(key) : this.#versions.getAt(revision, key);
  }

  /** Returns the values with the prefix at the revision, by default the newest, in the order of their keys. Throws as `get`. */
  list(
    prefix: string,
    options: { readonly revision?: number; readonly limit?: number; readonly startAfter?: string } = {},
  ): StorageList {
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

  /** Delivers the changes after the revision. Throws if they were compacted. */
  watch(options: { readonly prefix: string; readonly afterRevision: number }, observer: WatchObserver): StorageWatch {
    const { prefix, afterRevision } = options;
    if (afterRevision < this.#compacted) throw compactedError(afterRevision, this.#compacted);
    return this.#watches.add(prefix, afterRevision, this.#versions.after(afterRevision, prefix), observer);
  }

  /** Shows a record to readers, but not yet to watches. */
  enter(record: LogRecord, options?: { readonly isCompacted?: boolean }): VersionChange {
    const { revision, value } = record;
    this.#revision = revision;
    return this.#versions.enter(record, value === undefined ? undefined : this.stamped(value, revision), options);
  }

  /** Returns the form of a value that readers see. */
  stamped(value: Buffer, revision: number): Buffer {
    return this.#stamp(value, revision);
  }

  /** Sends the changes that were entered in this turn of the event loop to the watches. */
  deliver(changes: readonly VersionChange[]): void {
    this.#watches.deliver(changes);
  }

  /** Moves on to a revision at which nothing changed for readers. */
  proceedTo(revision: number): void {
    if (revision <= this.#revision) return;
    this.#revision = revision;
    this.#watches.proceeded();
  }

  /**
   * Enters the state at `revision`, although the changes up to it are unknown. All history is dropped: reads of the past and
   * watches that begin there throw `compacted`. `records` has the records that differ, in the order of revisions.
   */
  jumpTo(revision: number, records: readonly LogRecord[]): void {
    this.#watches.gap(revision);
    const changes = records.map((record) => this.enter(record, { isCompacted: true }));
    this.#revision = revision;
    this.#forget(revision);
    this.#watches.deliver(changes);
    this.#watches.proceeded();
  }

  /** Sets the compacted revision while the history is filled. */
  beginsAt(revision: number): void {
    this.#compacted = Math.max(this.#compacted, revision);
  }

  /**
   * Drops history in steps that yield to the event loop, because it may be long. Each step passes what it dropped to `dropped`
   * in its own turn. Stops early when `isStopped` returns true.
   */
  async forgetThrough(
    revision: number,
    { dropped, isStopped }: { dropped(changes: readonly VersionChange[]): void; isStopped(): boolean },
  ): Promise<void> {
    this.#isForgetting = true;
    while (this.#compacted < revision && !isStopped()) {
      const step = Math.min(revision, this.#compacted + STEP_REVISIONS);
      dropped(this.#forget(step));
      if (step < revision) await new Promise(setImmediate);
    }
    this.#isForgetting = false;
  }

  #forget(revision: number): readonly VersionChange[] {
    const changes = this.#versions.dropThrough(revision);
    this.#compacted = revision;
    this.#watches.compacted(revision);
    return changes;
  }

  /** Ends every watch. */
  end(error: StorageError | undefined): void {
    this.#watches.end(error);
  }

  #assertReadable(revision: number): void {
    if (revision > this.#revision) throw futureError(revision, this.#revision);
    if (revision < this.oldestState) throw compactedError(revision, this.#compacted);
  }
}
