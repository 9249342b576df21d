/**
 * Defines the messages between the main thread and the worker thread of the storage. All values of a message are transferred in
 * one buffer.
 */
import type { LogPage, RecordColumns, RecordMark } from '../stored-log.ts';
import type { LogMarks } from '../log-backend.ts';
import type { StorageErrorCode } from '../storage.ts';

/** The files of a database and their limits. */
export interface DatabaseOptions {
  readonly file: string;
  readonly lockFile: string;
  /** The maximum size of the database. Writes beyond it are refused as on a full disk. 0 means no limit. */
  readonly sizeLimitBytes: number;
  /** The size of the reserve for a full disk. It is smaller on a small file system. 0 means no reserve. */
  readonly reserveBytes: number;
}

/** The first message to the thread. */
export interface WorkerOptions extends DatabaseOptions {
  /** Whether the thread sends all records when it has opened the file. A standby does not need them. */
  readonly sendsRecords: boolean;
}

/** A later message to the thread, which answers each with `done` or `failed` and the same `id`. */
export type WorkerRequest =
  | { readonly type: 'append'; readonly id: number; readonly records: RecordColumns }
  | {
      readonly type: 'remove';
      readonly id: number;
      readonly marks: LogMarks;
      readonly revisions: readonly number[];
    }
  | { readonly type: 'probe'; readonly id: number; readonly lastRevision: number }
  | { readonly type: 'ping'; readonly id: number }
  | { readonly type: 'read'; readonly id: number; readonly after: number; readonly limitBytes: number }
  | { readonly type: 'has'; readonly id: number; readonly mark: RecordMark }
  /** Removes what the compaction of `marks` makes obsolete. */
  | { readonly type: 'compact'; readonly id: number; readonly marks: LogMarks }
  | { readonly type: 'copy'; readonly id: number; readonly file: string }
  | { readonly type: 'close'; readonly id: number };

/** A message of the thread. When it has opened the file, it sends `rows`, as often as the log has parts, and then `opened`. */
export type WorkerResponse =
  | { readonly type: 'rows'; readonly records: RecordColumns }
  | { readonly type: 'opened'; readonly marks: LogMarks; readonly newest: RecordMark | undefined }
  | { readonly type: 'done'; readonly id: number; readonly result?: LogPage | boolean }
  /** A checkpoint failed (`problem`), or succeeded again after a failure (`undefined`). */
  | { readonly type: 'checkpoint'; readonly problem: string | undefined }
  | { readonly type: 'failed'; readonly id: number; readonly code: StorageErrorCode; readonly message: string };

/** The `id` in the error of a failed opening. */
export const OPENING = 0;
