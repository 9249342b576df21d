/**
 * A row of the agent's option table: a flag, a field of the `KubeletConfiguration` file, or both. Parser, file reader, `--help`,
 * documentation, completion and `/configz` derive from the rows. Every row either is read by the agent or says in `noEffect`
 * why nothing follows from it here; a test holds that.
 */
import type { Flag, FlagType, FlagTypes } from '../../api/component/flags.ts';

/** How a value stands in the configuration file, where it is not what its type suggests. */
export interface JsonForm<T extends FlagType> {
  /** What the file's documentation calls it: `list of taints`. */
  readonly form: string;
  /** The value, or an error text. `null` and absence never come here. */
  readonly read: (json: unknown) => { readonly value: FlagTypes[T] } | { readonly problem: string };
  readonly write: (value: FlagTypes[T]) => unknown;
}

export interface ConfigField<T extends FlagType> {
  /** `authentication.x509.clientCAFile`. */
  readonly path: string;
  /** Zero is a value of its own; for the other fields zero in the file means the default, as upstream. */
  readonly keepsZero?: true;
  /** Not set by default: `/configz` shows it only when it is. */
  readonly optional?: true;
  /** The default where a configuration file is given. */
  readonly fileDefault?: FlagTypes[T];
  /** A path: relative to the directory of the file that says it. */
  readonly isPath?: true;
  readonly json?: JsonForm<T>;
  /** The flag is as good as the field: nobody is told to use the file instead. */
  readonly flagStays?: true;
}

export interface AgentOption<T extends FlagType = FlagType> extends Flag<T> {
  readonly config?: ConfigField<T>;
}

export type AnyOption = { readonly [T in FlagType]: AgentOption<T> }[FlagType];
export type OptionTable = Readonly<Record<string, AnyOption>>;

export function option<T extends FlagType>(row: AgentOption<T>): AgentOption<T> {
  return row;
}

/** A field of the configuration file that has no flag. */
export function field<T extends FlagType>(
  row: Omit<AgentOption<T>, 'name' | 'config'> & { readonly config: ConfigField<T> },
): AgentOption<T> {
  return { ...row, name: '' };
}

/** How messages call the option: `--port`, or `the field nodeLeaseDurationSeconds`. */
export function nameOf(row: AnyOption): string {
  return row.name === '' ? `the field ${row.config?.path ?? '?'}` : `--${row.name}`;
}
