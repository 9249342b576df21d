/**
 * Maps every error that SQLite can return for a write to its outcome. An extended code (`SQLITE_IOERR_FSYNC`) has a row of its
 * own or the row of its primary code. A code without a row has the outcome `unknown`.
 *
 * - `full`: nothing was written, because there is no room. The same write succeeds when there is room again.
 * - `refused`: nothing was written, and only this write failed.
 * - `unknown`: this process cannot know what was written, or cannot rely on the file any more. The storage takes no more
 *   writes, and the process exits.
 */
type WriteOutcome = 'full' | 'refused' | 'unknown';

const OUTCOMES: ReadonlyMap<string, WriteOutcome> = new Map(
  Object.entries({
    // SQLite returns this for ENOSPC, for a quota of pages, and for a temporary file without room.
    SQLITE_FULL: 'full',
    // The value exceeds a billion bytes.
    SQLITE_TOOBIG: 'refused',
    // The process holds an exclusive lock from the start, so this is transient.
    SQLITE_BUSY: 'refused',
    SQLITE_LOCKED: 'refused',
    SQLITE_INTERRUPT: 'refused',
    // fsync, write, truncate or read failed. After a failed fsync the kernel may have dropped pages that it reports as written.
    // `disk-room.ts` repeats a failed write once, because SQLite has undone it, and recognizes an exhausted disk quota.
    SQLITE_IOERR: 'unknown',
    SQLITE_CORRUPT: 'unknown',
    SQLITE_NOTADB: 'unknown',
    // The kernel remounted the file system read-only, as it does after a disk error.
    SQLITE_READONLY: 'unknown',
    SQLITE_CANTOPEN: 'unknown',
    SQLITE_PERM: 'unknown',
    SQLITE_AUTH: 'unknown',
    SQLITE_NOMEM: 'unknown',
    SQLITE_NOLFS: 'unknown',
    // The constraints only fail by a bug: a revision exists already, or a statement does not match the schema.
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

/** Returns what a write has done that failed with the code, which is one of `SQLITE_*`. */
export function outcomeOf(code: string): WriteOutcome {
  return OUTCOMES.get(code) ?? OUTCOMES.get(primaryOf(code)) ?? 'unknown';
}

/** Returns the primary code of an extended code, for example `SQLITE_IOERR` of `SQLITE_IOERR_FSYNC`. */
function primaryOf(code: string): string {
  return code.split('_', 2).join('_');
}

/** Returns the code of an error of better-sqlite3 or Node.js; empty if it has none. */
export function codeOf(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return typeof code === 'string' ? code : '';
}
