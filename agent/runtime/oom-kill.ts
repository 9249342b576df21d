/** What both runtimes know about containers that ran out of memory, which a runtime may report later than the exit. */

/** The exit code of a process that SIGKILL ended: 128 + 9. */
export const KILLED = 137;

/** The pauses before the status of a killed container is read again, in case that it ran out of memory. */
export const OOM_NEWS_MS = [20, 80, 300] as const;
