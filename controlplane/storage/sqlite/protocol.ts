/** The messages between the main thread and the worker thread of the storage. Values are transferred in one buffer. */
import type { LogMarks } from '../log-backend.ts';
import type { StorageErrorCode } from '../storage.ts';

export interface WorkerOptions {
  readonly file: string;
  readonly lockFile: string;
  /** Refuses writes beyond it as a full disk would. 0: no limit. */
  readonly sizeLimitBytes: number;
  /** Space that is held back for a disk that becomes full, where the file system is not small. 0: none. */
  readonly reserveBytes: number;
}

/** Records as parallel columns; `lengths[i]` is -1 where the key was deleted, else the next so many bytes of `values`. */
export interface RecordColumns {
  readonly revisions: readonly number[];
  readonly keys: readonly string[];
  readonly createRevisions: readonly number[];
  /** 0: does not expire. */
  readonly expiries: readonly number[];
  readonly lengths: readonly number[];
  readonly values: ArrayBuffer;
}

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
  | { readonly type: 'copy'; readonly id: number; readonly file: string }
  | { readonly type: 'close'; readonly id: number };

export type WorkerResponse =
  | { readonly type: 'rows'; readonly records: RecordColumns }
  | { readonly type: 'opened'; readonly marks: LogMarks }
  | { readonly type: 'done'; readonly id: number }
  /** The write-ahead log could not be moved into the file (`problem`), or could be again (`undefined`). */
  | { readonly type: 'checkpoint'; readonly problem: string | undefined }
  | { readonly type: 'failed'; readonly id: number; readonly code: StorageErrorCode; readonly message: string };

/** `id` of the failure to open. */
export const OPENING = 0;
