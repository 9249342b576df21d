/** Limits the size of a decoded text or message in any format: three megabytes of `{},` are a million objects. */

/** The maximum number of map members and list items together. */
export const MAX_VALUES = 100_000;

/** Returns the message of an exceeded limit. */
export const tooManyValues = (limit: number): string => `exceeded the limit of ${limit} values`;
/** The message of the limit for documents. */
export const TOO_MANY_VALUES = tooManyValues(MAX_VALUES);
