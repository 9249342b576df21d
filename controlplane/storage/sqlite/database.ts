/**
 * Owns the SQLite file of the storage: its format, opening it or refusing it, and the statements. It has one table of records
 * in the order of revisions and no index besides, so that a small write changes few pages.
 */
import { errorMessage } from '../../../api/meta/error-message.ts';
import type { LogPage, RecordColumns, RecordMark } from '../stored-log.ts';
import { chmodSync, closeSync, openSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import Database from 'better-sqlite3';
import { isDiskFull } from '../../../api/machinery/disk-full.ts';
import { makeFolderSync } from '../../../api/machinery/replace-file.ts';
import { StorageError } from '../storage.ts';
import type { LogMarks } from '../log-backend.ts';
import { checkFormat, createFormat, PAGE_BYTES } from './database-format.ts';
import { LogRows } from './log-rows.ts';
import type { DatabaseOptions } from './protocol.ts';
import { DiskReserve, isOutOfRoom } from './disk-reserve.ts';
import { DiskRoom } from './disk-room.ts';
import { LogSpace } from './log-space.ts';
import { checksumOf } from './row-checksum.ts';
import { codeOf } from './sqlite-errors.ts';
import { refuseDamagedLog, removeIncompleteTail } from './write-ahead-log.ts';

/**
 * The size to which the write-ahead log is truncated after a checkpoint. It is at least twice the size at which a checkpoint
 * begins.
 */
const LOG_BYTES = 16 * 1024 * 1024;
/** The sizes of the header of the write-ahead log, and of a page in it with its own header. */
const LOG_HEADER_BYTES = 32;
const LOG_FRAME_BYTES = 24 + PAGE_BYTES;
/** The number of pages by which the log grows after a failed checkpoint, before the next attempt is made. */
const RETRY_PAGES = 100;
/** The number of pages by which deletions may grow a database on a full disk: enough for about 40,000 deletions. */
const DELETION_PAGES = 1000;
/** The number of pages that a copy writes in one step: 400 KB, which takes about a millisecond. */
const COPY_STEP_PAGES = 100;
/** The number of records that one transaction of a compaction removes. */
const REMOVED_RECORDS = 1000;

/**
 * The open database. All methods but `copyTo` are synchronous. They throw the error of SQLite, and a StorageError for damaged
 * rows (`unusable`) and for a full disk (`full`).
 */
export interface LogDatabase {
  /** The marks as they were when the database was opened. */
  readonly marks: LogMarks;
  load(): Generator<RecordColumns, void, undefined>;
  /** Returns the records after a revision, up to `limitBytes` and at least one if there is one. */
  read(after: number, limitBytes: number): LogPage;
  has(mark: RecordMark): boolean;
  /** Returns the newest record, or `undefined` if there is none. */
  newest(): RecordMark | undefined;
  append(records: RecordColumns): void;
  remove(marks: LogMarks, revisions: readonly number[]): void;
  /** Finds and removes the records that a compaction up to the `compactedRevision` of the marks makes obsolete. */
  compact(marks: LogMarks): void;
  /** Writes the newest revision again to find out whether writes succeed. Throws `full` also if only deletions have room. */
  probe(lastRevision: number): void;
  /** Copies the database to another file, which must not exist. Yields to the event loop between steps. */
  copyTo(file: string): Promise<void>;
  /** Runs a checkpoint if the write-ahead log is long. Returns whether it ran one. */
  checkpointIfLong(): boolean;
  /** Allocates space of the write-ahead log for the next commits. */
  renewLogSpace(): void;
  close(): void;
}

/**
 * Opens or creates the database, and locks it until it is closed or the process exits. Throws a `StorageError` if it cannot be
 * opened and written.
 */
export function openDatabase(options: DatabaseOptions): LogDatabase {
  makeDirectory(dirname(options.file));
  let database: Database.Database | undefined;
  try {
    const log = refuseDamagedLog(`${options.file}-wal`);
    database = new Database(options.file, { timeout: 0 });
    // The file contains secrets. SQLite creates the write-ahead log with the same mode.
    chmodSync(options.file, 0o600);
    // The lock is held from the first access until the database is closed or the process exits for any reason.
    database.pragma('locking_mode = EXCLUSIVE');
    lockAndCheckFormat(database, options.file);
    configure(database);
    createFormat(database);
    if (log.hasIncompleteTail) removeIncompleteTail(`${options.file}-wal`);
    const reserve = new DiskReserve(`${options.file}.reserve`, options.reserveBytes);
    writeHolder(options.lockFile);
    return new SqliteLog(database, options.file, new DiskRoom(database, reserve, options.sizeLimitBytes));
  } catch (error) {
    database?.close();
    throw openError(error, options);
  }
}

function makeDirectory(directory: string): void {
  try {
    makeFolderSync(directory, 0o700);
  } catch (error) {
    const code = codeOf(error);
    const why = code === 'EEXIST' || code === 'ENOTDIR' ? 'is not a directory' : `cannot be made (${code})`;
    throw new StorageError('unusable', `the data directory ${directory} ${why}`, { cause: error });
  }
}

/** Takes the write lock, and checks the format. */
function lockAndCheckFormat(database: Database.Database, file: string): void {
  database.exec('BEGIN IMMEDIATE; COMMIT');
  checkFormat(database, file);
}

function configure(database: Database.Database): void {
  if (Number(database.pragma('page_count', { simple: true })) === 0) {
    database.pragma(`page_size = ${PAGE_BYTES}`);
    database.pragma('auto_vacuum = INCREMENTAL');
  }
  database.pragma('journal_mode = WAL');
  database.pragma('synchronous = FULL');
  // Checkpoints run after the response to a commit, because they would delay it.
  database.pragma('wal_autocheckpoint = 0');
  database.pragma(`journal_size_limit = ${LOG_BYTES}`);
  database.pragma('cache_size = -4096');
  // SQLite overwrites deleted content in pages that it writes anyway, because the content may be a secret in plain text.
  database.pragma('secure_delete = FAST');
}

function openError(error: unknown, options: DatabaseOptions): StorageError {
  if (error instanceof StorageError) return error;
  const { file } = options;
  const refuse = (why: string): StorageError => new StorageError('unusable', `${file} ${why}`, { cause: error });
  const code = codeOf(error);
  if (code.startsWith('SQLITE_BUSY') || code.startsWith('SQLITE_LOCKED')) {
    const holder = readHolder(options.lockFile);
    const message = `the data directory ${dirname(file)} is in use by ${holder === '' ? 'another process' : `process ${holder}`}`;
    return new StorageError('locked', message, { cause: error });
  }
  if (code === 'SQLITE_NOTADB') return refuse('is not an SQLite database');
  if (code.startsWith('SQLITE_CORRUPT')) return refuse('is damaged; restore it from a backup');
  if (code.startsWith('SQLITE_READONLY') || code === 'EACCES' || code === 'EROFS') return refuse('is not writable');
  if (code.startsWith('SQLITE_CANTOPEN')) return refuse('cannot be opened; is the directory writable?');
  const isFull = code === 'SQLITE_FULL' || isDiskFull(error);
  if (isFull || (code === 'SQLITE_IOERR_WRITE' && isOutOfRoom(`${file}.probe`)))
    return refuse('cannot be opened: the disk is full');
  return refuse(`cannot be opened: ${errorMessage(error)}`);
}

function writeHolder(lockFile: string): void {
  try {
    // The new file belongs to the user of this process, as commands that signal it demand, and is no link.
    rmSync(lockFile, { force: true });
    writeFileSync(lockFile, `${process.pid}\n`, { flag: 'wx', mode: 0o644 });
  } catch (error) {
    // The file only names this process in the error of another one. A full disk must not prevent the start.
    if (!isDiskFull(error)) throw error;
  }
}

function readHolder(lockFile: string): string {
  try {
    return readFileSync(lockFile, 'utf8').trim();
  } catch {
    // The other process holds the database but has not written its id yet.
    return '';
  }
}

class SqliteLog implements LogDatabase {
  readonly #database: Database.Database;
  readonly #rows: LogRows;
  readonly #room: DiskRoom;
  readonly #logSpace: LogSpace;
  readonly #insert: Database.Statement;
  readonly #delete: Database.Statement;
  readonly #mark: Database.Statement;
  /**
   * Counts the pages of a log that the previous process left, because a process that is killed repeatedly would never run a
   * checkpoint.
   */
  #pagesSinceCheckpoint: number;
  #hasCheckpointFailed = false;
  readonly marks: LogMarks;

  constructor(database: Database.Database, file: string, room: DiskRoom) {
    this.#database = database;
    this.#room = room;
    this.#logSpace = new LogSpace(`${file}-wal`);
    this.#pagesSinceCheckpoint = (statSync(`${file}-wal`, { throwIfNoEntry: false })?.size ?? 0) / PAGE_BYTES;
    this.#insert = database.prepare('INSERT INTO log VALUES (?, ?, ?, ?, ?, ?)');
    this.#delete = database.prepare('DELETE FROM log WHERE revision = ?');
    this.#mark = database.prepare('INSERT OR REPLACE INTO mark (revision, name) VALUES (?, ?)');
    this.#rows = new LogRows(database, file);
    this.marks = this.#rows.marks();
  }

  load(): Generator<RecordColumns, void, undefined> {
    return this.#rows.all();
  }

  read(after: number, limitBytes: number): LogPage {
    return this.#rows.page(after, limitBytes);
  }

  has(mark: RecordMark): boolean {
    return this.#rows.has(mark);
  }

  newest(): RecordMark | undefined {
    return this.#rows.newest();
  }

  append(records: RecordColumns): void {
    const onlyDeletes = records.lengths.every((length) => length < 0);
    this.#room.run(() => this.#append(records), onlyDeletes ? { growthPages: DELETION_PAGES } : {});
  }

  #append(records: RecordColumns): void {
    let offset = 0;
    this.#database.exec('BEGIN IMMEDIATE');
    try {
      for (const [at, revision] of records.revisions.entries()) {
        const length = records.lengths[at] ?? -1;
        const value = length < 0 ? null : Buffer.from(records.values, offset, length);
        offset += Math.max(0, length);
        const key = records.keys[at] ?? '';
        this.#insert.run(
          revision,
          key,
          value,
          records.createRevisions[at],
          records.expiries[at],
          checksumOf(key, value),
        );
      }
      this.#database.exec('COMMIT');
    } catch (error) {
      if (this.#database.inTransaction) this.#database.exec('ROLLBACK');
      throw error;
    }
    this.#pagesSinceCheckpoint += 2 + offset / PAGE_BYTES;
  }

  remove({ compactedRevision, lastRevision, lastCompaction }: LogMarks, revisions: readonly number[]): void {
    const transaction = this.#database.transaction(() => {
      this.#mark.run(compactedRevision, 'compacted');
      this.#mark.run(lastRevision, 'last');
      if (lastCompaction !== undefined) {
        this.#mark.run(lastCompaction.revision, 'last-compaction');
        this.#mark.run(lastCompaction.atMs, 'last-compaction-ms');
      }
      for (const revision of revisions) this.#delete.run(revision);
    });
    this.#room.run(() => transaction(), { growthPages: DELETION_PAGES });
    this.#pagesSinceCheckpoint += 2 + revisions.length / 2;
    this.#room.giveBack();
  }

  compact(marks: LogMarks): void {
    const revisions = this.#rows.obsolete(marks.compactedRevision);
    // In order, because the record of a deletion must not go before what it hides.
    for (let from = 0; from === 0 || from < revisions.length; from += REMOVED_RECORDS)
      this.remove(marks, revisions.slice(from, from + REMOVED_RECORDS));
  }

  probe(lastRevision: number): void {
    if (this.#hasCheckpointFailed) this.#pagesSinceCheckpoint = this.#room.checkpointPages;
    this.#room.run(() => this.#mark.run(lastRevision, 'last'));
    this.#room.restore();
    if (this.#room.isShort) throw new StorageError('full', 'the disk is full');
  }

  async copyTo(file: string): Promise<void> {
    // The file contains every secret, so it has its mode from the beginning.
    closeSync(openSync(file, 'wx', 0o600));
    await this.#database.backup(file, { progress: () => COPY_STEP_PAGES });
  }

  checkpointIfLong(): boolean {
    const { checkpointPages } = this.#room;
    if (this.#pagesSinceCheckpoint < checkpointPages) return false;
    this.#pagesSinceCheckpoint = checkpointPages - RETRY_PAGES;
    this.#hasCheckpointFailed = true;
    this.#room.checkpoint();
    this.#hasCheckpointFailed = false;
    this.#pagesSinceCheckpoint = 0;
    return true;
  }

  renewLogSpace(): void {
    this.#logSpace.renew(LOG_HEADER_BYTES + this.#room.checkpointPages * LOG_FRAME_BYTES);
  }

  close(): void {
    this.#logSpace.close();
    this.#database.close();
  }
}
