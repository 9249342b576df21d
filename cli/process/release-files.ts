/**
 * Takes the pages of the executable, which are the code of Node.js, out of this process. A page that is used again comes back
 * from the page cache of the kernel.
 */
import { readFileSync, readlinkSync } from 'node:fs';
import { cFunctions } from './c-library.ts';

/** `int madvise(void *addr, size_t length, int advice)` in sys/mman.h. */
const MADVISE = { madvise: { arguments: ['u64', 'u64', 'i32'], return: 'i32' } } as const;
/** The page is read again when it is used. Changes that a process made to it would be lost. */
const MADV_DONTNEED = 4;

/** The first line of a mapping of a file in /proc/PID/smaps: its addresses, access, offset in the file, inode and path. */
const MAPPING = /^([0-9a-f]+)-([0-9a-f]+) (\S+) ([0-9a-f]+) \S+ [1-9]\d* +(.*)$/m;
/** A private mapping that is not writable. */
const UNWRITABLE = /^r-[x-]p$/;
/** A mapping without pages that are changed copies, such as those that the dynamic linker relocates. */
const UNCHANGED = /^Anonymous: +0 kB$/m;

/** Where a mapping begins and how long it is, in bytes. */
interface Mapping {
  readonly address: bigint;
  readonly length: bigint;
}

/** Does nothing before Node.js 26.1, or where /proc cannot be read. */
export function releaseFiles(): void {
  const madvise = cFunctions(MADVISE)?.madvise;
  if (madvise === undefined) return;
  for (const { address, length } of unchangedMappings(ownMappings(), executable()))
    madvise(address, length, MADV_DONTNEED);
}

/**
 * Returns the mappings of the executable in which this process has no memory of its own. `smaps` is the text of
 * /proc/PID/smaps. Only the image counts, which follows the beginning of the file without a gap and stays as long as the
 * process. Another thread may unmap a library, or the copy of builtin functions that V8 maps for each isolate, and use the
 * addresses for memory.
 */
export function unchangedMappings(smaps: string, executable: string): readonly Mapping[] {
  const unchanged: Mapping[] = [];
  let end: bigint | undefined;
  for (const text of smaps.split(/^(?=[0-9a-f]+-)/m)) {
    const [, from, to, access = '', offset = '', path] = MAPPING.exec(text) ?? [];
    if (from === undefined || to === undefined || path !== executable) continue;
    const address = BigInt(`0x${from}`);
    if (/[1-9a-f]/.test(offset) && address !== end) continue;
    end = BigInt(`0x${to}`);
    if (UNWRITABLE.test(access) && UNCHANGED.test(text)) unchanged.push({ address, length: end - address });
  }
  return unchanged;
}

/** Returns the path of the executable as the kernel shows it, also after an upgrade; empty if it cannot be read. */
function executable(): string {
  try {
    return readlinkSync('/proc/self/exe');
  } catch {
    return '';
  }
}

function ownMappings(): string {
  try {
    return readFileSync('/proc/self/smaps', 'utf8');
  } catch {
    return '';
  }
}
