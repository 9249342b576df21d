/**
 * Computes the effective options. The configuration file overrides the defaults, its drop-ins override the file in the
 * order of their names, and the flags override both. Every value has its origin. A changed file takes effect when the agent
 * restarts.
 */
import { join } from 'node:path';
import type { FlagType, FlagTypes } from '../../../api/component/flags.ts';
import { applyMergePatch } from '../../../api/codec/merge-patch.ts';
import type { JsonObject, JsonValue } from '../../../api/meta/object.ts';
import { type AgentFlags, agentOptions } from '../agent-options.ts';
import { ConfigurationError } from '../../base/model/configuration-error.ts';
import { plainThresholds } from '../json-forms.ts';
import type { AnyOption, OptionTable } from '../option.ts';
import { type ConfigFile, dropInFiles, readConfigFile } from './config-file.ts';
import { type FeatureGates, resolveFeatureGates } from './feature-gates.ts';
import { isZero, readField, writeField } from './field-value.ts';
import { validateOptions } from './validate-options.ts';

/** `default`, `flag`, or the path of the file. */
export type Origin = string;

/** The options with which the agent runs, immutable until it restarts. */
export interface EffectiveOptions {
  readonly flags: AgentFlags;
  /** The origin of each value by the option's key. */
  readonly origins: ReadonlyMap<string, Origin>;
  readonly gates: FeatureGates;
  /** One line for each field of a file that is set without effect, and the warnings of the feature gates. */
  readonly warnings: readonly string[];
}

interface GivenOptions {
  /** The parsed flags by key. Only those in `given` count. */
  readonly values: Partial<AgentFlags>;
  readonly given: ReadonlySet<string>;
}

/** Merges flags, configuration files and defaults, and validates the result. Throws `ConfigurationError`. */
export async function effectiveOptions({ values, given }: GivenOptions): Promise<EffectiveOptions> {
  const table: OptionTable = agentOptions;
  const files: ConfigFile[] = [];
  const hasFile = given.has('config') && values.config !== undefined && values.config !== '';
  if (hasFile) files.push(await readConfigFile(values.config ?? '', table));
  if (given.has('configDir') && values.configDir !== undefined && values.configDir !== '')
    for (const file of await dropInFiles(values.configDir)) files.push(await readConfigFile(file, table));
  const merged = mergeFiles(files, hasFile);
  const result: Record<string, FlagTypes[FlagType]> = {};
  const origins = new Map<string, Origin>();
  const warnings: string[] = [];
  for (const [key, row] of Object.entries(table)) {
    const fromFile = fileValue(row, merged);
    const flag = given.has(key)
      ? (values as Readonly<Record<string, FlagTypes[FlagType] | undefined>>)[key]
      : undefined;
    if (flag !== undefined) {
      result[key] = flag;
      origins.set(key, 'flag');
    } else if (fromFile !== undefined) {
      const file = merged.originOf(row.config?.path ?? '');
      result[key] = fromFile;
      origins.set(key, file);
      if (
        row.noEffect !== undefined &&
        JSON.stringify(writeField(row, fromFile)) !== JSON.stringify(writeField(row, row.default))
      )
        warnings.push(`${file}: the field ${row.config?.path} has no effect: ${row.noEffect}`);
    } else {
      result[key] = (hasFile ? row.config?.fileDefault : undefined) ?? row.default;
      origins.set(key, 'default');
    }
  }
  // Gates of the file that the flag does not name stay.
  const gates = {
    ...(fileValue(agentOptions.featureGates, merged) as Readonly<Record<string, string>> | undefined),
    ...(given.has('featureGates') ? values.featureGates : {}),
  };
  const flags = completed({ ...result, featureGates: gates } as unknown as AgentFlags, origins);
  const resolved = resolveFeatureGates(gates);
  validateOptions(flags, resolved);
  return { flags, origins, gates: resolved, warnings: [...warnings, ...resolved.warnings] };
}

