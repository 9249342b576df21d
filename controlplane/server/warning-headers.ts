/** Writes warnings as headers of a response, within what clients and proxies accept. */

/** The length to which each warning is truncated if all together are longer than `MAX_WARNINGS_CHARS`. */
const MAX_WARNING_CHARS = 256;
const MAX_WARNINGS_CHARS = 4096;
/**
 * The maximum number of warnings. With the longest characters, that many headers have less than the 16 KiB that Node.js
 * accepts.
 */
const MAX_WARNINGS = 128;
const CONTROL = /\p{Cc}/u;

/**
 * Returns the values of at most 128 headers `Warning`, in order. Warnings with control characters are left out. When all
 * together are too long, each is truncated, and those after the limit are left out. Characters are code points.
 */
export function warningHeaders(warnings: readonly string[]): string[] {
  const lengths = warnings.map((text) => (CONTROL.test(text) ? 0 : codePoints(text)));
  const total = lengths.reduce((sum, length) => sum + length, 0);
  const isTruncated = total > MAX_WARNINGS_CHARS;
  const headers: string[] = [];
  let used = 0;
  /** The length without truncation. kube-apiserver sends all warnings that it had received when this exceeded the limit. */
  let untruncated = 0;
  for (const [index, text] of warnings.entries()) {
    if (headers.length === MAX_WARNINGS) break;
    if (untruncated > MAX_WARNINGS_CHARS && used >= MAX_WARNINGS_CHARS) break;
    untruncated += lengths[index] ?? 0;
    const shown = isTruncated ? truncated(text) : text;
    if (CONTROL.test(shown)) continue;
    used += isTruncated ? Math.min(lengths[index] ?? 0, MAX_WARNING_CHARS) : 0;
    headers.push(warningHeader(shown));
  }
  return headers;
}

function codePoints(text: string): number {
  let count = 0;
  for (const _ of text) count++;
  return count;
}

const truncated = (text: string): string =>
  [...text.slice(0, 2 * MAX_WARNING_CHARS)].slice(0, MAX_WARNING_CHARS).join('');

/** Returns the value of a `Warning` header. A header is Latin-1, so other characters are sent as the bytes of their UTF-8. */
function warningHeader(text: string): string {
  return `299 - "${Buffer.from(text.replaceAll(/[\\"]/g, '\\$&'), 'utf8').toString('latin1')}"`;
}
