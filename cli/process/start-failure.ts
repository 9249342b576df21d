/** A start that fails because of the host or the flags prints one line; a fault of the program keeps its stack. */
import { CommandError } from '../command-line/command.ts';

/**
 * Runs a start. Its failures become a `CommandError` with their message. `TypeError`, `RangeError` and `ReferenceError` stay as
 * they are, because they are faults of the program.
 */
export async function inOneLine<T>(start: () => Promise<T>): Promise<T> {
  try {
    return await start();
  } catch (error) {
    if (
      !(error instanceof Error) ||
      error instanceof TypeError ||
      error instanceof RangeError ||
      error instanceof ReferenceError
    )
      throw error;
    throw new CommandError(error.message, { cause: error });
  }
}
