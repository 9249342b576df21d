/**
 * Opens the embedded storage: a revision log whose records a worker thread keeps in `<directory>/orchlet.db`. One process at a
 * time may open it, and `<directory>/orchlet.db.pid` contains its id.
 */
import type { Logger } from '../../../api/component/logger.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import type { LogBackend, LogMarks, LogRecord, Stamp } from '../log-backend.ts';
import { RevisionLog } from '../revision-log.ts';
import { StorageError, type Storage } from '../storage.ts';
import { type LogPage, type RecordColumns, type RecordMark, storedValues } from '../stored-log.ts';
import { plainValues, type ValueTransformer } from '../value-transformer.ts';
import { GroupEnds } from './group-ends.ts';
import { type Loaded, openingOptions, StorageThread } from './storage-thread.ts';

/** The size of a page that has every record of one commit, encryption included. */
const GROUP_BYTES = 16 * 1024 * 1024;

interface SqliteStorageOptions {
  readonly directory: string;
  /** A thread that was started before. It has opened nothing yet, or this database. By default, one is started. */
  readonly thread?: StorageThread | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
  /**
   * Writes the revision into a value. A watch cache needs `stampRevision` of `object-bytes.ts`. Without it, values stay
   * unchanged.
   */
  readonly stamp?: Stamp;
  /** The maximum size of the file. Writes beyond it are refused as on a full disk. */
  readonly sizeLimitBytes?: number;
  /** The space on the disk that is reserved, so that compaction works on a full disk. There is no reserve if it is absent. */
  readonly reserveBytes?: number;
  /** Encrypts and decrypts values at rest. */
  readonly transformer?: ValueTransformer;
  readonly historyLimitBytes?: number;
  /**
   * Called once if the outcome of a commit is unknown or the worker thread is lost. The storage writes nothing more, and the
   * process should exit.
   */
  readonly onFailure?: (error: Error) => void;
  /** Called when a watch failed and was closed. */
  readonly onWatchFailed?: (resource: string) => void;
}

/**
 * Opens the storage. Throws a StorageError `locked` (another process has the directory) or `unusable`, with a message for the
 * operator.
 */
export async function openSqliteStorage(options: SqliteStorageOptions): Promise<Storage> {
  const { directory, clock, logger, stamp, transformer = plainValues, historyLimitBytes, onFailure } = options;
  const thread = options.thread ?? new StorageThread();
  const loaded = await thread.open(openingOptions(directory, options));
  const backend = new SqliteBackend(thread, transformer);
  const log = new RevisionLog({
    clock,
    logger,
    backend,
    stamp,
    onFailure,
    onWatchFailed: options.onWatchFailed,
    ...(historyLimitBytes === undefined ? {} : { historyLimitBytes }),
  });
  const garbage = await openRecords(backend, loaded, transformer, (records) => [
    ...log.load(records, loaded.marks.compactedRevision),
  ]);
  log.loaded(loaded.marks);
  if (garbage.length > 0)
    log.discard(garbage).catch((error: unknown) => {
      logger.debug({ err: error }, 'Old revisions were not removed yet');
    });
  return log;
}

/** Decrypts and loads the records. A value that cannot be decrypted fails the start, so that it is not overwritten. */
async function openRecords(
  backend: SqliteBackend,
  { chunks }: Loaded,
  transformer: ValueTransformer,
  load: (records: Iterable<LogRecord>) => number[],
): Promise<number[]> {
  try {
    await transformer.unlock(chunks.values().flatMap(storedValues));
    return load(openedRecords(chunks, transformer));
  } catch (error) {
    await backend.close();
    throw new StorageError('unusable', errorMessage(error), { cause: error });
  }
}

function* openedRecords(chunks: RecordColumns[], transformer: ValueTransformer): Generator<LogRecord, void, undefined> {
  for (const record of recordsOf(chunks)) {
    const { key, value } = record;
    if (value === undefined) yield record;
    else {
      const opened = transformer.open(key, value);
      yield opened === value ? record : { ...record, value: opened };
    }
  }
}

