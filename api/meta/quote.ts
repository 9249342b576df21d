/** Quotes texts for messages, keys and cache keys. `api/codec/json.ts` encodes objects, because it keeps large integers. */

/** Returns the text as a JSON string. */
export const quoteText = (text: string): string => JSON.stringify(text);

/**
 * Returns the text for a terminal, with escapes in place of control characters other than line breaks and tabs: a text of
 * another host must not move the cursor, rewrite what stands there, or send keys.
 */
export const printable = (text: string): string =>
  text.replaceAll(/(?![\n\t])\p{Cc}/gu, (found) => `\\x${found.charCodeAt(0).toString(16).padStart(2, '0')}`);

/** The characters that Go and CEL write with a backslash in quoted texts. */
export const ESCAPES: ReadonlyMap<string, string> = new Map(
  Object.entries({
    '\u0007': '\\a',
    '\b': '\\b',
    '\f': '\\f',
    '\n': '\\n',
    '\r': '\\r',
    '\t': '\\t',
    '\v': '\\v',
    '"': '\\"',
    '\\': '\\\\',
  }),
);
