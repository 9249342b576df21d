/**
 * Looks for damage in the write-ahead log before SQLite opens it. SQLite takes the first frame that does not fit for the end
 * of the log, as it must: a power failure may leave the last transaction half-written. But a transaction is on the disk
 * before the next one begins, so where frames of a later one follow, what does not fit was damaged after it was
 * acknowledged, and opening the file would lose it, and everything after it, without a word.
 *
 * The format is SQLite's own (https://www.sqlite.org/fileformat2.html#walformat). Called by `database.ts`, in the worker.
 */
import { readFileSync } from 'node:fs';
import { StorageError } from '../storage.ts';

const HEADER_BYTES = 32;
const FRAME_HEADER_BYTES = 24;
const MAGIC = 0x377f0682;
const SALTS = { start: 16, end: 24 };

/** Throws `unusable` where acknowledged writes are damaged. */
export function refuseDamagedLog(file: string): void {
  const log = readLog(file);
  if (log === undefined || !isDamaged(log)) return;
  // Another process may have begun the log anew while it was read; it does not do so all the time.
  const again = readLog(file);
  if (again === undefined || !again.subarray(0, HEADER_BYTES).equals(log.subarray(0, HEADER_BYTES))) return;
  if (!isDamaged(again)) return;
  throw new StorageError(
    'unusable',
    `${file} is damaged: writes that were acknowledged cannot be read. Restore a backup; or, to go on with what is whole ` +
      'and lose the last writes, move this file away',
  );
}

/** `undefined`: there is none. */
export function readLog(file: string): Buffer | undefined {
  try {
    return readFileSync(file);
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
}

function isDamaged(log: Buffer): boolean {
  if (log.length < HEADER_BYTES + FRAME_HEADER_BYTES) return false;
  const magic = log.readUInt32BE(0);
  const pageBytes = log.readUInt32BE(8);
  const bigEndian = (magic & 1) === 1;
  const header = new Checksum(bigEndian);
  header.add(log.subarray(0, SALTS.end));
  const headerFits = (magic & ~1) === MAGIC && pageBytes >= 512 && header.equals(log, SALTS.end);
  // It is written once, long before most of what follows.
  if (!headerFits) return log.length > HEADER_BYTES + 2 * (FRAME_HEADER_BYTES + 4096);
  const frames = new Frames(log, pageBytes);
  const checksum = header;
  let at = 0;
  for (; at < frames.count; at += 1) if (!frames.follows(at, checksum)) break;
  return at < frames.count && frames.hasLater(at);
}

export interface LogFrame {
  readonly page: number;
  readonly image: Buffer;
}

export interface ReadLog {
  /** Of transactions that are whole and follow each other from the beginning: what SQLite takes. */
  readonly whole: readonly LogFrame[];
  /**
   * Of transactions behind a damaged frame, in order: pages as they came to be, with gaps between. A last transaction that is not
   * whole is not among them: the power failed before it was acknowledged, and SQLite drops it too.
   */
  readonly behindDamage: readonly LogFrame[];
}

/** The pages in a log, damaged or not; nothing is refused. For `salvage.ts`. */
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

  /** Belongs to this log and not to one that was in the file before it. */
  #isOurs(at: number): boolean {
    const start = this.#start(at);
    return this.#log.subarray(start + 8, start + 16).equals(this.#salts);
  }

  #isCommit(at: number): boolean {
    return this.#log.readUInt32BE(this.#start(at) + 4) !== 0;
  }

  /** Takes the frame into the checksum; whether that is the one that the frame has. */
  follows(at: number, checksum: Checksum): boolean {
    const start = this.#start(at);
    if (!this.#isOurs(at)) return false;
    checksum.add(this.#log.subarray(start, start + 8));
    checksum.add(this.#log.subarray(start + FRAME_HEADER_BYTES, start + this.#frameBytes));
    return checksum.equals(this.#log, start + 16);
  }

  /** Frames of this log from one to before the other, up to the last that ends a transaction. */
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
      if (this.#isCommit(at)) committed = found.length;
    }
    return found.slice(0, committed);
  }

  /** Whether a transaction ends at frame `at` or after it and another one begins behind that. */
  hasLater(at: number): boolean {
    let ended = false;
    for (let next = at; next < this.count; next += 1) {
      if (!this.#isOurs(next)) continue;
      if (ended) return true;
      ended = this.#isCommit(next);
    }
    return false;
  }
}

/** SQLite's: two sums over pairs of words. */
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

  equals(bytes: Buffer, at: number): boolean {
    return bytes.readUInt32BE(at) === this.#first && bytes.readUInt32BE(at + 4) === this.#second;
  }
}
