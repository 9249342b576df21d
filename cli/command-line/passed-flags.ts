/** Parses flags that a command passes on to one of its parts (`--agent-arg name=value`), by the flag table of that part. */
import { type FlagTable, type FlagValues, parseFlags, UsageError } from '../../api/component/flags.ts';

interface PassedFlags<Table> {
  /** The values of the flags that were set. */
  readonly values: Partial<FlagValues<Table>>;
  readonly warnings: readonly string[];
}

/**
 * Parses the texts of a flag that passes others on. `texts` are `name=value`, or the name alone for flags that need no value.
 * Dashes before the name are accepted. `through` is the name of the passing flag, and `ownKeys` are keys that the command sets
 * itself. Throws `UsageError`, which names `through`.
 */
export function passedFlags<const Table extends FlagTable>(
  through: string,
  table: Table,
  texts: readonly string[],
  ownKeys: readonly (keyof Table)[],
): PassedFlags<Table> {
  const words = texts.map((text) => `--${text.replace(/^-+/, '')}`);
  try {
    // Parses each flag separately, so that a name without its value does not use the next flag as its value.
    for (const word of words) parseFlags(table, [word]);
    const { values, given, warnings } = parseFlags(table, words);
    for (const key of ownKeys)
      if (given.has(key)) throw new UsageError(`--${table[key]?.name} is set by this command itself`);
    return {
      values: Object.fromEntries(Object.entries(values).filter(([key]) => given.has(key))) as Partial<
        FlagValues<Table>
      >,
      warnings,
    };
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    throw new UsageError(`--${through}: ${error.message}`, { cause: error });
  }
}
