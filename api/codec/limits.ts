/**
 * Bounds on the size of one decoded text or message, whatever its format.
 *
 * Three megabytes of `{},` are a million objects: each step of a request would walk all of them on the one thread that serves
 * all requests. Real documents have tens of bytes for each value and stay far below.
 */

/** Members of maps and items of lists, all together. */
export const MAX_VALUES = 100_000;

export const tooManyValues = (limit: number): string => `exceeded the limit of ${limit} values`;
export const TOO_MANY_VALUES = tooManyValues(MAX_VALUES);
