/** Quotes texts for messages, keys and cache keys. `api/codec/json.ts` encodes objects, because it keeps large integers. */

/** Returns the text as a JSON string. */
export const quoteText = (text: string): string => JSON.stringify(text);

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
