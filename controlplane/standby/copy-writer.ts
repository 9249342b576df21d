/**
 * Writes what a standby receives into its copy. While one group is made durable, what arrives waits and becomes the next group,
 * so that the standby keeps up with a first that commits faster than it can.
 */
import type { RecordColumns } from '../storage/stored-log.ts';
import type { LogCopy } from '../storage/sqlite/log-copy.ts';
import type { Frame } from './frames.ts';

type Written = Extract<Frame, { type: 'records' | 'complete' }>;
type Records = Extract<Frame, { type: 'records' }>;
type Complete = Extract<Frame, { type: 'complete' }>;

/** Frames that became durable together, in the order in which they arrived. */
export interface WrittenGroup {
  readonly records: readonly Records[];
  /** The last frame `complete` of the group, and the wall-clock time at which it was sent. `undefined` if there is none. */
  readonly complete: { readonly frame: Complete; readonly atMs: number } | undefined;
}

/** The size of waiting records from which on nothing more is received. So it also limits a group. */
const MAX_BYTES = 4 * 1024 * 1024;

/** Writes one group at a time. After a failure, `add` and `drain` reject with it, and the copy needs another writer. */
export class CopyWriter {
  readonly #copy: LogCopy;
  readonly #onWritten: (group: WrittenGroup) => void;
  #waiting: { readonly frame: Written; readonly atMs: number }[] = [];
  #bytes = 0;
  #writing: Promise<void> | undefined;
  /** A writer that failed writes nothing more. */
  #failure: { readonly error: unknown } | undefined;

  /** `onWritten` is called when a group is durable. */
  constructor(copy: LogCopy, onWritten: (group: WrittenGroup) => void) {
    this.#copy = copy;
    this.#onWritten = onWritten;
  }

  /**
   * Resolves when more may be added: at once, or when everything is durable if 4 MiB are waiting. `atMs` is the wall-clock time
   * at which a frame `complete` was sent. Rejects if an earlier group could not be written.
   */
  async add(frame: Written, atMs = 0): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure.error;
    this.#waiting.push({ frame, atMs });
    this.#bytes += sizeOf(frame);
    if (this.#writing === undefined) {
      this.#writing = this.#writeAll();
      this.#writing.catch((error: unknown) => {
        this.#failure = { error };
      });
    }
    if (this.#bytes >= MAX_BYTES) await this.#writing;
  }

  /** Resolves when everything that was added is durable. Rejects if that failed. */
  async drain(): Promise<void> {
    await this.#writing;
  }

  async #writeAll(): Promise<void> {
    while (this.#waiting.length > 0) await this.#writeGroup();
    this.#writing = undefined;
  }

  async #writeGroup(): Promise<void> {
    const taken = this.#waiting.splice(0);
    this.#bytes = 0;
    const records = taken.flatMap(({ frame }) => (frame.type === 'records' ? [frame] : []));
    if (records.length > 0) await this.#copy.append(joined(records.map((frame) => frame.records)));
    let complete: WrittenGroup['complete'];
    for (const { frame, atMs } of taken) if (frame.type === 'complete') complete = { frame, atMs };
    if (complete !== undefined) {
      this.#copy.proceedTo(complete.frame.marks.lastRevision);
      await this.#copy.compact(complete.frame.marks);
    }
    this.#onWritten({ records, complete });
  }
}

/** Returns the size of the records of a frame in bytes. It includes the keys, because deletions have no value. */
function sizeOf(frame: Written): number {
  if (frame.type !== 'records') return 0;
  const { keys, values } = frame.records;
  return keys.reduce((sum, key) => sum + key.length, values.byteLength);
}

/** Joins records that follow each other. */
function joined(parts: readonly RecordColumns[]): RecordColumns {
  const [only] = parts;
  if (only !== undefined && parts.length === 1) return only;
  const values = Buffer.concat(parts.map((part) => Buffer.from(part.values)));
  return {
    revisions: parts.flatMap(({ revisions }) => revisions),
    keys: parts.flatMap(({ keys }) => keys),
    createRevisions: parts.flatMap(({ createRevisions }) => createRevisions),
    expiries: parts.flatMap(({ expiries }) => expiries),
    lengths: parts.flatMap(({ lengths }) => lengths),
    values: new Uint8Array(values).buffer,
  };
}
