/**
 * Matches label selectors, which are lists of requirements, and converts an object's `LabelSelector` to one.
 * `selector-parser.ts` parses the text form (`app in (a,b),!tier`).
 *
 * A selector is immutable.
 */
import type { V1LabelSelector, V1LabelSelectorRequirement } from '@kubernetes/client-node';
import { FieldError, forbidden, invalid, quote, required, tooMany } from './field-error.ts';
import { labelValueErrors, qualifiedNameErrors } from './names.ts';
import { ownMember } from './own-member.ts';
import { newBadRequest } from './status-error.ts';

/** An operator; some have two spellings. */
export type LabelOperator = 'in' | 'notin' | '=' | '==' | '!=' | 'exists' | '!' | 'gt' | 'lt';
/** The labels of an object. */
export type Labels = Readonly<Record<string, string>>;

/** One condition on a key. */
export interface LabelRequirement {
  readonly key: string;
  readonly operator: LabelOperator;
  /** The values, sorted and without duplicates. */
  readonly values: readonly string[];
}

/** All requirements must match. */
export interface Selector {
  /** The requirements, sorted by key. */
  readonly requirements: readonly LabelRequirement[];
  /** Whether the selector matches everything. */
  readonly isEmpty: boolean;
  matches(labels: Labels | undefined): boolean;
  /** Returns the value that `key` must have, or `undefined` if no requirement allows only one. */
  exactValue(key: string): string | undefined;
  toString(): string;
}

/** The maximum number of requirements of a selector, which bounds the time that matching an object takes. */
export const MAX_REQUIREMENTS = 1000;

const NO_LABELS: Labels = {};

class RequirementList implements Selector {
  readonly requirements: readonly LabelRequirement[];
  readonly #tests: readonly ((labels: Labels) => boolean)[];

  constructor(requirements: readonly LabelRequirement[]) {
    this.requirements = requirements;
    this.#tests = requirements.map(testOf);
  }

  get isEmpty(): boolean {
    return this.requirements.length === 0;
  }

  matches(labels: Labels | undefined): boolean {
    for (const test of this.#tests) {
      if (!test(labels ?? NO_LABELS)) return false;
    }
    return true;
  }

  exactValue(key: string): string | undefined {
    return this.requirements.find(
      (one) => one.key === key && ['=', '==', 'in'].includes(one.operator) && one.values.length === 1,
    )?.values[0];
  }

  toString(): string {
    return this.requirements.map(requirementText).join(',');
  }
}

class NothingSelector implements Selector {
  readonly requirements: readonly LabelRequirement[] = [];
  readonly isEmpty = false;

  matches(): boolean {
    return false;
  }

  exactValue(): undefined {
    return undefined;
  }

  toString(): string {
    return '';
  }
}

/** Matches every object. */
export const everything: Selector = new RequirementList([]);
/** Matches no object. */
export const nothing: Selector = new NothingSelector();

/** Returns the check of a requirement. */
function testOf({ key, operator, values }: LabelRequirement): (labels: Labels) => boolean {
  const [only = ''] = values;
  const set = values.length === 1 ? { has: (value: string) => value === only } : new Set(values);
  switch (operator) {
    case 'in':
    case '=':
    case '==':
      return (labels) => {
        const value = ownMember(labels, key);
        return value !== undefined && set.has(value);
      };
    case 'notin':
    case '!=':
      return (labels) => {
        const value = ownMember(labels, key);
        return value === undefined || !set.has(value);
      };
    case 'exists':
      return (labels) => ownMember(labels, key) !== undefined;
    case '!':
      return (labels) => ownMember(labels, key) === undefined;
    case 'gt':
    case 'lt': {
      const bound = parseInt64(values[0] ?? '') ?? 0n;
      return (labels) => {
        const number = parseInt64(ownMember(labels, key) ?? '');
        return number !== undefined && (operator === 'gt' ? number > bound : number < bound);
      };
    }
  }
}

/** Parses a decimal number that fits into 64 bits. Returns `undefined` for other texts. */
function parseInt64(text: string): bigint | undefined {
  if (!/^[+-]?[0-9]+$/.test(text)) return undefined;
  const number = BigInt(text.startsWith('+') ? text.slice(1) : text);
  return BigInt.asIntN(64, number) === number ? number : undefined;
}

