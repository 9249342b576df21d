/**
 * Defines a row of the agent's option table: a flag, a field of the `KubeletConfiguration` file, or both. The parser, the
 * file reader, `--help`, the documentation, shell completion and `/configz` are derived from the rows. The agent reads the
 * value of every row, or `noEffect` says why the option has no effect.
 */
import type { Flag, FlagType, FlagTypes } from '../../api/component/flags.ts';

/** The form of a value in the configuration file, if it differs from the flag. */
export interface JsonForm<T extends FlagType> {
  /** The name of the form in the documentation, such as `list of taints`. */
  readonly form: string;
  /** Returns the value or an error text. Never called for `null` or an absent field. */
  readonly read: (json: unknown) => { readonly value: FlagTypes[T] } | { readonly problem: string };
  readonly write: (value: FlagTypes[T]) => unknown;
}

interface ConfigField<T extends FlagType> {
  /** The path of the field in the configuration, such as `authentication.x509.clientCAFile`. */
  readonly path: string;
  /** Zero is a valid value. For other fields, zero in the file means the default, as in the kubelet. */
  readonly keepsZero?: true;
  /** The field has no default. `/configz` shows it only if it is set. */
  readonly optional?: true;
  /** The default if a configuration file is used. The kubelet's defaults of flags and files differ for some options. */
  readonly fileDefault?: FlagTypes[T];
  /** The value is a path, relative to the directory of the file that contains it. */
  readonly isPath?: true;
  readonly json?: JsonForm<T>;
  /** The flag is not deprecated in favour of the field, so it causes no warning. */
  readonly flagStays?: true;
}

interface AgentOption<T extends FlagType = FlagType> extends Flag<T> {
  readonly config?: ConfigField<T>;
}

/** A row of any type. */
export type AnyOption = { readonly [T in FlagType]: AgentOption<T> }[FlagType];
/** Rows by the keys that the code uses, such as `podManifestPath`. */
export type OptionTable = Readonly<Record<string, AnyOption>>;

/** Declares a row, so that the type of its default and its check follow from `type`. */
export function option<T extends FlagType>(row: AgentOption<T>): AgentOption<T> {
  return row;
}

/** Declares a field of the configuration file that has no flag. */
export function field<T extends FlagType>(
  row: Omit<AgentOption<T>, 'name' | 'config'> & { readonly config: ConfigField<T> },
): AgentOption<T> {
  return { ...row, name: '' };
}
