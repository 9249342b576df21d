/** What keeps the revision log's records: the boundary between `revision-log.ts` and SQLite. */

export interface LogRecord {
  readonly revision: number;
  readonly key: string;
  /** `undefined`: the key was deleted. */
  readonly value: Buffer | undefined;
  readonly createRevision: number;
  readonly expiresAtMs: number | undefined;
}

export interface LogBackend {
  /** All or nothing, durable when it resolves. Rejects with `full` when nothing was written; any other error leaves the outcome open. */
  append(records: readonly LogRecord[]): Promise<void>;
  /** Removes records, few at a time, after noting how far history is gone. */
  remove(compactedRevision: number, lastRevision: number, revisions: readonly number[]): Promise<void>;
  /** Writes all of it, as it is now, to another file. */
  copyTo(file: string): Promise<void>;
  close(): Promise<void>;
}

/** Turns a value as it was given into what readers and watchers see (the revision spliced in). */
export type Stamp = (value: Buffer, revision: number) => Buffer;
