/**
 * Defines the shape of a command of `orchlet`. `run.ts` finds it by its words; parsing, `--help` and completion come from its
 * flags.
 */
import { PlainError } from '../../api/component/plain-error.ts';
import type { FlagTable, ParsedFlags } from '../../api/component/flags.ts';
import type { CommandIo } from './io.ts';

/** A command. Failures that a user can understand are thrown as `CommandError`s, wrong usage as `UsageError`s. */
export interface Command {
  /** Absent if the command takes no arguments. */
  readonly arguments?: CommandArguments;
  /** A paragraph for `--help`. */
  readonly description: string;
  readonly flags: FlagTable;
  /** Example command lines. */
  readonly examples: readonly string[];
  /** Resolves to the exit code. */
  run(parsed: ParsedFlags<FlagTable>, io: CommandIo): Promise<number>;
}

/** The words after the flags. A wrong number of them is a usage error. */
interface CommandArguments {
  /** The arguments as `--help` shows them: `[NAME…]`. */
  readonly usage: string;
  readonly least: number;
  readonly most: number;
  /** The allowed words, which completion offers. */
  readonly choices?: readonly string[];
}

/** A row of the table of commands. The command's module is loaded when it is used. */
export interface CommandRow {
  /** `controlplane`, or `token create`. */
  readonly name: string;
  /** One line for the list of commands. */
  readonly summary: string;
  load(): Promise<Command>;
}

/** A failure of a command, with a one-line message; exit code 1. */
export class CommandError extends PlainError {
  override readonly name = 'CommandError';
}
