/** Texts in quotes, for messages, keys and cache keys. Objects are encoded by `api/codec/json.ts`, which keeps large integers. */

/** The text as a JSON string. */
export const quoteText = (text: string): string => JSON.stringify(text);
