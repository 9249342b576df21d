/**
 * Looks for damage in the write-ahead log before SQLite opens it. SQLite takes the first frame that does not match as the end
 * of the log, because a power failure may leave the last transaction incomplete. But each transaction is on the disk before the
 * next one begins. If frames of a later transaction follow the frame that does not match, that frame was damaged after its
 * transaction was acknowledged. SQLite would then silently lose it and everything after it.
 *
 * The incomplete transaction stays in the file, and later transactions overwrite only its beginning. After the next power
 * failure, the rest would look like a transaction behind a damaged one, so a start removes it.
 *
 * The format is SQLite's (https://www.sqlite.org/fileformat2.html#walformat).
 */
import { closeSync, openSync, readFileSync, writeSync } from 'node:fs';
import { StorageError } from '../storage.ts';
import { PAGE_BYTES } from './database-format.ts';

const HEADER_BYTES = 32;
const FRAME_HEADER_BYTES = 24;
const MAGIC = 0x377f0682;
const SALTS = { start: 16, end: 24 };
/** The size of a sector, which a disk writes as a whole or not at all. */
const SECTOR_BYTES = 512;
/** Where the header of a frame repeats the salts. */
const FRAME_SALTS = 8;

/**
 * Checks the write-ahead log before SQLite opens it. Throws `unusable` if acknowledged writes are damaged. Returns whether an
 * incomplete transaction may follow the last one.
 */
export function refuseDamagedLog(file: string): { readonly hasIncompleteTail: boolean } {
  const log = readLog(file);
  const state = log === undefined ? WHOLE : examine(log);
  if (log === undefined || !state.isDamaged) return { hasIncompleteTail: state.tail.length > 0 };
  // Another process may have restarted the log while it was read. This does not happen twice in a row.
  const reread = readLog(file);
  const isSame = reread?.subarray(0, HEADER_BYTES).equals(log.subarray(0, HEADER_BYTES)) === true;
  if (!isSame || !examine(reread).isDamaged) return { hasIncompleteTail: true };
  throw new StorageError(
    'unusable',
    `${file} is damaged: writes that were acknowledged cannot be read. Restore a backup; or, to go on with what is whole ` +
      'and lose the last writes, move this file away',
  );
}

/** Overwrites the salts of the frames after the last complete transaction. The caller holds the lock of the database. */
export function removeIncompleteTail(file: string): void {
  const log = readLog(file);
  if (log === undefined) return;
  const { isDamaged, tail } = examine(log);
  if (isDamaged || tail.length === 0) return;
  const descriptor = openSync(file, 'r+');
  try {
    const noSalts = Buffer.alloc(SALTS.end - SALTS.start);
    for (const start of tail) writeSync(descriptor, noSalts, 0, noSalts.length, start + FRAME_SALTS);
  } finally {
    closeSync(descriptor);
  }
}

