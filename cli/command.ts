/** What a command of `orchlet` is. `main.ts` finds it by its words; parsing, `--help` and completion come from its flags. */
import type { FlagTable, ParsedFlags } from '../api/component/flags.ts';

export interface Command {
  /** `controlplane`, or `token create`. */
  readonly name: string;
  /** One line for the list of commands. */
  readonly summary: string;
  /** What follows the flags: `[NAME]`. */
  readonly arguments?: string;
  /** A paragraph for `--help`. */
  readonly description: string;
  readonly flags: FlagTable;
  /** Lines that a person may type. */
  readonly examples: readonly string[];
  /** Resolves to the exit code. */
  run(parsed: ParsedFlags<FlagTable>): Promise<number>;
}

/** A row of the list; the command's module is loaded when it is used. */
export interface CommandRow {
  readonly name: string;
  readonly summary: string;
  load(): Promise<Command>;
}

/** A failure that the command has put into words: one line, exit code 1. */
export class CommandError extends Error {
  override readonly name = 'CommandError';
}
