/**
 * Cuts repeated characters off a text in linear time. A regular expression such as `/x+$/` takes quadratic time if many of the
 * characters precede another one.
 */

/** Cuts the characters of `chars` off the end. */
export function trimEnd(text: string, chars: string): string {
  let end = text.length;
  while (end > 0 && chars.includes(text.charAt(end - 1))) end -= 1;
  return text.slice(0, end);
}

/** Cuts the characters of `chars` off both ends. */
export function trim(text: string, chars: string): string {
  let start = 0;
  while (start < text.length && chars.includes(text.charAt(start))) start += 1;
  return trimEnd(text.slice(start), chars);
}
