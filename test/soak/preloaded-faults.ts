/**
 * Builds the library that causes faults of the disk and of the wall clock in a process that preloads it (`faults.c`), and
 * switches the faults. Building takes a C compiler.
 */
import { spawnSync } from 'node:child_process';
import { closeSync, openSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';

/** The first byte of the control file, as defined in `faults.c`. */
export const DISK_FAULTS = {
  none: 0,
  noRoom: 1,
  fsyncFails: 2,
  fsyncHangs: 3,
  writeFails: 4,
  shortWrite: 5,
  quota: 6,
  quotaOnce: 7,
} as const;

const SOURCE = join(import.meta.dirname, 'faults.c');
const DISK_AT = 0;
const CLOCK_AT = 8;

/** The compiled library, with the faults that it causes in one process. */
export class PreloadedFaults {
  readonly #control: string;
  /** The environment of the process that the faults concern. */
  readonly environment: Readonly<Record<string, string>>;

  /** Builds the faults in an existing directory. Throws without a C compiler. */
  constructor(directory: string) {
    const library = join(directory, 'faults.so');
    const built = spawnSync('cc', ['-shared', '-fPIC', '-O1', '-o', library, SOURCE, '-ldl']);
    if (built.status !== 0) throw new Error(`cc: ${built.error?.message ?? built.stderr.toString()}`);
    this.#control = join(directory, 'control');
    writeFileSync(this.#control, Buffer.alloc(4096));
    this.environment = { LD_PRELOAD: library, SOAK_FAULTS: this.#control };
  }

  /** Causes a fault of the disk; `none` ends it. */
  disk(fault: keyof typeof DISK_FAULTS): void {
    this.#write(Buffer.from([DISK_FAULTS[fault]]), DISK_AT);
  }

  /** Sets how far the wall clock is ahead; negative if it is behind. */
  clockAhead(seconds: number): void {
    const bytes = Buffer.alloc(8);
    bytes.writeBigInt64LE(BigInt(seconds));
    this.#write(bytes, CLOCK_AT);
  }

  #write(bytes: Buffer, at: number): void {
    const file = openSync(this.#control, 'r+');
    writeSync(file, bytes, 0, bytes.length, at);
    closeSync(file);
  }
}