class SqliteBackend implements LogBackend {
  readonly #thread: StorageThread;
  readonly #ends = new GroupEnds();
  readonly #transformer: ValueTransformer;

  constructor(thread: StorageThread, transformer: ValueTransformer) {
    this.#thread = thread;
    this.#transformer = transformer;
  }

  async append(records: readonly LogRecord[]): Promise<void> {
    const columns = columnsOf(records.map((record) => this.#sealed(record)));
    await this.#thread.ask((id) => ({ type: 'append', id, records: columns }), [columns.values]);
    const last = columns.revisions.at(-1);
    if (last !== undefined) this.#ends.add(last);
  }

  #sealed(record: LogRecord): LogRecord {
    const { key, value } = record;
    if (value === undefined) return record;
    let sealed: Buffer;
    try {
      sealed = this.#transformer.seal(key, value);
    } catch (cause) {
      const why = errorMessage(cause);
      throw new StorageError('refused', `${key} cannot be encrypted: ${why}`, { cause });
    }
    return sealed === value ? record : { ...record, value: sealed };
  }

  async remove(marks: LogMarks, revisions: readonly number[]): Promise<void> {
    await this.#thread.ask((id) => ({ type: 'remove', id, marks, revisions }));
  }

  async probe(lastRevision: number): Promise<void> {
    await this.#thread.ask((id) => ({ type: 'probe', id, lastRevision }));
  }

  async ping(): Promise<void> {
    await this.#thread.ask((id) => ({ type: 'ping', id }));
  }

  async read(after: number, limitBytes: number): Promise<LogPage> {
    const read = async (limit: number): Promise<LogPage> =>
      (await this.#thread.ask((id) => ({ type: 'read', id, after, limitBytes: limit }))) as LogPage;
    const page = this.#ends.trimmed(await read(limitBytes));
    if (page !== undefined) return page;
    return this.#ends.firstOf(await read(GROUP_BYTES));
  }

  async has(mark: RecordMark): Promise<boolean> {
    return (await this.#thread.ask((id) => ({ type: 'has', id, mark }))) as boolean;
  }

  async copyTo(file: string): Promise<void> {
    await this.#thread.ask((id) => ({ type: 'copy', id, file }));
  }

  onLost(listener: (error: Error) => void): void {
    this.#thread.onLost(listener);
  }

  onTrouble(listener: (problem: string | undefined) => void): void {
    this.#thread.onTrouble(listener);
  }

  close(): Promise<void> {
    return this.#thread.close();
  }
}

function columnsOf(records: readonly LogRecord[]): RecordColumns {
  let size = 0;
  for (const record of records) size += record.value?.length ?? 0;
  const values = new ArrayBuffer(size);
  const bytes = Buffer.from(values);
  let offset = 0;
  for (const { value } of records) {
    if (value !== undefined) offset += value.copy(bytes, offset);
  }
  return {
    revisions: records.map((record) => record.revision),
    keys: records.map((record) => record.key),
    createRevisions: records.map((record) => record.createRevision),
    expiries: records.map((record) => record.expiresAtMs ?? 0),
    lengths: records.map((record) => record.value?.length ?? -1),
    values,
  };
}

/** Yields the records of loaded chunks, and releases each chunk after its last record. */
function* recordsOf(chunks: RecordColumns[]): Generator<LogRecord, void, undefined> {
  for (let chunk = chunks.shift(); chunk !== undefined; chunk = chunks.shift()) {
    const { revisions, keys, createRevisions, expiries, lengths, values } = chunk;
    let offset = 0;
    for (const [at, revision] of revisions.entries()) {
      const length = lengths[at] ?? -1;
      // The value is copied, because a slice would keep the whole chunk in memory.
      const value = length < 0 ? undefined : Buffer.from(Buffer.from(values, offset, length));
      offset += Math.max(0, length);
      const expiresAtMs = expiries[at] === 0 ? undefined : expiries[at];
      yield { revision, key: keys[at] ?? '', value, createRevision: createRevisions[at] ?? revision, expiresAtMs };
    }
  }
}