function requirementText({ key, operator, values }: LabelRequirement): string {
  switch (operator) {
    case 'exists':
      return key;
    case '!':
      return `!${key}`;
    case 'in':
    case 'notin':
      return `${key} ${operator} (${values.join(',')})`;
    case 'gt':
      return `${key}>${values[0] ?? ''}`;
    case 'lt':
      return `${key}<${values[0] ?? ''}`;
    default:
      return `${key}${operator}${values[0] ?? ''}`;
  }
}

/** Builds a selector from valid requirements. */
export function newSelector(requirements: readonly LabelRequirement[]): Selector {
  if (requirements.length === 0) return everything;
  const byKey = [...requirements].sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
  return new RequirementList(byKey);
}

/** Returns a selector for objects that have all of `labels`, which are not validated. */
export function selectorOfLabels(labels: Labels): Selector {
  return newSelector(Object.entries(labels).map(([key, value]) => ({ key, operator: '=' as const, values: [value] })));
}

/** Returns all errors of a label key as one error with this path as its field, or `undefined` if there is none. */
export function labelKeyError(key: string, path: string): FieldError | undefined {
  const errors = qualifiedNameErrors(key);
  return errors.length === 0 ? undefined : invalid(path, key, errors.join('; '));
}

const CARDINALITY: Readonly<Record<LabelOperator, { ok: (count: number) => boolean; text: string }>> = {
  in: { ok: (n) => n > 0, text: "for 'in', 'notin' operators, values set can't be empty" },
  notin: { ok: (n) => n > 0, text: "for 'in', 'notin' operators, values set can't be empty" },
  '=': { ok: (n) => n === 1, text: 'exact-match compatibility requires one single value' },
  '==': { ok: (n) => n === 1, text: 'exact-match compatibility requires one single value' },
  '!=': { ok: (n) => n === 1, text: 'exact-match compatibility requires one single value' },
  exists: { ok: (n) => n === 0, text: 'values set must be empty for exists and does not exist' },
  '!': { ok: (n) => n === 0, text: 'values set must be empty for exists and does not exist' },
  gt: { ok: (n) => n === 1, text: "for 'Gt', 'Lt' operators, exactly one value is required" },
  lt: { ok: (n) => n === 1, text: "for 'Gt', 'Lt' operators, exactly one value is required" },
};

/** Creates a validated requirement. Throws a `RequirementError` that lists every fault. */
export function newRequirement(key: string, operator: LabelOperator, given: readonly string[]): LabelRequirement {
  const values = [...new Set(given)].sort();
  const errors: FieldError[] = [];
  const keyError = labelKeyError(key, 'key');
  if (keyError !== undefined) errors.push(keyError);
  const { ok, text } = CARDINALITY[operator];
  if (!ok(values.length)) errors.push(invalid('values', values, text));
  if (operator === 'gt' || operator === 'lt') {
    values.forEach((value, index) => {
      if (parseInt64(value) !== undefined) return;
      errors.push(invalid(`values[${index}]`, value, "for 'Gt', 'Lt' operators, the value must be an integer"));
    });
  }
  values.forEach((value, index) => {
    const found = labelValueErrors(value);
    if (found.length > 0) errors.push(invalid(`values[${index}][${key}]`, value, found.join('; ')));
  });
  if (errors.length > 0) throw new RequirementError(errors);
  return { key, operator, values };
}

/** The error of a requirement that is not valid. The message is that of kube-apiserver. */
export class RequirementError extends Error {
  constructor(errors: readonly FieldError[]) {
    const texts = [...new Set(errors.map(String))];
    super(texts.length === 1 ? texts[0] : `[${texts.join(', ')}]`);
    this.name = 'RequirementError';
  }
}

/** The operators of an object's label selector, with those of the text form. */
export const OBJECT_OPERATORS: ReadonlyMap<string, LabelOperator> = new Map(
  Object.entries({
    In: 'in',
    NotIn: 'notin',
    Exists: 'exists',
    DoesNotExist: '!',
  }),
);

