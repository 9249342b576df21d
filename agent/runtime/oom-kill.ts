/** Constants for finding out that a killed container ran out of memory. A runtime may report that later than the exit. */

/** The exit code of a process that SIGKILL ended: 128 + 9. */
export const KILLED = 137;

/** The pauses before the status of a killed container is read again, in case that it ran out of memory. */
export const OOM_RECHECKS_MS = [20, 80, 300] as const;
