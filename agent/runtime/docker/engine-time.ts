/** Converts the times that Docker's API returns. */

/** The end of the year 9999, the last one that a timestamp of the API can have. */
const LATEST_MS = Date.UTC(10_000, 0) - 1;

/** Returns milliseconds since 1970; 0 for a text that is no time, for the engine's zero time (the year 1) and after 9999. */
export function engineTime(text: string): number {
  const ms = Date.parse(text);
  return ms > 0 && ms <= LATEST_MS ? ms : 0;
}
