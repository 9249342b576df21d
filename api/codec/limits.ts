/**
 * Bounds on what one text or message may become, whatever its format; the decoders hold them.
 *
 * Three megabytes of `{},` are a million objects: each step of a request would walk all of them on the one thread that
 * serves everybody. What people write has tens of bytes to a value and stays far below.
 */

/** Members of maps and items of lists, all together. */
export const MAX_VALUES = 100_000;

export const TOO_MANY_VALUES = `exceeded the limit of ${MAX_VALUES} values`;
