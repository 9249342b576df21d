/** Determines when a new certificate begins to be valid. */

/** The time by which certificates are backdated, because the clocks of a cluster differ. */
export const BACKDATE_MS = 5 * 60_000;
/** A time before which this program did not exist. Any release may set a later one. */
export const PROGRAM_SINCE_MS = Date.UTC(2026, 0, 1);

/**
 * Returns the time from which the life of a certificate counts, in milliseconds since the epoch. Hosts without a battery-backed
 * clock boot with a time in the past, and set it when they reach a time server. What they issue before is valid afterwards.
 */
export function lifeBegins(nowMs: number): number {
  return Math.max(nowMs, PROGRAM_SINCE_MS);
}
