/**
 * Limits the size of a decoded text or message in any format.
 *
 * Three megabytes of `{},` are a million objects. Each step of a request would walk all of them on the one thread that serves
 * all requests. Real documents have tens of bytes for each value and stay far below the limit.
 */

/** The number of map members and list items together. */
export const MAX_VALUES = 100_000;

/** Returns the message of an exceeded limit. */
export const tooManyValues = (limit: number): string => `exceeded the limit of ${limit} values`;
/** The message of the limit for documents. */
export const TOO_MANY_VALUES = tooManyValues(MAX_VALUES);
