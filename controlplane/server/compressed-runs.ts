/**
 * Keeps bytes compressed in runs, which can be concatenated in any order to one gzip stream. A document is assembled from the
 * runs of its parts without copying their content, and only changed parts are compressed again.
 *
 * A run is a raw deflate stream that ends at a byte boundary and has no last block (RFC 1951). The checksum of the whole is
 * computed from those of the runs (RFC 1952).
 */
import { createHash } from 'node:crypto';
import { promisify } from 'node:util';
import { constants, crc32, deflateRaw, inflateRaw } from 'node:zlib';
import { ownBytes } from '../../api/machinery/own-bytes.ts';
import type { Slice } from '../../api/machinery/time-slice.ts';

const deflate = promisify<Buffer, object, Buffer>(deflateRaw);
const inflate = promisify<Buffer, object, Buffer>(inflateRaw);
const OPEN_END = { finishFlush: constants.Z_SYNC_FLUSH, level: 6 };

/** A piece of a document. `digest` is the hash of its uncompressed bytes. */
export interface Run {
  /** The size of the uncompressed bytes. */
  readonly sizeBytes: number;
  readonly crc: number;
  readonly deflated: Buffer;
  readonly digest: Buffer;
}

/** Compresses in the thread pool. */
export async function compressRun(bytes: Buffer | string): Promise<Run> {
  const plain = typeof bytes === 'string' ? Buffer.from(bytes) : bytes;
  const deflated = ownBytes(await deflate(plain, OPEN_END));
  return { sizeBytes: plain.length, crc: crc32(plain), deflated, digest: createHash('sha512').update(plain).digest() };
}

/** A gzip header without the modification time and other facts of a file. */
const HEADER = Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff]);
/** An empty last block. */
const LAST_BLOCK = Buffer.from([3, 0]);

/** What is known of the bytes of all runs together. */
export interface RunsSummary {
  readonly sizeBytes: number;
  readonly crc: number;
  /** Upper-case hexadecimal digits, which are the same for equal runs in the same order. */
  readonly hash: string;
}

/** Returns the size, the checksum and the hash of all runs together. */
export function* summaryOf(runs: readonly Run[], slice: Slice): Generator<void, RunsSummary, undefined> {
  let crc = 0;
  let sizeBytes = 0;
  const hash = createHash('sha512');
  for (const run of runs) {
    hash.update(run.digest);
    crc = combinedCrc(crc, run.crc, run.sizeBytes);
    sizeBytes += run.sizeBytes;
    if (slice.isSpent) yield;
  }
  return { sizeBytes, crc, hash: hash.digest('hex').toUpperCase() };
}

/** Returns the parts of a complete gzip file (RFC 1952) of the runs in their order. They share the memory of the runs. */
export function gzipOf(runs: readonly Run[], { crc, sizeBytes }: RunsSummary): readonly Buffer[] {
  const trailer = Buffer.alloc(8);
  trailer.writeUInt32LE(crc, 0);
  trailer.writeUInt32LE(sizeBytes >>> 0, 4);
  return [HEADER, ...runs.map(({ deflated }) => deflated), LAST_BLOCK, trailer];
}

/** Yields the uncompressed bytes, run by run. */
export async function* plainBytes(runs: readonly Run[]): AsyncGenerator<Buffer> {
  for (const { deflated } of runs) yield await inflate(deflated, OPEN_END);
}

/** The polynomial of CRC-32. Its bits are reversed, as those of all polynomials here: the highest bit belongs to x^0. */
const POLYNOMIAL = 0xedb88320;
/** The polynomial 1. */
const ONE = 0x80000000;

/** Multiplies two polynomials over GF(2), modulo the polynomial of CRC-32. */
function product(a: number, b: number): number {
  let result = 0;
  let factor = b;
  for (let mask = ONE; mask !== 0; mask >>>= 1) {
    if ((a & mask) !== 0) result ^= factor;
    factor = (factor & 1) === 0 ? factor >>> 1 : (factor >>> 1) ^ POLYNOMIAL;
  }
  return result >>> 0;
}

/** x to the power of 2^n. */
const POWERS: readonly number[] = (() => {
  const powers = [ONE >>> 1];
  for (let n = 1; n < 32; n += 1) powers.push(product(powers[n - 1] ?? 0, powers[n - 1] ?? 0));
  return powers;
})();

/** Returns the checksum of bytes with the checksum `first`, followed by `sizeBytes` with the checksum `second`. */
function combinedCrc(first: number, second: number, sizeBytes: number): number {
  let shift = ONE;
  // A byte has eight bits, and x to the power of 8 is the fourth of the powers.
  for (let remaining = sizeBytes, n = 3; remaining > 0; remaining = Math.floor(remaining / 2), n += 1) {
    if (remaining % 2 === 1) shift = product(POWERS[n % 32] ?? 0, shift);
  }
  return (product(shift, first) ^ second) >>> 0;
}
