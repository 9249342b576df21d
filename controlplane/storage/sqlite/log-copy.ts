/**
 * Owns the copy of another control plane's log, which a standby keeps in `<directory>/orchlet.db`. The records have the same
 * revisions and stored bytes as there, and nothing of them is held in memory. At a promotion the copy becomes a storage.
 */
import { join } from 'node:path';
import { type LogMarks, marksAfterLeap } from '../log-backend.ts';
import { type RecordColumns, type RecordMark, recordsBetween } from '../stored-log.ts';
import { checksumOf } from './row-checksum.ts';
import { LOG_FILE, StorageThread } from './storage-thread.ts';

/** An open copy. Methods reject with `StorageError`. */
export class LogCopy {
  readonly #thread: StorageThread;
  #lastRevision: number;
  #newest: RecordMark | undefined;
  #compactedRevision: number;

  private constructor(thread: StorageThread, marks: LogMarks, newest: RecordMark | undefined) {
    this.#thread = thread;
    this.#lastRevision = marks.lastRevision;
    this.#compactedRevision = marks.compactedRevision;
    this.#newest = newest;
  }

  /** Opens or creates the copy. Throws as `openSqliteStorage` does. */
  static async open(directory: string): Promise<LogCopy> {
    const file = join(directory, LOG_FILE);
    const thread = new StorageThread();
    const { marks, newest } = await thread.open({
      file,
      lockFile: `${file}.pid`,
      sizeLimitBytes: 0,
      reserveBytes: 0,
      sendsRecords: false,
    });
    return new LogCopy(thread, marks, newest);
  }

  /** The copy has all records up to this revision that it has not compacted. */
  get lastRevision(): number {
    return this.#lastRevision;
  }

  get newest(): RecordMark | undefined {
    return this.#newest;
  }

  onLost(listener: (error: Error) => void): void {
    this.#thread.onLost(listener);
  }

  /** Appends the records that are newer than the copy. They are durable when the promise resolves. */
  async append(records: RecordColumns): Promise<void> {
    const from = records.revisions.findIndex((revision) => revision > this.#lastRevision);
    const newest = newestOf(records);
    if (from < 0 || newest === undefined) return;
    const newer = recordsBetween(records, from);
    await this.#thread.ask((id) => ({ type: 'append', id, records: newer }));
    this.#newest = newest;
    this.#lastRevision = newest.revision;
  }

  /** Called when the original has no records between the newest one of the copy and this revision. */
  proceedTo(revision: number): void {
    this.#lastRevision = Math.max(this.#lastRevision, revision);
  }

  /** Removes what the original compacted. Does nothing before the copy has all records up to the compacted revision. */
  async compact({ compactedRevision, lastCompaction }: Omit<LogMarks, 'lastRevision'>): Promise<void> {
    if (compactedRevision <= this.#compactedRevision || compactedRevision > this.#lastRevision) return;
    const marks = { compactedRevision, lastRevision: this.#lastRevision, lastCompaction };
    await this.#thread.ask((id) => ({ type: 'compact', id, marks }));
    this.#compactedRevision = compactedRevision;
  }

  /** Makes the next revision one that no client of the original has seen. */
  async leap(): Promise<void> {
    const marks = marksAfterLeap(this.#lastRevision);
    // A removal stores the marks in any case; here it removes no records.
    await this.#thread.ask((id) => ({ type: 'remove', id, marks, revisions: [] }));
    this.#lastRevision = marks.lastRevision;
  }

  close(): Promise<void> {
    return this.#thread.close();
  }
}

function newestOf({ revisions, keys, lengths, values }: RecordColumns): RecordMark | undefined {
  const revision = revisions.at(-1);
  if (revision === undefined) return undefined;
  const length = lengths.at(-1) ?? -1;
  const value = length < 0 ? null : Buffer.from(values, values.byteLength - length, length);
  return { revision, checksum: checksumOf(keys.at(-1) ?? '', value) };
}
