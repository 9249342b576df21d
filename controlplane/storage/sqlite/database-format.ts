/**
 * Defines the format of the SQLite file: its tables, and what a row of them may hold. A file may come from a backup that others
 * could change. SQLite runs the triggers and views of a file, and keeps any type in any column, so the schema and each row are
 * compared with the format before they are used.
 */
import type Database from 'better-sqlite3';
import { StorageError } from '../storage.ts';
import { checksumOf } from './row-checksum.ts';

/** SQLite's application id of the file. The bytes spell `orch`. */
const APPLICATION_ID = 0x6f726368;
/** The version of the format, which the file contains as SQLite's `user_version`. */
const FORMAT = 1;
/** The page size with which the file is created. */
export const PAGE_BYTES = 4096;

const TABLES: ReadonlyMap<string, string> = new Map([
  [
    'log',
    `CREATE TABLE log (revision INTEGER PRIMARY KEY, key TEXT NOT NULL, value BLOB, created INTEGER NOT NULL,
                        expires INTEGER NOT NULL, checksum INTEGER NOT NULL)`,
  ],
  ['mark', 'CREATE TABLE mark (name TEXT PRIMARY KEY, revision INTEGER NOT NULL) WITHOUT ROWID'],
]);

/** The largest revision. JavaScript holds integers up to twice as large exactly, so there is room for further revisions. */
const MAX_REVISION = 2 ** 52;

/** A row of the log. */
export interface Row {
  revision: number;
  key: string;
  value: Buffer | null;
  created: number;
  expires: number;
  checksum: number;
}

/**
 * Checks the format of an existing database. Throws `StorageError` for a database of another program, of a newer format, or
 * with anything beside the tables.
 */
export function checkFormat(database: Database.Database, file: string): void {
  const owner = database.pragma('application_id', { simple: true });
  const format = Number(database.pragma('user_version', { simple: true }));
  const schema = database
    .prepare<[], { name: string; sql: string | null }>('SELECT name, sql FROM sqlite_schema')
    .all();
  if (owner !== APPLICATION_ID && schema.length > 0) {
    throw new StorageError('unusable', `${file} is a database of another program`);
  }
  if (format > FORMAT) {
    const message = `${file} has format ${format}, this version of orchlet knows ${FORMAT}: a newer version has written it`;
    throw new StorageError('unusable', message);
  }
  for (const { name, sql } of schema)
    if (words(sql ?? '') !== words(TABLES.get(name) ?? ''))
      throw new StorageError(
        'unusable',
        `${file} has "${name.slice(0, 64)}", which is not of orchlet; restore it from a backup`,
      );
}

const words = (sql: string): string => sql.split(/\s+/).join(' ');

/** Creates the tables in an empty file. */
export function createFormat(database: Database.Database): void {
  if (database.pragma('application_id', { simple: true }) === APPLICATION_ID) return;
  database.transaction(() => {
    for (const sql of TABLES.values()) database.exec(sql);
    database.exec("INSERT INTO mark VALUES ('compacted', 0), ('last', 0)");
    database.pragma(`user_version = ${FORMAT}`);
    database.pragma(`application_id = ${APPLICATION_ID}`);
  })();
}

/** Whether the value is a revision after which there are others. */
export const isRevision = (value: unknown): value is number =>
  Number.isSafeInteger(value) && Number(value) >= 0 && Number(value) <= MAX_REVISION;

/** Whether the columns have their types, and the checksum matches the key and the value. */
export function isWhole(row: Readonly<Record<keyof Row, unknown>>): row is Row {
  const { revision, key, value, created, expires, checksum } = row;
  if (typeof key !== 'string' || !(value === null || Buffer.isBuffer(value))) return false;
  if (!isRevision(revision) || !isRevision(created) || !Number.isSafeInteger(expires)) return false;
  return checksum === checksumOf(key, value);
}
