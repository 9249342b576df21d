/** Validates where a pod may run: node selectors, affinity, tolerations and topology spread constraints. */
import { duplicate, type FieldError, forbidden, invalid, required, unsupportedValue } from '../meta/field-error.ts';
import { dnsLabelErrors, dnsSubdomainErrors, labelValueErrors } from '../meta/names.ts';
import { validateLabelSelector, validateLabelName } from '../meta/selector.ts';
import type { Affinity, PodSpec, Toleration } from './pod-types.ts';
import { invalidFor, isBlank } from './validation-rules.ts';

interface NodeRequirement {
  key?: string | undefined;
  operator?: string | undefined;
  values?: string[] | undefined;
}

interface NodeTerm {
  matchExpressions?: NodeRequirement[] | undefined;
  matchFields?: NodeRequirement[] | undefined;
}

function expressionErrors(
  requirement: NodeRequirement,
  at: string,
  { strict }: { readonly strict: boolean },
): FieldError[] {
  const errors: FieldError[] = [];
  const { key = '', operator = '', values = [] } = requirement;
  switch (operator) {
    case 'In':
    case 'NotIn':
      if (values.length === 0)
        errors.push(required(`${at}.values`, "must be specified when `operator` is 'In' or 'NotIn'"));
      break;
    case 'Exists':
    case 'DoesNotExist':
      if (values.length > 0)
        errors.push(forbidden(`${at}.values`, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
      break;
    case 'Gt':
    case 'Lt':
      if (values.length !== 1)
        errors.push(required(`${at}.values`, "must be specified single value when `operator` is 'Lt' or 'Gt'"));
      break;
    default:
      errors.push(invalid(`${at}.operator`, operator, 'not a valid selector operator'));
  }
  errors.push(...validateLabelName(key, `${at}.key`));
  if (strict) {
    for (const [index, value] of values.entries())
      errors.push(...invalidFor(`${at}.values[${index}]`, value, labelValueErrors(value)));
  }
  return errors;
}

function fieldErrors(requirement: NodeRequirement, at: string): FieldError[] {
  const errors: FieldError[] = [];
  const { key = '', operator = '', values = [] } = requirement;
  if (operator === 'In' || operator === 'NotIn') {
    if (values.length !== 1)
      errors.push(
        required(`${at}.values`, "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"),
      );
  } else errors.push(invalid(`${at}.operator`, operator, 'not a valid selector operator'));
  if (key === 'metadata.name') {
    for (const [index, value] of values.entries())
      errors.push(...invalidFor(`${at}.values[${index}]`, value, dnsSubdomainErrors(value)));
  } else errors.push(invalid(`${at}.key`, key, 'not a valid field selector key'));
  return errors;
}

/**
 * Returns the errors of a node selector term. With `strict`, values must be valid label values. Preferred terms may contain
 * other values.
 */
function nodeTermErrors(term: NodeTerm, at: string, options: { readonly strict: boolean }): FieldError[] {
  return [
    ...(term.matchExpressions ?? []).flatMap((one, index) =>
      expressionErrors(one, `${at}.matchExpressions[${index}]`, options),
    ),
    ...(term.matchFields ?? []).flatMap((one, index) => fieldErrors(one, `${at}.matchFields[${index}]`)),
  ];
}

/** Returns the errors of a node selector, whose values must be valid label values. */
export function nodeSelectorErrors(selector: { nodeSelectorTerms?: NodeTerm[] | undefined }, at: string): FieldError[] {
  const terms = selector.nodeSelectorTerms ?? [];
  if (terms.length === 0) return [required(`${at}.nodeSelectorTerms`, 'must have at least one node selector term')];
  return terms.flatMap((term, index) => nodeTermErrors(term, `${at}.nodeSelectorTerms[${index}]`, { strict: true }));
}

/** Validates node affinity, pod affinity and pod anti-affinity. */
export function affinityErrors(affinity: Affinity | undefined, at: string): FieldError[] {
  if (affinity === undefined) return [];
  const errors: FieldError[] = [];
  const { nodeAffinity, podAffinity, podAntiAffinity } = affinity;
  if (nodeAffinity !== undefined) {
    const path = `${at}.nodeAffinity`;
    const needed = nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution;
    if (needed !== undefined)
      errors.push(...nodeSelectorErrors(needed, `${path}.requiredDuringSchedulingIgnoredDuringExecution`));
    for (const [index, term] of (nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution ?? []).entries()) {
      const termPath = `${path}.preferredDuringSchedulingIgnoredDuringExecution[${index}]`;
      if ((term.weight ?? 0) <= 0 || (term.weight ?? 0) > 100)
        errors.push(invalid(`${termPath}.weight`, term.weight ?? 0, 'must be in the range 1-100'));
      errors.push(...nodeTermErrors(term.preference ?? {}, `${termPath}.preference`, { strict: false }));
    }
  }
  for (const [name, group] of [
    ['podAffinity', podAffinity],
    ['podAntiAffinity', podAntiAffinity],
  ] as const) {
    if (group === undefined) continue;
    for (const [index, term] of (group.requiredDuringSchedulingIgnoredDuringExecution ?? []).entries()) {
      errors.push(...podTermErrors(term, `${at}.${name}.requiredDuringSchedulingIgnoredDuringExecution[${index}]`));
    }
    for (const [index, weighted] of (group.preferredDuringSchedulingIgnoredDuringExecution ?? []).entries()) {
      const termPath = `${at}.${name}.preferredDuringSchedulingIgnoredDuringExecution[${index}]`;
      if ((weighted.weight ?? 0) <= 0 || (weighted.weight ?? 0) > 100)
        errors.push(invalid(`${termPath}.weight`, weighted.weight ?? 0, 'must be in the range 1-100'));
      errors.push(...podTermErrors(weighted.podAffinityTerm ?? {}, `${termPath}.podAffinityTerm`));
    }
  }
  return errors;
}

type PodTerm = NonNullable<
  NonNullable<NonNullable<Affinity['podAffinity']>['requiredDuringSchedulingIgnoredDuringExecution']>[number]
>;

function podTermErrors(term: PodTerm, at: string): FieldError[] {
  const errors: FieldError[] = [];
  errors.push(...validateLabelSelector(term.labelSelector as never, `${at}.labelSelector`));
  errors.push(...validateLabelSelector(term.namespaceSelector as never, `${at}.namespaceSelector`));
  for (const name of term.namespaces ?? []) errors.push(...invalidFor(`${at}.namespace`, name, dnsLabelErrors(name)));
  errors.push(...labelKeyErrors(term, at));
  if (isBlank(term.topologyKey)) errors.push(required(`${at}.topologyKey`, 'can not be empty'));
  errors.push(...validateLabelName(term.topologyKey ?? '', `${at}.topologyKey`));
  return errors;
}

function labelKeyErrors(term: PodTerm, at: string): FieldError[] {
  const errors: FieldError[] = [];
  const { matchLabelKeys = [], mismatchLabelKeys = [] } = term;
  for (const [name, keys] of [
    ['matchLabelKeys', matchLabelKeys],
    ['mismatchLabelKeys', mismatchLabelKeys],
  ] as const) {
    if (keys.length > 0 && term.labelSelector === undefined) {
      errors.push(forbidden(`${at}.${name}`, 'must not be specified when labelSelector is not set'));
      continue;
    }
    for (const [index, key] of keys.entries()) errors.push(...validateLabelName(key, `${at}.${name}[${index}]`));
  }
  errors.push(...selectedTwiceErrors(term, at));
  const other = new Set(mismatchLabelKeys);
  for (const [index, key] of matchLabelKeys.entries()) {
    if (other.has(key))
      errors.push(
        invalid(`${at}.matchLabelKeys[${index}]`, key, 'exists in both matchLabelKeys and mismatchLabelKeys'),
      );
  }
  return errors;
}

/**
 * Refuses keys of `matchLabelKeys` that are also in the label selector. Each such key is merged into the selector before, so it
 * is refused if the selector contains it twice.
 */
function selectedTwiceErrors(
  { matchLabelKeys = [], labelSelector }: Pick<PodTerm, 'matchLabelKeys' | 'labelSelector'>,
  at: string,
): FieldError[] {
  const errors: FieldError[] = [];
  const seen = new Set(Object.keys(labelSelector?.matchLabels ?? {}));
  for (const { key = '' } of labelSelector?.matchExpressions ?? []) {
    const index = matchLabelKeys.lastIndexOf(key);
    if (index >= 0 && seen.has(key))
      errors.push(invalid(`${at}[${index}]`, key, 'exists in both matchLabelKeys and labelSelector'));
    seen.add(key);
  }
  return errors;
}

const EFFECTS = ['NoSchedule', 'PreferNoSchedule', 'NoExecute'];
const OPERATORS = ['Equal', 'Exists'];
/** The operators behind a disabled feature gate, which kube-apiserver's error message lists. */
const COMPARISONS = ['Lt', 'Gt'];

/** Validates tolerations. */
export function tolerationErrors(tolerations: readonly Toleration[], path: string): FieldError[] {
  const errors: FieldError[] = [];
  for (const [index, toleration] of tolerations.entries()) {
    const at = `${path}[${index}]`;
    const { key = '', operator = '', value = '', effect = '' } = toleration;
    if (key !== '') errors.push(...validateLabelName(key, `${at}.key`));
    if (key === '' && operator !== 'Exists') {
      errors.push(
        invalid(
          `${at}.operator`,
          operator,
          'operator must be Exists when `key` is empty, which means "match all values and all keys"',
        ),
      );
    }
    if (toleration.tolerationSeconds !== undefined && effect !== 'NoExecute') {
      errors.push(invalid(`${at}.effect`, effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"));
    }
    switch (operator) {
      case 'Equal':
      case '':
        if (labelValueErrors(value).length > 0)
          errors.push(invalid(`${at}.operator`, value, labelValueErrors(value).join(';')));
        break;
      case 'Exists':
        if (value !== '')
          errors.push(invalid(`${at}.operator`, value, "value must be empty when `operator` is 'Exists'"));
        break;
      default:
        errors.push(
          unsupportedValue(
            `${at}.operator`,
            operator,
            COMPARISONS.includes(operator) ? [...OPERATORS, ...COMPARISONS] : OPERATORS,
          ),
        );
    }
    if (effect !== '')
      errors.push(...(EFFECTS.includes(effect) ? [] : [unsupportedValue(`${at}.effect`, effect, EFFECTS)]));
  }
  return errors;
}

const INCLUSION = ['Honor', 'Ignore'];
const UNSATISFIABLE = ['DoNotSchedule', 'ScheduleAnyway'];

/** Validates topology spread constraints. */
export function spreadErrors(spec: PodSpec, path: string): FieldError[] {
  const errors: FieldError[] = [];
  const constraints = spec.topologySpreadConstraints ?? [];
  for (const [index, constraint] of constraints.entries()) {
    const at = `${path}[${index}]`;
    const { maxSkew = 0, topologyKey = '', whenUnsatisfiable = '', minDomains } = constraint;
    if (maxSkew <= 0) errors.push(invalid(`${at}.maxSkew`, maxSkew, 'must be greater than zero'));
    if (topologyKey === '') errors.push(required(`${at}.topologyKey`, 'can not be empty'));
    if (!UNSATISFIABLE.includes(whenUnsatisfiable))
      errors.push(unsupportedValue(`${at}.whenUnsatisfiable`, whenUnsatisfiable, UNSATISFIABLE));
    const repeated = constraints
      .slice(index + 1)
      .some((other) => other.topologyKey === topologyKey && other.whenUnsatisfiable === whenUnsatisfiable);
    if (repeated)
      errors.push(duplicate(`${at}.{topologyKey, whenUnsatisfiable}`, `{${topologyKey}, ${whenUnsatisfiable}}`));
    if (minDomains !== undefined) {
      if (minDomains <= 0) errors.push(invalid(`${at}.minDomains`, minDomains, 'must be greater than zero'));
      if (whenUnsatisfiable !== 'DoNotSchedule') {
        errors.push(
          invalid(
            `${at}.minDomains`,
            minDomains,
            `can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ${whenUnsatisfiable}`,
          ),
        );
      }
    }
    for (const name of ['nodeAffinityPolicy', 'nodeTaintsPolicy'] as const) {
      const policy = constraint[name];
      if (policy !== undefined && !INCLUSION.includes(policy))
        errors.push(unsupportedValue(`${at}.${name}`, policy, INCLUSION));
    }
    errors.push(...spreadKeyErrors(constraint, at));
    errors.push(...validateLabelSelector(constraint.labelSelector as never, `${at}.labelSelector`));
  }
  return errors;
}

function spreadKeyErrors(
  constraint: NonNullable<PodSpec['topologySpreadConstraints']>[number],
  at: string,
): FieldError[] {
  const keys = constraint.matchLabelKeys ?? [];
  if (keys.length === 0) return [];
  const field = `${at}.matchLabelKeys`;
  return [
    ...(constraint.labelSelector === undefined
      ? [forbidden(field, 'must not be specified when labelSelector is not set')]
      : selectedTwiceErrors(constraint, at)),
    ...keys.flatMap((key, index) => validateLabelName(key, `${field}[${index}]`)),
  ];
}
