/** Returns the command by which this program runs itself once more with other arguments. */
import { isSea } from 'node:sea';

/** Returns the program and the arguments before those of a command: in a checkout, Node.js, its options and the entry file. */
export function ownProgram(): readonly [string, ...string[]] {
  return [process.execPath, ...(isSea() ? [] : [...process.execArgv, process.argv[1] ?? ''])];
}
