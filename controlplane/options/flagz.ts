/** Builds what `/flagz` shows: every flag with its value. */
import { flagText } from '../../api/component/flag-text.ts';
import type { AnyFlag, FlagType, FlagTypes } from '../../api/component/flags.ts';
import { type ControlPlaneFlags, controlPlaneFlags } from './controlplane-options.ts';

/** An address with a user name, and so perhaps with a password. */
const CREDENTIALS = /:\/\/[^/\s,]*@/;

/** Returns the values as texts by the names of the flags. `CLASSIFIED` stands for addresses with credentials. */
export function flagz(flags: ControlPlaneFlags): Readonly<Record<string, string>> {
  const values: Readonly<Record<string, FlagTypes[FlagType]>> = flags;
  return Object.fromEntries(
    Object.entries<AnyFlag>(controlPlaneFlags).map(([key, row]) => {
      const text = flagText(row.type, values[key] ?? row.default);
      return [row.name, CREDENTIALS.test(text) ? 'CLASSIFIED' : text];
    }),
  );
}
