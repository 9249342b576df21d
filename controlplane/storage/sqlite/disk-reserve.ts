/**
 * Holds space on the disk in a file beside the database. When the disk is full, the write-ahead log cannot grow, and a
 * checkpoint fails if the database file must grow for it. The space of this file is enough for the checkpoint.
 */
import { randomBytes } from 'node:crypto';
import { closeSync, openSync, rmSync, statfsSync, statSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { isDiskFull } from '../../../api/machinery/disk-full.ts';
import { codeOf } from './sqlite-errors.ts';

/** The fraction of a small file system that the reserve takes at most: one eighth. */
const SHARE = 8;
const BLOCK_BYTES = 1024 * 1024;
const PROBE_BYTES = 64 * 1024;

/** The reserve is never larger than a share of its file system. */
export class DiskReserve {
  readonly #file: string;
  #sizeBytes: number;
  #isHeld = false;

  /** Prepares the reserve of a file. It holds no space if `wantedBytes` is 0. */
  constructor(file: string, wantedBytes: number) {
    this.#file = file;
    this.#sizeBytes = wantedBytes === 0 ? 0 : Math.min(wantedBytes, shareOf(dirname(file)));
    if (this.#sizeBytes === 0) return;
    // A file of another size is incomplete, because a process was killed while it wrote the file, or of another configuration.
    this.#isHeld = statSync(file, { throwIfNoEntry: false })?.size === this.#sizeBytes;
    this.restore();
  }

  /** The size of the reserve, also while its space is not held. It is 0 if there is no reserve. */
  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  /** Whether there is a reserve whose space is not held: it was released, or the disk had no room for it. */
  get isReleased(): boolean {
    return this.#sizeBytes > 0 && !this.#isHeld;
  }

  /** Releases the reserve. Returns whether there was any to release. */
  release(): boolean {
    if (!this.#isHeld) return false;
    rmSync(this.#file, { force: true });
    this.#isHeld = false;
    return true;
  }

  /** Whether the disk has room for the reserve and a quarter more, once `freedBytes` are freed. */
  fits(freedBytes: number): boolean {
    const { bavail, bsize } = statfsSync(dirname(this.#file));
    return bavail * bsize + freedBytes >= this.#sizeBytes * 1.25;
  }

  /** Restores the reserve if the disk has room for it and for some more data. */
  restore(): void {
    if (!this.isReleased) return;
    rmSync(this.#file, { force: true });
    if (!this.fits(0)) return;
    try {
      writeIncompressible(this.#file, this.#sizeBytes);
      this.#isHeld = true;
    } catch (error) {
      rmSync(this.#file, { force: true });
      // A limit on file sizes (`ulimit -f`) is not a full disk, and free space does not help.
      if (codeOf(error) === 'EFBIG') this.#sizeBytes = 0;
      else if (!isDiskFull(error)) throw error;
    }
  }
}

/**
 * Whether the directory of the file has no room for a small file. SQLite reports an exhausted disk quota (EDQUOT) as a failed
 * write, without its cause.
 */
export function isOutOfRoom(file: string): boolean {
  try {
    writeIncompressible(file, PROBE_BYTES);
    return false;
  } catch (error) {
    return isDiskFull(error);
  } finally {
    rmSync(file, { force: true });
  }
}

/** Returns the share of the file system in bytes, rounded to whole pages. */
function shareOf(directory: string): number {
  const { blocks, bsize } = statfsSync(directory);
  return Math.floor((blocks * bsize) / SHARE / 4096) * 4096;
}

/** Writes random bytes, because a file system with compression would store almost nothing for a file of zeros. */
function writeIncompressible(file: string, sizeBytes: number): void {
  const block = randomBytes(Math.min(BLOCK_BYTES, sizeBytes));
  const descriptor = openSync(file, 'wx', 0o600);
  try {
    for (let left = sizeBytes; left > 0; left -= block.length)
      writeFileSync(descriptor, block.subarray(0, Math.min(left, block.length)));
  } finally {
    closeSync(descriptor);
  }
}
