/** Quotes texts for messages, keys and cache keys. `api/codec/json.ts` encodes objects, because it keeps large integers. */

/** Returns the text as a JSON string. */
export const quoteText = (text: string): string => JSON.stringify(text);
