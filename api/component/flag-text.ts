/** Formats the values of flags as `/flagz` shows them. */
import { formatDuration } from './duration.ts';
import type { FlagType, FlagTypes } from './flags.ts';

/** Formats a value as pflag does, the flag library of Kubernetes' programs. */
export function flagText(type: FlagType, value: FlagTypes[FlagType]): string {
  if (type === 'duration' && typeof value === 'number') return formatDuration(value);
  if (Array.isArray(value)) return `[${value.join(',')}]`;
  if (typeof value === 'object')
    return Object.entries(value)
      .map(([name, text]) => (String(text).startsWith('<') ? `${name}${text}` : `${name}=${text}`))
      .toSorted()
      .join(',');
  return String(value);
}
