/**
 * A file that holds space beside the database. A full disk stops the write-ahead log: it cannot grow, and its pages cannot be
 * moved into a database file that would have to grow. The space of this file is enough to move them. `disk-room.ts` decides
 * when it is released and restored.
 */
import { randomBytes } from 'node:crypto';
import { closeSync, openSync, rmSync, statfsSync, statSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { codeOf } from './sqlite-errors.ts';

/** A small file system gives this share of its size at most. */
const SHARE = 8;
const BLOCK_BYTES = 1024 * 1024;

export class DiskReserve {
  readonly #file: string;
  #sizeBytes: number;
  #isHeld = false;

  /** With 0 bytes nothing is held back. */
  constructor(file: string, wantedBytes: number) {
    this.#file = file;
    this.#sizeBytes = wantedBytes === 0 ? 0 : Math.min(wantedBytes, shareOf(dirname(file)));
    if (this.#sizeBytes === 0) return;
    // A file of another size is what a process that was killed while it wrote has left.
    this.#isHeld = statSync(file, { throwIfNoEntry: false })?.size === this.#sizeBytes;
    this.restore();
  }

  /** 0 where nothing is held back. */
  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  /** Whether there is a reserve and its space is in use. */
  get isReleased(): boolean {
    return this.#sizeBytes > 0 && !this.#isHeld;
  }

  /** Returns whether that gave space to the disk. */
  release(): boolean {
    if (!this.#isHeld) return false;
    rmSync(this.#file, { force: true });
    this.#isHeld = false;
    return true;
  }

  /** Whether the disk would have room for it with so many bytes more. */
  fits(moreBytes: number): boolean {
    const { bavail, bsize } = statfsSync(dirname(this.#file));
    return bavail * bsize + moreBytes >= this.#sizeBytes * 1.25;
  }

  /** Holds the space again where the disk has it and some more. */
  restore(): void {
    if (!this.isReleased) return;
    rmSync(this.#file, { force: true });
    if (!this.fits(0)) return;
    try {
      writeIncompressible(this.#file, this.#sizeBytes);
      this.#isHeld = true;
    } catch (error) {
      rmSync(this.#file, { force: true });
      // A limit of the size of files (`ulimit -f`) is no lack of room, and room will not mend it: work without a reserve.
      if (codeOf(error) === 'EFBIG') this.#sizeBytes = 0;
      else if (!['ENOSPC', 'EDQUOT'].includes(codeOf(error))) throw error;
    }
  }
}

/** Whole pages. */
function shareOf(directory: string): number {
  const { blocks, bsize } = statfsSync(directory);
  return Math.floor((blocks * bsize) / SHARE / 4096) * 4096;
}

/** A file system that compresses would keep next to nothing of a file of zeros. */
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
