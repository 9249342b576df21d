/**
 * Defines the records of the log in the form in which they are stored, as the worker thread and a standby have them, and takes
 * parts of them.
 */
import type { ValueAtRest } from './value-transformer.ts';

/** Records as parallel columns. `lengths[i]` is the length of the record's value in `values`, or -1 if the key was deleted. */
export interface RecordColumns {
  readonly revisions: readonly number[];
  readonly keys: readonly string[];
  readonly createRevisions: readonly number[];
  /** The times of expiry. 0 means that the record does not expire. */
  readonly expiries: readonly number[];
  readonly lengths: readonly number[];
  readonly values: ArrayBuffer;
}

/** Returns the records from one index up to another one, which is excluded. */
export function recordsBetween(records: RecordColumns, from: number, to = records.revisions.length): RecordColumns {
  if (from === 0 && to === records.revisions.length) return records;
  const bytesUpTo = (end: number): number =>
    records.lengths.slice(0, end).reduce((sum, length) => sum + Math.max(0, length), 0);
  return {
    revisions: records.revisions.slice(from, to),
    keys: records.keys.slice(from, to),
    createRevisions: records.createRevisions.slice(from, to),
    expiries: records.expiries.slice(from, to),
    lengths: records.lengths.slice(from, to),
    values: records.values.slice(bytesUpTo(from), bytesUpTo(to)),
  };
}

/** Yields the values with their keys, without a copy and without deletions. */
export function* storedValues({ keys, lengths, values }: RecordColumns): Generator<ValueAtRest, void, undefined> {
  let offset = 0;
  for (const [at, key] of keys.entries()) {
    const length = lengths[at] ?? -1;
    if (length < 0) continue;
    yield { key, value: Buffer.from(values, offset, length) };
    offset += length;
  }
}

/** Stored records in the order of their revisions. The values are as on the disk, so they may be encrypted. */
export interface LogPage {
  readonly records: RecordColumns;
  /** Records up to this revision may have been removed. */
  readonly compactedRevision: number;
}

/** Identifies a stored record. */
export interface RecordMark {
  readonly revision: number;
  readonly checksum: number;
}

/** The records of a storage as they are on the disk, for a standby that copies them. */
export interface StoredLog {
  /**
   * Returns about half a megabyte of the records after a revision, and none if there are none. The page ends with a commit, so
   * that it has no part of a transaction. Only commits of earlier processes may be divided, because their ends are not known.
   */
  read(after: number): Promise<LogPage>;
  /** Returns whether the record is stored. */
  has(mark: RecordMark): Promise<boolean>;
  /** Keeps compacted records until the returned function is called, or until the disk is full. */
  holdRemovals(): () => void;
}
