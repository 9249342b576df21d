/**
 * The outcome of every error that SQLite can give to a write, in one table. Extended codes (`SQLITE_IOERR_FSYNC`) have the
 * row of their own name, else that of their primary code; what has no row is `unknown`.
 *
 * - `full`: nothing was written. The storage is read-only until there is room; the same write then succeeds.
 * - `refused`: nothing was written, and only this write is at fault.
 * - `unknown`: what was written cannot be known from here, or nothing can be relied on any more. The storage takes no writes,
 *   and the process exits, so that its supervisor starts it again: the recovery of the write-ahead log then decides.
 */
export type WriteOutcome = 'full' | 'refused' | 'unknown';

const OUTCOMES: ReadonlyMap<string, WriteOutcome> = new Map(
  Object.entries({
    // SQLite gives it for ENOSPC, for a quota of pages, and for a temporary file without room.
    SQLITE_FULL: 'full',
    // A value of more than a billion bytes.
    SQLITE_TOOBIG: 'refused',
    // The lock is exclusive from the start: another process cannot come in between, so this is transient.
    SQLITE_BUSY: 'refused',
    SQLITE_LOCKED: 'refused',
    SQLITE_INTERRUPT: 'refused',
    // fsync, write, truncate or read failed. After a failed fsync the kernel may have dropped pages that it reports as written.
    SQLITE_IOERR: 'unknown',
    SQLITE_CORRUPT: 'unknown',
    SQLITE_NOTADB: 'unknown',
    // The file system was mounted read-only under the process, as kernels do after an error of the disk.
    SQLITE_READONLY: 'unknown',
    SQLITE_CANTOPEN: 'unknown',
    SQLITE_PERM: 'unknown',
    SQLITE_AUTH: 'unknown',
    SQLITE_NOMEM: 'unknown',
    SQLITE_NOLFS: 'unknown',
    // A revision that is there already, a statement that does not fit the schema: bugs.
    SQLITE_CONSTRAINT: 'unknown',
    SQLITE_MISMATCH: 'unknown',
    SQLITE_MISUSE: 'unknown',
    SQLITE_RANGE: 'unknown',
    SQLITE_SCHEMA: 'unknown',
    SQLITE_PROTOCOL: 'unknown',
    SQLITE_ABORT: 'unknown',
    SQLITE_INTERNAL: 'unknown',
    SQLITE_ERROR: 'unknown',
  }),
);

export function outcomeOf(code: string): WriteOutcome {
  return OUTCOMES.get(code) ?? OUTCOMES.get(primaryOf(code)) ?? 'unknown';
}

/** `SQLITE_IOERR` of `SQLITE_IOERR_FSYNC`. */
function primaryOf(code: string): string {
  return code.split('_', 2).join('_');
}

export function codeOf(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return typeof code === 'string' ? code : '';
}
