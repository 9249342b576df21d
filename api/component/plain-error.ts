/**
 * Defines an error whose message is written for the person who runs the program: it is one line that names the file, flag or
 * server, with a remedy if one is known.
 */
export class PlainError extends Error {
  override readonly name: string = 'PlainError';
}

/**
 * Whether the message is meant for people: that of plain errors, and that of errors of the operating system, which name their
 * call.
 */
export function isPlain(error: unknown): boolean {
  return error instanceof PlainError || (error instanceof Error && 'syscall' in error && 'code' in error);
}