/**
 * Converts the `LabelSelector` of an object: an absent one selects nothing, and an empty one selects everything. Throws
 * a 400 for an invalid key, operator or value.
 */
export function fromLabelSelector(selector: V1LabelSelector | null | undefined): Selector {
  if (selector === undefined || selector === null) return nothing;
  const requirements: LabelRequirement[] = [];
  try {
    for (const [key, value] of Object.entries(selector.matchLabels ?? {})) {
      requirements.push(newRequirement(key, '=', [value]));
    }
    for (const expression of selector.matchExpressions ?? []) {
      const operator = OBJECT_OPERATORS.get(expression.operator);
      if (operator === undefined) {
        throw newBadRequest(`${quote(expression.operator)} is not a valid label selector operator`);
      }
      requirements.push(newRequirement(expression.key, operator, expression.values ?? []));
    }
  } catch (error) {
    throw error instanceof RequirementError ? newBadRequest(error.message) : error;
  }
  return newSelector(requirements);
}

interface LabelSelectorOptions {
  /** Stored objects may contain values that are not valid label values. */
  readonly allowInvalidValues?: boolean;
}

/** Validates the selector of an object. The number of its requirements is limited. */
export function validateLabelSelector(
  selector: V1LabelSelector | null | undefined,
  path: string,
  options: LabelSelectorOptions = {},
): FieldError[] {
  if (selector === undefined || selector === null) return [];
  const { matchLabels, matchExpressions } = selector;
  const count = Object.keys(matchLabels ?? {}).length + (matchExpressions?.length ?? 0);
  if (count > MAX_REQUIREMENTS) return [tooMany(path, count, MAX_REQUIREMENTS)];
  const errors = validateLabels(selector.matchLabels, `${path}.matchLabels`);
  (selector.matchExpressions ?? []).forEach((expression, index) => {
    errors.push(...validateExpression(expression, `${path}.matchExpressions[${index}]`, options));
  });
  return errors;
}

function validateExpression(
  expression: V1LabelSelectorRequirement,
  path: string,
  options: LabelSelectorOptions,
): FieldError[] {
  const errors: FieldError[] = [];
  const values = expression.values ?? [];
  switch (OBJECT_OPERATORS.get(expression.operator)) {
    case 'in':
    case 'notin':
      if (values.length === 0) {
        errors.push(required(`${path}.values`, "must be specified when `operator` is 'In' or 'NotIn'"));
      }
      break;
    case 'exists':
    case '!':
      if (values.length > 0) {
        errors.push(forbidden(`${path}.values`, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
      }
      break;
    default:
      errors.push(invalid(`${path}.operator`, expression.operator ?? '', 'not a valid selector operator'));
  }
  errors.push(...validateLabelName(expression.key ?? '', `${path}.key`));
  if (options.allowInvalidValues) return errors;
  values.forEach((value, index) => {
    for (const text of labelValueErrors(value)) errors.push(invalid(`${path}.values[${index}]`, value, text));
  });
  return errors;
}

/** Validates the key of a label. */
export function validateLabelName(name: string, path: string): FieldError[] {
  return qualifiedNameErrors(name).map((text) => invalid(path, name, text));
}

/** Validates the keys and values of an object's labels, in the order of the keys. */
export function validateLabels(labels: Labels | null | undefined, path: string): FieldError[] {
  const errors: FieldError[] = [];
  // Sorting all of them would take longer than the validation.
  const faulty = Object.entries(labels ?? {}).filter(
    ([key, value]) => qualifiedNameErrors(key).length > 0 || labelValueErrors(value).length > 0,
  );
  for (const [key, value] of faulty.sort(([a], [b]) => (a < b ? -1 : 1))) {
    errors.push(...validateLabelName(key, path));
    for (const text of labelValueErrors(value)) errors.push(invalid(path, value, text));
  }
  return errors;
}

/** Returns the text form of a `LabelSelector`, or `<none>` for one without requirements. Throws a 400 for an invalid one. */
export function formatLabelSelector(selector: V1LabelSelector | null | undefined): string {
  const text = fromLabelSelector(selector).toString();
  return text === '' ? '<none>' : text;
}