/** Reads the log. Returns `undefined` if it does not exist. */
export function readLog(file: string): Buffer | undefined {
  try {
    return readFileSync(file);
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
}

interface LogState {
  readonly isDamaged: boolean;
  /** Where the frames of this log after its last complete transaction begin. */
  readonly tail: readonly number[];
}

const WHOLE: LogState = { isDamaged: false, tail: [] };

function examine(log: Buffer): LogState {
  if (log.length < HEADER_BYTES + FRAME_HEADER_BYTES) return WHOLE;
  const magic = log.readUInt32BE(0);
  const pageBytes = log.readUInt32BE(8);
  const bigEndian = (magic & 1) === 1;
  const header = new Checksum(bigEndian);
  header.add(log.subarray(0, SALTS.end));
  const headerFits = (magic & ~1) === MAGIC && pageBytes >= 512 && header.equals(log, SALTS.end);
  // Of a short log, a power failure may have left the header incomplete. A longer log has a header that was on the disk before.
  if (!headerFits) return { isDamaged: log.length > HEADER_BYTES + 2 * (FRAME_HEADER_BYTES + PAGE_BYTES), tail: [] };
  const frames = new Frames(log, pageBytes);
  const checksum = header;
  let [at, committed] = [0, 0];
  for (; at < frames.count && frames.follows(at, checksum); at += 1) if (frames.isCommit(at)) committed = at + 1;
  return { isDamaged: at < frames.count && frames.hasLater(at), tail: frames.startsFrom(committed) };
}

interface LogFrame {
  readonly page: number;
  readonly image: Buffer;
}

interface ReadLog {
  /** The frames of complete transactions that follow each other from the beginning. SQLite recovers these. */
  readonly whole: readonly LogFrame[];
  /**
   * The frames of transactions from the first damaged frame on, in order and with gaps, without an incomplete last transaction.
   */
  readonly behindDamage: readonly LogFrame[];
}

/** Returns the pages in a log, which may be damaged. */
export function readFrames(log: Buffer, pageBytes: number): ReadLog {
  if (log.length < HEADER_BYTES + FRAME_HEADER_BYTES) return { whole: [], behindDamage: [] };
  const checksum = new Checksum((log.readUInt32BE(0) & 1) === 1);
  checksum.add(log.subarray(0, SALTS.end));
  const headerFits = checksum.equals(log, SALTS.end) && log.readUInt32BE(8) === pageBytes;
  // Each frame repeats the salts of the header.
  const salts = headerFits ? SALTS : { start: HEADER_BYTES + 8, end: HEADER_BYTES + 16 };
  const frames = new Frames(log, pageBytes, log.subarray(salts.start, salts.end));
  let damagedAt = 0;
  if (headerFits) while (damagedAt < frames.count && frames.follows(damagedAt, checksum)) damagedAt += 1;
  const isTornLast = headerFits && !frames.hasLater(damagedAt);
  return {
    whole: frames.transactions(0, damagedAt),
    behindDamage: isTornLast ? [] : frames.transactions(damagedAt, frames.count),
  };
}

class Frames {
  readonly #log: Buffer;
  readonly #frameBytes: number;
  readonly #salts: Buffer;
  readonly count: number;

  constructor(log: Buffer, pageBytes: number, salts = log.subarray(SALTS.start, SALTS.end)) {
    this.#log = log;
    this.#frameBytes = FRAME_HEADER_BYTES + pageBytes;
    this.#salts = salts;
    this.count = Math.floor((log.length - HEADER_BYTES) / this.#frameBytes);
  }

  #start(at: number): number {
    return HEADER_BYTES + at * this.#frameBytes;
  }

  /** Whether the frame belongs to this log and not to an earlier log in the same file. */
  #isOurs(at: number): boolean {
    const start = this.#start(at);
    return this.#log.subarray(start + FRAME_SALTS, start + FRAME_SALTS + 8).equals(this.#salts);
  }

  isCommit(at: number): boolean {
    return this.#log.readUInt32BE(this.#start(at) + 4) !== 0;
  }

  /** Whether the frame is of this log and has the checksum that continues the given one, to which it is added. */
  follows(at: number, checksum: Checksum): boolean {
    const start = this.#start(at);
    if (!this.#isOurs(at)) return false;
    checksum.add(this.#log.subarray(start, start + 8));
    checksum.add(this.#log.subarray(start + FRAME_HEADER_BYTES, start + this.#frameBytes));
    return checksum.equals(this.#log, start + 16);
  }

  /** Returns the frames of this log from `from` to before `to`, up to the last frame that ends a transaction. */
  transactions(from: number, to: number): readonly LogFrame[] {
    const found: LogFrame[] = [];
    let committed = 0;
    for (let at = from; at < to; at += 1) {
      if (!this.#isOurs(at)) continue;
      const start = this.#start(at);
      found.push({
        page: this.#log.readUInt32BE(start),
        image: this.#log.subarray(start + FRAME_HEADER_BYTES, start + this.#frameBytes),
      });
      if (this.isCommit(at)) committed = found.length;
    }
    return found.slice(0, committed);
  }

  /** Returns where the frames of this log from `from` on begin. */
  startsFrom(from: number): readonly number[] {
    const starts: number[] = [];
    for (let at = from; at < this.count; at += 1) if (this.#isOurs(at)) starts.push(this.#start(at));
    return starts;
  }

  /** Whether a transaction ends at frame `at` or later and another transaction begins after it. */
  hasLater(at: number): boolean {
    let ended = false;
    for (let next = at; next < this.count; next += 1) {
      if (!this.#isOurs(next)) continue;
      if (ended) return true;
      ended = this.isCommit(next) && this.#isOneHeader(next);
    }
    return false;
  }

  /**
   * Whether the frame's mark of a commit and its salts are of one write. A sector ends between them in one of 64 frames, and a
   * power failure may leave the salts of the last transaction there beside the mark of an earlier, incomplete one.
   */
  #isOneHeader(at: number): boolean {
    const start = this.#start(at);
    const sectorOf = (offset: number): number => Math.floor((start + offset) / SECTOR_BYTES);
    if (sectorOf(4) === sectorOf(FRAME_SALTS)) return true;
    if (at === 0) return false;
    const checksum = new Checksum((this.#log.readUInt32BE(0) & 1) === 1);
    checksum.continueFrom(this.#log, this.#start(at - 1) + 16);
    return this.follows(at, checksum);
  }
}

/** SQLite's checksum: two sums over pairs of words. */
class Checksum {
  readonly #bigEndian: boolean;
  #first = 0;
  #second = 0;

  constructor(bigEndian: boolean) {
    this.#bigEndian = bigEndian;
  }

  add(bytes: Buffer): void {
    let first = this.#first;
    let second = this.#second;
    const big = this.#bigEndian;
    for (let at = 0; at + 8 <= bytes.length; at += 8) {
      first = (first + (big ? bytes.readUInt32BE(at) : bytes.readUInt32LE(at)) + second) >>> 0;
      second = (second + (big ? bytes.readUInt32BE(at + 4) : bytes.readUInt32LE(at + 4)) + first) >>> 0;
    }
    this.#first = first;
    this.#second = second;
  }

  /** Continues the sums that are stored there. */
  continueFrom(bytes: Buffer, at: number): void {
    this.#first = bytes.readUInt32BE(at);
    this.#second = bytes.readUInt32BE(at + 4);
  }

  equals(bytes: Buffer, at: number): boolean {
    return bytes.readUInt32BE(at) === this.#first && bytes.readUInt32BE(at + 4) === this.#second;
  }
}
