/**
 * Cutting repeated characters off a text, in linear time. An expression such as `/x+$/` takes quadratic time where many of
 * the characters stand before another one.
 */

/** `chars`: each character of it is cut off the end. */
export function trimEnd(text: string, chars: string): string {
  let end = text.length;
  while (end > 0 && chars.includes(text.charAt(end - 1))) end -= 1;
  return text.slice(0, end);
}

/** At both ends. */
export function trim(text: string, chars: string): string {
  let start = 0;
  while (start < text.length && chars.includes(text.charAt(start))) start += 1;
  return trimEnd(text.slice(start), chars);
}
