/** Defines the boundary between `revision-log.ts` and SQLite, which stores the records of the log. */

import type { TimedRevision } from './storage.ts';
import type { LogPage, RecordMark } from './stored-log.ts';

/** One write of one key, as it is stored. */
export interface LogRecord {
  readonly revision: number;
  readonly key: string;
  /** `undefined` if the key was deleted. */
  readonly value: Buffer | undefined;
  readonly createRevision: number;
  readonly expiresAtMs: number | undefined;
}

/** The marks that a backend stores besides the records. */
export interface LogMarks {
  /** The history up to this revision is compacted. */
  readonly compactedRevision: number;
  /** The newest revision that a record received. */
  readonly lastRevision: number;
  /** The newest revision at the last compaction. */
  readonly lastCompaction: TimedRevision | undefined;
}

/**
 * The number of revisions that are skipped, so that no client of an earlier state of the storage has seen the next revision.
 */
export const REVISION_LEAP = 1_000_000;

/** Returns the marks that make the leap: the history before it can be read and watched no more. */
export function marksAfterLeap(lastRevision: number): LogMarks {
  const revision = lastRevision + REVISION_LEAP;
  return { compactedRevision: revision, lastRevision: revision, lastCompaction: undefined };
}

/** Stores the records of a log durably. */
export interface LogBackend {
  /**
   * Appends all records or none. They are durable when the promise resolves. Rejects with `full` or `refused` if nothing was
   * written. With any other error, the outcome is unknown.
   */
  append(records: readonly LogRecord[]): Promise<void>;
  /** Stores the marks and removes the records in one transaction. Rejects as `append` does. */
  remove(marks: LogMarks, revisions: readonly number[]): Promise<void>;
  /**
   * Makes a small durable write that changes nothing, to find out whether there is room again. Also retries failed work that no
   * request waits for. Rejects as `append` does.
   */
  probe(lastRevision: number): Promise<void>;
  /** Resolves when all earlier requests are done. */
  ping(): Promise<void>;
  /** Returns the records after a revision, up to `limitBytes` and at least one, or none if there are none. */
  read(after: number, limitBytes: number): Promise<LogPage>;
  /** Returns whether the record is stored. */
  has(mark: RecordMark): Promise<boolean>;
  /** Writes a consistent copy to another file, in steps between which writes continue. */
  copyTo(file: string): Promise<void>;
  /** Calls the listener when the backend is lost without `close`. */
  onLost(listener: (error: Error) => void): void;
  /** Calls the listener when work that no request waits for fails, and with `undefined` when it succeeds again. */
  onTrouble(listener: (problem: string | undefined) => void): void;
  close(): Promise<void>;
}

/** Converts a written value to the form that readers and watches see, which contains the revision. */
export type Stamp = (value: Buffer, revision: number) => Buffer;
