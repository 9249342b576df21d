/**
 * Computes the enabled feature gates from `--feature-gates` and the file's `featureGates`. AllAlpha and AllBeta apply first,
 * and single gates override them.
 */
import { type ActiveGate, activeGates, featureGates, type GateStage } from '../feature-gates.ts';
import { ConfigurationError } from '../../base/model/configuration-error.ts';
import { quoteText } from '../../../api/meta/quote.ts';

/** The state of all feature gates. */
export interface FeatureGates {
  enabled(gate: ActiveGate): boolean;
  /** Every gate with its state, also those that the agent does not read, for the metrics. */
  readonly all: readonly { readonly name: string; readonly stage: GateStage; readonly enabled: boolean }[];
  /** One line for each gate that was set and is graduated or deprecated, or that was changed without effect in the agent. */
  readonly warnings: readonly string[];
}

const ALL = { AllAlpha: 'alpha', AllBeta: 'beta' } as const;

/**
 * Returns the state of all feature gates. Throws `ConfigurationError` for an unknown or locked gate, and for a value that is
 * not a boolean.
 */
export function resolveFeatureGates(wanted: Readonly<Record<string, string>>): FeatureGates {
  const states = new Map([...featureGates].map(([name, gate]) => [name, gate.default]));
  const warnings: string[] = [];
  const parsed = new Map(Object.entries(wanted).map(([name, text]) => [name.trim(), booleanOf(name, text)]));
  for (const [group, stage] of Object.entries(ALL)) {
    const value = parsed.get(group);
    if (value === undefined) continue;
    for (const [name, gate] of featureGates)
      if (gate.stage === stage && !parsed.has(name) && !(name in ALL)) states.set(name, value);
  }
  for (const [name, value] of parsed) {
    const gate = featureGates.get(name);
    if (gate === undefined) throw new ConfigurationError(`unrecognized feature gate: ${name}`);
    if (gate.locked && value !== gate.default)
      throw new ConfigurationError(`cannot set feature gate ${name} to ${value}, feature is locked to ${gate.default}`);
    states.set(name, value);
    if (gate.stage === 'ga' || gate.stage === 'deprecated')
      warnings.push(
        `Setting ${gate.stage === 'ga' ? 'GA' : 'deprecated'} feature gate ${name}=${value}. It will be removed in a future release.`,
      );
    else if (!(name in activeGates) && !(name in ALL) && value !== gate.default)
      warnings.push(
        `Feature gate ${name} has no effect: ${gate.default ? 'the agent always does what it guards, or it guards no part of the agent' : 'the agent does not implement what it guards, or always does it'}`,
      );
  }
  const all = [...featureGates].map(([name, { stage }]) => ({ name, stage, enabled: states.get(name) ?? false }));
  return { enabled: (gate) => states.get(gate) ?? false, all, warnings };
}

function booleanOf(name: string, text: string): boolean {
  if (/^(1|t|T|true|TRUE|True)$/.test(text)) return true;
  if (/^(0|f|F|false|FALSE|False)$/.test(text)) return false;
  throw new ConfigurationError(
    `invalid value of ${name}: ${text}, err: strconv.ParseBool: parsing ${quoteText(text)}: invalid syntax`,
  );
}
