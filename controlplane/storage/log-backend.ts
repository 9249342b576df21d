/** What keeps the revision log's records: the boundary between `revision-log.ts` and SQLite. */

import type { TimedRevision } from './storage.ts';

export interface LogRecord {
  readonly revision: number;
  readonly key: string;
  /** `undefined` if the key was deleted. */
  readonly value: Buffer | undefined;
  readonly createRevision: number;
  readonly expiresAtMs: number | undefined;
}

/** What a backend keeps beside the records. */
export interface LogMarks {
  /** History up to this revision is gone. */
  readonly compactedRevision: number;
  /** The newest revision that was given. */
  readonly lastRevision: number;
  /** The newest revision at the last compaction. */
  readonly lastCompaction: TimedRevision | undefined;
}

export interface LogBackend {
  /**
   * All or nothing, durable when it resolves. Rejects with `full` or `refused` when nothing was written; any other error
   * leaves the outcome open.
   */
  append(records: readonly LogRecord[]): Promise<void>;
  /** Removes records, few at a time, after keeping the marks. */
  remove(marks: LogMarks, revisions: readonly number[]): Promise<void>;
  /**
   * A small durable write that changes nothing: whether there is room again. Tries again what failed without a request.
   * Rejects as `append` does.
   */
  probe(lastRevision: number): Promise<void>;
  /** Resolves when everything that was asked before is done. */
  ping(): Promise<void>;
  /** Writes a consistent copy to another file, in steps between which writes go on. */
  copyTo(file: string): Promise<void>;
  /** Calls the listener when the backend is gone without `close`. */
  onLost(listener: (error: Error) => void): void;
  /** Calls the listener when something fails that no request waits for, and with `undefined` when it succeeds again. */
  onTrouble(listener: (problem: string | undefined) => void): void;
  close(): Promise<void>;
}

/** Turns a value as it was given into what readers and watchers see (the revision spliced in). */
export type Stamp = (value: Buffer, revision: number) => Buffer;
