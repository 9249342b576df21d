/**
 * Builds the response of `/flagz`: every flag with its value on the command line, else its default. Values from files appear in
 * `/configz` only.
 */
import type { FlagType, FlagTypes } from '../../../api/component/flags.ts';
import { flagText } from '../../../api/component/flag-text.ts';
import type { AnyOption } from '../option.ts';
import { agentFlags } from '../agent-options.ts';
import type { EffectiveOptions } from './effective-options.ts';

/** The flags whose values may contain passwords. */
const SECRET = new Set(['manifest-url-header', 'storage-driver-password']);
const CLASSIFIED = 'CLASSIFIED';

/** Returns the value of a flag as pages show it: `CLASSIFIED` if it may contain a password. */
export function shownValue<T>(name: string, value: T): T | typeof CLASSIFIED {
  return SECRET.has(name) ? CLASSIFIED : value;
}

/** Returns the values as texts by the names of the flags. Secrets are replaced by `CLASSIFIED`, as Kubernetes does. */
export function flagz({ flags, origins }: EffectiveOptions): Readonly<Record<string, string>> {
  const values = flags as Readonly<Record<string, FlagTypes[FlagType]>>;
  return Object.fromEntries(
    Object.entries<AnyOption>(agentFlags).map(([key, row]) => {
      const value = origins.get(key) === 'flag' ? (values[key] ?? row.default) : row.default;
      return [row.name, shownValue(row.name, flagText(row.type, value))];
    }),
  );
}