interface MergedFiles {
  readonly fields: JsonObject;
  /** The fields of the drop-ins alone. */
  readonly dropped: JsonObject;
  originOf(path: string): string;
}

/**
 * Merges the configuration files. Each drop-in is a merge patch for those before it: maps merge by key, lists and scalars are
 * replaced, and null removes. The result is merged into the configuration file, from which null removes nothing, as in the
 * kubelet.
 */
function mergeFiles(files: readonly ConfigFile[], hasFile: boolean): MergedFiles {
  let base: JsonObject = {};
  let dropped: JsonObject = {};
  const origins = new Map<string, string>();
  for (const [index, { file, fields: patch }] of files.entries()) {
    // The thresholds of a drop-in are added to the default ones, because the configuration that it is merged into has the
    // defaults.
    const isDropIn = index > 0 || !hasFile;
    if (isDropIn && at(base, 'evictionHard') === undefined)
      base = applyMergePatch(base, {
        evictionHard: writeField(agentOptions.evictionHard, agentOptions.evictionHard.default),
      });
    if (isDropIn) dropped = applyMergePatch(dropped, patch);
    else base = applyMergePatch(base, patch);
    for (const row of Object.values<AnyOption>(agentOptions)) {
      const { path } = row.config ?? {};
      const value = path === undefined ? undefined : at(patch, path);
      if (path !== undefined && value !== undefined && value !== null) origins.set(path, file);
    }
  }
  return { fields: applyMergePatch(base, dropped), dropped, originOf: (path) => origins.get(path) ?? 'default' };
}

function at(fields: JsonObject, path: string): JsonValue | undefined {
  let value: JsonValue | undefined = fields;
  for (const name of path.split('.')) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
    value = value[name];
  }
  return value;
}

/**
 * Returns the value of the files; `undefined` if no file has it, or only a zero that counts as absent, as in the kubelet.
 * Throws a `ConfigurationError` for a zero that counts and is not valid.
 */
function fileValue(row: AnyOption, { fields, dropped }: MergedFiles): FlagTypes[FlagType] | undefined {
  if (row.config === undefined) return undefined;
  const json = at(fields, row.config.path);
  if (json === undefined || json === null) return undefined;
  const read = readField(row, json);
  if ('problem' in read) return undefined;
  if (row.config.keepsZero === true || !isZero(read.value)) return read.value;
  // An empty text counts as absent: no option has a use for one that its default does not serve as well.
  if (row.type === 'string' || at(dropped, row.config.path) === undefined) return undefined;
  const problem = (row.check as ((value: unknown) => string | undefined) | undefined)?.(read.value);
  if (problem !== undefined) throw new ConfigurationError(`the field ${row.config.path} ${problem}`);
  return read.value;
}

/** Completes the options that depend on others. */
function completed(flags: AgentFlags, origins: Map<string, Origin>): AgentFlags {
  const defaults = plainThresholds(agentOptions.evictionHard.default);
  const hard = plainThresholds(flags.evictionHard);
  const merges = flags.mergeDefaultEvictionSettings;
  return {
    ...flags,
    certDir:
      origins.get('certDir') === 'default' && origins.get('rootDir') !== 'default'
        ? join(flags.rootDir, 'pki')
        : flags.certDir,
    evictionHard: merges ? { ...defaults, ...hard } : hard,
    evictionSoft: plainThresholds(flags.evictionSoft),
  };
}

/** Returns a warning for each given flag that should be a field of the configuration file instead. */
export function preferFileWarnings(given: ReadonlySet<string>): readonly string[] {
  return Object.entries<AnyOption>(agentOptions)
    .filter(
      ([key, row]) => given.has(key) && row.name !== '' && row.config !== undefined && row.config.flagStays !== true,
    )
    .map(
      ([, row]) =>
        `Flag --${row.name} has been deprecated, This parameter should be set via the config file specified by the kubelet's --config flag. See https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/ for more information.`,
    );
}
