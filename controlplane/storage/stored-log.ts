/** Defines the records of the log in the form in which they are stored, as the worker thread and a standby have them. */

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

/** Stored records in the order of their revisions. The values are those on the disk, encrypted ones included. */
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
   * that it has no part of a transaction.
   */
  read(after: number): Promise<LogPage>;
  /** Returns whether the record is stored. */
  has(mark: RecordMark): Promise<boolean>;
  /** Keeps compacted records until the returned function is called, or until the disk is full. */
  holdRemovals(): () => void;
}
