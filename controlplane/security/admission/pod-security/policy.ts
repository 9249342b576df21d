/** Reads the Pod Security levels of a namespace from its labels. */
import { invalid, type FieldError } from '../../../../api/meta/field-error.ts';

/** The levels of the Pod Security Standards, from the least to the most restrictive. */
export type Level = 'privileged' | 'baseline' | 'restricted';
/** What a violation causes: a refusal, an audit annotation, or a warning. */
export type Mode = 'enforce' | 'audit' | 'warn';

/** A level as a certain release of Kubernetes defines it. */
export interface LevelVersion {
  readonly level: Level;
  /** The version as in the label: `latest` or `v1.25`. */
  readonly version: string;
  /** The minor version; infinite for `latest`. */
  readonly minor: number;
}

/** The level of each mode, after the defaults have been applied. */
export type Policy = Readonly<Record<Mode, LevelVersion>>;

const PREFIX = 'pod-security.kubernetes.io/';
const LEVELS = ['privileged', 'baseline', 'restricted'] as const;
const PRIVILEGED: LevelVersion = { level: 'privileged', version: 'latest', minor: Number.POSITIVE_INFINITY };

/** Orders levels: a higher rank is more restrictive. */
export function levelRank(level: Level): number {
  return LEVELS.indexOf(level);
}

type Labels = Readonly<Record<string, string>>;

/**
 * Reads the policy of a namespace. `defaults` has the form of labels.
 *
 * An unknown level counts as `restricted` for `enforce`, and as `privileged` for `audit` and `warn`. An unknown version counts
 * as the newest. All are reported as errors, too. If the label of a namespace enforces a level that is stricter than the
 * default of `warn`, and the namespace has no label for `warn`, it warns of the enforced level, so that the templates of
 * workloads cause warnings.
 */
export function policyOf(
  namespaceLabels: Labels | undefined,
  defaults: Labels = {},
): {
  readonly policy: Policy;
  readonly errors: readonly FieldError[];
} {
  const errors: FieldError[] = [];
  const labels: Labels = { ...defaults, ...namespaceLabels };
  const read = (mode: Mode): LevelVersion => {
    let level: Level = 'privileged';
    const text = labels[PREFIX + mode];
    if (text !== undefined) {
      const named = LEVELS.find((one) => one === text);
      if (named === undefined)
        errors.push(invalid(fieldOf(mode), text, 'must be one of privileged, baseline, restricted'));
      level = named ?? (mode === 'enforce' ? 'restricted' : 'privileged');
    }
    const version = labels[`${PREFIX}${mode}-version`];
    if (version === undefined) return { ...PRIVILEGED, level };
    if (version === 'latest') return { level, version, minor: Number.POSITIVE_INFINITY };
    const minor = /^v1\.(0|[1-9]\d*)$/.exec(version)?.[1];
    if (minor !== undefined) return { level, version, minor: Number(minor) };
    errors.push(invalid(fieldOf(`${mode}-version`), version, 'must be "latest" or "v1.x"'));
    return { ...PRIVILEGED, level };
  };
  const [enforce, audit, warn] = [read('enforce'), read('audit'), read('warn')];
  const isEnforced = LEVELS.some((level) => level === namespaceLabels?.[`${PREFIX}enforce`]);
  const isStricter = levelRank(enforce.level) > levelRank(warn.level);
  if (!isEnforced || !isStricter || namespaceLabels?.[`${PREFIX}warn`] !== undefined)
    return { policy: { enforce, audit, warn }, errors };
  const follows =
    namespaceLabels?.[`${PREFIX}warn-version`] === undefined ? enforce : { ...warn, level: enforce.level };
  return { policy: { enforce, audit, warn: follows }, errors };
}

const fieldOf = (label: string): string => `metadata.labels[${PREFIX}${label}]`;

/** Returns the form of messages and audit annotations, such as `baseline:latest`. */
export const formatLevel = ({ level, version }: LevelVersion): string => `${level}:${version}`;
