/** Reads a caught or rejected value, which may be any value in JavaScript. */

/** Returns the message of an error, and any other value as text. */
export const errorMessage = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** Returns an error unchanged, and for any other value an error with its text as the message. */
export const toError = (error: unknown): Error => (error instanceof Error ? error : new Error(String(error)));
