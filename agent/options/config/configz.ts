/**
 * Builds the response of `/configz`: the effective options in the form of a `KubeletConfiguration`, the other flags, and the
 * origin of each value.
 */
import type { FlagType, FlagTypes } from '../../../api/component/flags.ts';
import { setMember } from '../../../api/meta/own-member.ts';
import { type AgentFlags, agentOptions } from '../agent-options.ts';
import type { AnyOption } from '../option.ts';
import { CONFIG_KIND, CONFIG_VERSION } from './config-file.ts';
import type { EffectiveOptions } from './effective-options.ts';
import { shownValue } from './flagz.ts';
import { isZero, writeField } from './field-value.ts';

interface Configz {
  readonly kubeletconfig: object;
  /** The flags without a field in the file. Flags without effect appear only if they are set. */
  readonly flags: Readonly<Record<string, unknown>>;
  /** The origin of each value: `default`, `flag`, a file or `runtime`, by field path or `--flag`. */
  readonly origins: Readonly<Record<string, string>>;
}

type Members = { [name: string]: unknown };

/** Builds the response. Values of `detected`, which come from the container runtime, replace those of the options. */
export function configz({ flags, origins }: EffectiveOptions, detected: Partial<AgentFlags> = {}): Configz {
  const config: Members = { kind: CONFIG_KIND, apiVersion: CONFIG_VERSION };
  const others: Members = {};
  const shownOrigins: Record<string, string> = {};
  const values = { ...flags, ...detected } as Readonly<Record<string, FlagTypes[FlagType]>>;
  for (const [key, row] of Object.entries<AnyOption>(agentOptions)) {
    const value = values[key] ?? row.default;
    const origin = key in detected ? 'runtime' : (origins.get(key) ?? 'default');
    if (row.config !== undefined) {
      setField(config, row, value);
      shownOrigins[row.config.path] = origin;
    } else if (key !== 'version' && (row.noEffect === undefined || origin !== 'default')) {
      others[row.name] = shownValue(row.name, writeField(row, value));
      shownOrigins[`--${row.name}`] = origin;
    }
  }
  return { kubeletconfig: config, flags: others, origins: shownOrigins };
}

function setField(config: Members, row: AnyOption, value: FlagTypes[FlagType]): void {
  const { path = '', optional, keepsZero } = row.config ?? {};
  if (optional === true && JSON.stringify(value) === JSON.stringify(row.default)) return;
  const names = path.split('.');
  const last = names.pop() ?? '';
  let members = config;
  for (const name of names) {
    const inner = members[name] ?? {};
    members[name] = inner;
    members = inner as Members;
  }
  // Durations are written also when they are zero; other zeros only where zero is a value of its own.
  if (isZero(value) && keepsZero !== true && row.type !== 'duration') return;
  setMember(members, last, writeField(row, value));
}
