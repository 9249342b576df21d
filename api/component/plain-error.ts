/**
 * An error whose message is written for the person who runs the program: one line that names the place, with a remedy where
 * one is known. The command line prints the message without a stack. Every other error is a fault of the program.
 */
export class PlainError extends Error {
  override readonly name: string = 'PlainError';
}

/** Whether a person understands the message as it is: plain errors, and errors of the operating system, which name their call. */
export function isPlain(error: unknown): boolean {
  return error instanceof PlainError || (error instanceof Error && 'syscall' in error && 'code' in error);
}
