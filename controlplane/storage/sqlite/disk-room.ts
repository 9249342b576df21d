/**
 * Room for transactions on a disk that is full. A transaction that finds none gets it in two steps:
 *
 * 1. A checkpoint moves the write-ahead log into the database file, so that the transaction runs over the log's own space.
 * 2. Where the file would have to grow for that, the reserve is released.
 *
 * From then on the database may use its free pages and not grow, so that every later checkpoint succeeds without more room.
 * Deletions may grow it a little: they are how room is made. The reserve is restored when the disk has room: by a transaction
 * that would be refused otherwise, and by probes. Used by `database.ts` in the worker.
 */
import type Database from 'better-sqlite3';
import type { DiskReserve } from './disk-reserve.ts';
import { codeOf, outcomeOf } from './sqlite-errors.ts';

const PAGE_BYTES = 4096;
/** 8 MB of write-ahead log before its pages go to the file. */
const CHECKPOINT_PAGES = 2000;
/** SQLite's own limit. */
const MOST_PAGES = 4_294_967_294;
/** Free pages beyond it (16 MB), and beyond a quarter of the file, are given back. */
const FREE_PAGES_KEPT = 4096;
const VACUUM_STEP_PAGES = 512;
/** With fewer free pages than this part of the reserve (1 MB of 16), a database that may not grow takes no writes. */
const WORKABLE_PART = 16;

export class DiskRoom {
  readonly #database: Database.Database;
  readonly #reserve: DiskReserve;
  readonly #quotaPages: number;
  /** As SQLite has it. */
  #limitPages = 0;
  /** How many pages the database may have while the reserve is released. */
  #boundPages = 0;
  readonly #logPages: number;
  readonly #workablePages: number;

  /** `sizeLimitBytes` bounds the database as a disk of that size would; 0: no limit. */
  constructor(database: Database.Database, reserve: DiskReserve, sizeLimitBytes: number) {
    this.#database = database;
    this.#reserve = reserve;
    this.#quotaPages = sizeLimitBytes === 0 ? MOST_PAGES : Math.ceil(sizeLimitBytes / PAGE_BYTES);
    const halfPages = Math.floor(reserve.sizeBytes / 2 / PAGE_BYTES);
    this.#logPages = halfPages === 0 ? CHECKPOINT_PAGES : Math.min(CHECKPOINT_PAGES, halfPages);
    this.#workablePages = Math.ceil(reserve.sizeBytes / WORKABLE_PART / PAGE_BYTES);
    this.#boundPages = this.#number('page_count');
    this.#limitGrowth(0);
  }

  /** Runs a transaction, which may grow the database by so many pages while the reserve is released. Throws what SQLite throws. */
  run(transaction: () => unknown, { growthPages = 0 } = {}): void {
    this.#limitGrowth(growthPages);
    const full = fullError(transaction);
    if (full === undefined) return;
    // Over the log's own space.
    if (fullError(() => this.#checkpoint('RESTART')) === undefined && fullError(transaction) === undefined) return;
    if (!this.#release('RESTART') && !this.#regain()) throw full;
    this.#limitGrowth(growthPages);
    transaction();
  }

  /** Moves the write-ahead log into the file. Throws what SQLite throws. */
  checkpoint(): void {
    const full = fullError(() => this.#checkpoint('PASSIVE'));
    if (full !== undefined && !this.#release('PASSIVE')) throw full;
  }

  /** Gives some free pages back to the disk where they are many. */
  giveBack(): void {
    if (this.#reserve.isReleased) return this.restore();
    const free = this.#number('freelist_count');
    if (free > FREE_PAGES_KEPT && free * 4 > this.#number('page_count')) this.#vacuum();
  }

  /** Restores the reserve where the disk, or the disk with free pages, has room for it. */
  restore(): void {
    if (!this.#reserve.isReleased) return;
    const spare = this.#number('freelist_count') - 2 * this.#workablePages;
    if (spare > 0 && !this.#reserve.fits(0) && this.#reserve.fits(spare * PAGE_BYTES)) {
      this.#vacuum();
      // Only now the file becomes shorter.
      fullError(() => this.#checkpoint('PASSIVE'));
    }
    this.#boundPages = Math.min(this.#boundPages, this.#number('page_count'));
    this.#reserve.restore();
    this.#limitGrowth(0);
  }

  /** How long the log becomes: half of the reserve holds all of it. While that is released it takes no more of the disk. */
  get checkpointPages(): number {
    return this.#reserve.isReleased ? 0 : this.#logPages;
  }

  /** Whether nothing is left but what deletions and compactions need. */
  get isShort(): boolean {
    return this.#reserve.isReleased && this.#number('freelist_count') < this.#workablePages;
  }

  /** Where there is no room for it, free pages wait for the next time. */
  #vacuum(): void {
    fullError(() => this.#database.pragma(`incremental_vacuum(${VACUUM_STEP_PAGES})`));
  }

  /** Returns whether the disk had room for the reserve again, so that the database may grow again. */
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
    const bound = this.#reserve.isReleased ? this.#boundPages + growthPages : MOST_PAGES;
    const limitPages = Math.min(bound, this.#quotaPages);
    if (limitPages !== this.#limitPages) this.#database.pragma(`max_page_count = ${limitPages}`);
    this.#limitPages = limitPages;
  }

  #number(pragma: string): number {
    return Number(this.#database.pragma(pragma, { simple: true }));
  }
}

/** The error by which the work found no room; `undefined` if it succeeded. Throws other errors. */
function fullError(work: () => unknown): unknown {
  try {
    work();
    return undefined;
  } catch (error) {
    if (outcomeOf(codeOf(error)) !== 'full') throw error;
    return error;
  }
}
