/**
 * Makes room for transactions on a full disk: a checkpoint lets them overwrite the write-ahead log, and releasing the reserve
 * makes room for the checkpoint.
 *
 * While the reserve is released, the database may use its free pages but must not grow. Only deletions may grow it a little,
 * because they free space. An exhausted disk quota is a full disk.
 */
import type Database from 'better-sqlite3';
import { isStorageError, StorageError } from '../storage.ts';
import { isOutOfRoom, type DiskReserve } from './disk-reserve.ts';
import { codeOf, outcomeOf } from './sqlite-errors.ts';
import { PAGE_BYTES } from './database-format.ts';

/** The number of pages of the write-ahead log at which a checkpoint begins (8 MB). */
const CHECKPOINT_PAGES = 2000;
/** The largest number of pages that SQLite allows. */
const MAX_PAGES = 4_294_967_294;
/** Free pages beyond this number (16 MB) and beyond a quarter of the file are returned to the disk. */
const FREE_PAGES_KEPT = 4096;
/** The number of pages (2 MB) that are returned to the disk at a time, because writes wait meanwhile. */
const VACUUM_STEP_PAGES = 512;
/**
 * A database that must not grow takes only deletions if its free pages are less than the size of the reserve divided by this
 * number (1 MB of 16 MB).
 */
const WORKABLE_PART = 16;

/** Runs in the worker alone, around each transaction. */
export class DiskRoom {
  readonly #database: Database.Database;
  readonly #probeFile: string;
  readonly #reserve: DiskReserve;
  readonly #quotaPages: number;
  /** The page limit that is set in SQLite. */
  #limitPages = 0;
  /** The maximum number of pages of the database while the reserve is released. */
  #boundPages = 0;
  readonly #logPages: number;
  readonly #workablePages: number;

  /** `sizeLimitBytes` limits the database as a disk of that size would. 0 means no limit. */
  constructor(database: Database.Database, reserve: DiskReserve, sizeLimitBytes: number) {
    this.#database = database;
    this.#probeFile = `${database.name}.probe`;
    this.#reserve = reserve;
    this.#quotaPages = sizeLimitBytes === 0 ? MAX_PAGES : Math.ceil(sizeLimitBytes / PAGE_BYTES);
    const halfPages = Math.floor(reserve.sizeBytes / 2 / PAGE_BYTES);
    this.#logPages = halfPages === 0 ? CHECKPOINT_PAGES : Math.min(CHECKPOINT_PAGES, halfPages);
    this.#workablePages = Math.ceil(reserve.sizeBytes / WORKABLE_PART / PAGE_BYTES);
    this.#boundPages = this.#number('page_count');
    this.#limitGrowth(0);
  }

  /**
   * Runs a transaction, which may grow the database by `growthPages` while the reserve is released. Throws SQLite's error, or a
   * StorageError `full` if a disk quota is exhausted.
   */
  run(transaction: () => unknown, { growthPages = 0 } = {}): void {
    this.#limitGrowth(growthPages);
    const full = this.#fullError(transaction);
    if (full === undefined) return;
    // After the checkpoint, the transaction overwrites the log.
    const checkpoint = (): void => this.#checkpoint('RESTART');
    if (this.#fullError(checkpoint) === undefined && this.#fullError(transaction) === undefined) return;
    const lastFull = this.#fullError(() => {
      if (!this.#release('RESTART') && !this.#regain()) throw full;
      this.#limitGrowth(growthPages);
      transaction();
    });
    if (lastFull !== undefined) throw lastFull;
  }

  /** Moves the write-ahead log into the file. Throws the errors that `run` throws. */
  checkpoint(): void {
    const full = this.#fullError(() => this.#checkpoint('PASSIVE'));
    if (full === undefined) return;
    const lastFull = this.#fullError(() => {
      if (!this.#release('PASSIVE')) throw full;
    });
    if (lastFull !== undefined) throw lastFull;
  }

  /** Returns free pages to the disk if there are many, or restores a released reserve. */
  giveBack(): void {
    if (this.#reserve.isReleased) return this.restore();
    const free = this.#number('freelist_count');
    if (free > FREE_PAGES_KEPT && free * 4 > this.#number('page_count')) this.#vacuum();
  }

  /** Restores the reserve if the disk has room for it. */
  restore(): void {
    if (!this.#reserve.isReleased) return;
    const spare = this.#number('freelist_count') - 2 * this.#workablePages;
    if (spare > 0 && !this.#reserve.fits(0) && this.#reserve.fits(spare * PAGE_BYTES)) {
      this.#vacuum();
      // The file becomes shorter only with the checkpoint.
      this.#fullError(() => this.#checkpoint('PASSIVE'));
    }
    this.#boundPages = Math.min(this.#boundPages, this.#number('page_count'));
    this.#reserve.restore();
    this.#limitGrowth(0);
  }

  /**
   * The length of the log in pages at which a checkpoint begins: at most half of the reserve if there is one, and 0 while it is
   * released.
   */
  get checkpointPages(): number {
    return this.#reserve.isReleased ? 0 : this.#logPages;
  }

  /** Whether the remaining space is needed for deletions and compactions. */
  get isShort(): boolean {
    return this.#reserve.isReleased && this.#number('freelist_count') < this.#workablePages;
  }

  /** Shortens the file if there is room for that. */
  #vacuum(): void {
    this.#fullError(() => this.#database.pragma(`incremental_vacuum(${VACUUM_STEP_PAGES})`));
  }

  /** Restores the reserve, so that the database may grow again. Returns whether the disk had room for it. */
  #regain(): boolean {
    if (!this.#reserve.isReleased) return false;
    this.restore();
    return !this.#reserve.isReleased;
  }

  #release(mode: 'PASSIVE' | 'RESTART'): boolean {
    if (!this.#reserve.release()) return false;
    this.#boundPages = this.#number('page_count');
    this.#checkpoint(mode);
    return true;
  }

  #checkpoint(mode: 'PASSIVE' | 'RESTART'): void {
    this.#database.pragma(`wal_checkpoint(${mode})`);
  }

  #limitGrowth(growthPages: number): void {
    const bound = this.#reserve.isReleased ? this.#boundPages + growthPages : MAX_PAGES;
    const limitPages = Math.min(bound, this.#quotaPages);
    if (limitPages !== this.#limitPages) this.#database.pragma(`max_page_count = ${limitPages}`);
    this.#limitPages = limitPages;
  }

  #number(pragma: string): number {
    return Number(this.#database.pragma(pragma, { simple: true }));
  }

  /** Runs the work. Returns the error if the disk was full, or `undefined` on success. Throws other errors. */
  #fullError(work: () => unknown): unknown {
    for (let isRepeated = false; ; isRepeated = true) {
      try {
        work();
        return undefined;
      } catch (error) {
        if (isStorageError(error, 'full') || outcomeOf(codeOf(error)) === 'full') return error;
        if (codeOf(error) !== 'SQLITE_IOERR_WRITE') throw error;
        if (isOutOfRoom(this.#probeFile))
          return new StorageError('full', 'the disk is full: its quota is exhausted', { cause: error });
        // The quota may have been raised since. On a disk that failed, the same write fails again.
        if (isRepeated) throw error;
      }
    }
  }
}
