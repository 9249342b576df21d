/** Writes warnings as headers of a response, within what clients and proxies accept. */

/** Longer warnings are truncated and then dropped. */
const MAX_WARNING_CHARS = 256;
const MAX_WARNINGS_CHARS = 4096;
/**
 * Each is a header of its own, which costs more than a short text. With the longest characters, as many headers have less than
 * the 16 KiB that Node.js accepts.
 */
const MAX_WARNINGS = 128;

/** Returns the values of the headers `Warning`. */
export function warningHeaders(warnings: readonly string[]): string[] {
  const total = warnings.reduce((sum, text) => sum + text.length, 0);
  const headers: string[] = [];
  let used = 0;
  for (const text of warnings) {
    const shown = total > MAX_WARNINGS_CHARS ? text.slice(0, MAX_WARNING_CHARS) : text;
    used += shown.length;
    if (used > MAX_WARNINGS_CHARS || headers.length === MAX_WARNINGS) break;
    headers.push(`299 - "${escapeWarning(shown)}"`);
  }
  return headers;
}

function escapeWarning(text: string): string {
  // A header cannot contain control characters. Characters beyond Latin-1 are sent as UTF-8 bytes.
  const clean = text.replaceAll(/\p{Cc}+/gu, ' ').replaceAll(/[\\"]/g, '\\$&');
  return Buffer.from(clean, 'utf8').toString('latin1');
}
