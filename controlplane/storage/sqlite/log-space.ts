/**
 * Allocates the space of the write-ahead log before SQLite needs it. An fsync after a write that extends a file also writes the
 * size and the new blocks of the file to the journal of the file system, which takes as long again. SQLite overwrites the zeros
 * from their beginning. A recovery ends at them, because they have other salts than the frames of the log. `database.ts` calls
 * this in the worker, after the response to a commit.
 */
import { closeSync, fstatSync, fsyncSync, ftruncateSync, openSync, writeSync } from 'node:fs';

/** The size of the space that is allocated at once: about 250 commits of a small object. */
const SPACE_BYTES = 1024 * 1024;

/** Owns the space at the end of the log. */
export class LogSpace {
  readonly #file: string;
  #descriptor: number | undefined;
  /** The size of the log with its space. */
  #sizeBytes = 0;
  #hasFailed = false;

  /** The log need not exist before the first call of `renew`. */
  constructor(file: string) {
    this.#file = file;
  }

  /**
   * Allocates further space if SQLite has extended the log since the last call, up to a log of `limitBytes`. After an error,
   * such as that of a full disk, the log is as SQLite left it, and later calls do nothing. A damaged disk also fails SQLite's
   * own fsync.
   */
  renew(limitBytes: number): void {
    if (this.#hasFailed) return;
    try {
      this.#descriptor ??= openSync(this.#file, 'r+');
      this.#extend(this.#descriptor, limitBytes);
    } catch {
      this.#hasFailed = true;
    }
  }

  #extend(descriptor: number, limitBytes: number): void {
    const { size } = fstatSync(descriptor);
    if (size === this.#sizeBytes) return;
    this.#sizeBytes = size;
    const length = Math.min(SPACE_BYTES, limitBytes - size);
    if (length <= 0) return;
    try {
      writeSync(descriptor, Buffer.alloc(length), 0, length, size);
      fsyncSync(descriptor);
      this.#sizeBytes = fstatSync(descriptor).size;
    } catch (error) {
      ftruncateSync(descriptor, size);
      throw error;
    }
  }

  close(): void {
    if (this.#descriptor !== undefined) closeSync(this.#descriptor);
    this.#descriptor = undefined;
  }
}
