/** Reads the rows of the log and its marks. It runs in the worker. */
import type { LogPage, RecordColumns, RecordMark } from '../stored-log.ts';
import type Database from 'better-sqlite3';
import type { LogMarks } from '../log-backend.ts';
import { StorageError } from '../storage.ts';
import { isRevision, isWhole, type Row } from './database-format.ts';

/** The bytes of values after which a load yields a chunk. */
const LOAD_BYTES = 2 * 1024 * 1024;
/** The maximum number of records of a page, because small records cost time, too. */
const PAGE_RECORDS = 4000;

/** A row as the file has it, before its types are checked. */
type StoredRow = Readonly<Record<keyof Row, unknown>>;

/** Reads an open database. Throws `StorageError` for a row that is damaged. */
export class LogRows {
  readonly #database: Database.Database;
  readonly #file: string;
  readonly #after: Database.Statement<[number, number], StoredRow>;
  readonly #checksum: Database.Statement;
  readonly #compacted: Database.Statement;

  /** `file` is named in errors. */
  constructor(database: Database.Database, file: string) {
    this.#database = database;
    this.#file = file;
    this.#after = database.prepare('SELECT * FROM log WHERE revision > ? ORDER BY revision LIMIT ?');
    this.#checksum = database.prepare('SELECT checksum FROM log WHERE revision = ?').pluck();
    this.#compacted = database.prepare("SELECT revision FROM mark WHERE name = 'compacted'").pluck();
  }

  /** Yields all records in groups of about two megabytes. */
  *all(): Generator<RecordColumns, void, undefined> {
    let rows: Row[] = [];
    let bytes = 0;
    for (const row of this.#verified(
      this.#database.prepare<[], StoredRow>('SELECT * FROM log ORDER BY revision').iterate(),
    )) {
      rows.push(row);
      bytes += sizeOf(row);
      if (bytes < LOAD_BYTES) continue;
      yield columnsOf(rows);
      rows = [];
      bytes = 0;
    }
    if (rows.length > 0) yield columnsOf(rows);
  }

  /** Returns the records after a revision, up to `limitBytes` and `PAGE_RECORDS`, and at least one if there is one. */
  page(after: number, limitBytes: number): LogPage {
    const rows: Row[] = [];
    let bytes = 0;
    for (const row of this.#verified(this.#after.iterate(after, PAGE_RECORDS))) {
      bytes += sizeOf(row);
      if (rows.length > 0 && bytes > limitBytes) break;
      rows.push(row);
    }
    return { records: columnsOf(rows), compactedRevision: Number(this.#compacted.get()) };
  }

  /** Whether the log has this very record. */
  has({ revision, checksum }: RecordMark): boolean {
    return this.#checksum.get(revision) === checksum;
  }

  /** Returns the revision and the checksum of the newest record. */
  newest(): RecordMark | undefined {
    return this.#database
      .prepare<[], RecordMark>('SELECT revision, checksum FROM log ORDER BY revision DESC LIMIT 1')
      .get();
  }

  /** Returns the revisions of the records that a compaction makes obsolete, in order. */
  obsolete(compactedRevision: number): number[] {
    return this.#database
      .prepare<[number, number], number>(
        `SELECT revision FROM log WHERE revision <= ? AND (value IS NULL OR revision NOT IN
           (SELECT max(revision) FROM log WHERE revision <= ? GROUP BY key)) ORDER BY revision`,
      )
      .pluck()
      .all(compactedRevision, compactedRevision) as number[];
  }

  /** Returns the marks. Throws `unusable` if one is invalid, or if one other than the last compaction is missing. */
  marks(): LogMarks {
    const select = this.#database.prepare<[string], unknown>('SELECT revision FROM mark WHERE name = ?').pluck();
    const read = (value: unknown): number => {
      if (isRevision(value)) return value;
      throw new StorageError('unusable', `${this.#file} has an invalid revision; restore it from a backup`);
    };
    const newest = read(this.newest()?.revision ?? 0);
    // A database of an earlier version has no time of the last compaction.
    const [revision, atMs] = [select.get('last-compaction'), select.get('last-compaction-ms')];
    return {
      compactedRevision: read(select.get('compacted')),
      lastRevision: Math.max(newest, read(select.get('last'))),
      lastCompaction:
        revision === undefined || atMs === undefined ? undefined : { revision: read(revision), atMs: read(atMs) },
    };
  }

  *#verified(rows: Iterable<StoredRow>): Generator<Row, void, undefined> {
    try {
      for (const row of rows) {
        if (!isWhole(row)) {
          throw new StorageError(
            'unusable',
            `${this.#file} is damaged at revision ${String(row.revision)}; restore it from a backup`,
          );
        }
        yield row;
      }
    } catch (error) {
      if (error instanceof StorageError) throw error;
      throw new StorageError('unusable', `${this.#file} is damaged; restore it from a backup`, { cause: error });
    }
  }
}

const sizeOf = (row: Row): number => (row.value?.length ?? 0) + row.key.length;

function columnsOf(rows: readonly Row[]): RecordColumns {
  const values = Buffer.concat(rows.map((row) => row.value ?? Buffer.alloc(0)));
  return {
    revisions: rows.map((row) => row.revision),
    keys: rows.map((row) => row.key),
    createRevisions: rows.map((row) => row.created),
    expiries: rows.map((row) => row.expires),
    lengths: rows.map((row) => row.value?.length ?? -1),
    values: exactBuffer(values),
  };
}

/** Returns a buffer that can be transferred, because it shares its memory with no other. */
function exactBuffer(bytes: Buffer): ArrayBuffer {
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer;
}
