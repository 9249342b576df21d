/** Holds the rules that the kinds of dynamic resource allocation share: names, lists with limits, selectors and taints. */
import { stringifyJson } from '../../../../api/codec/json.ts';
import { MAX_DRIVER_BYTES, MAX_IDENTIFIER_BYTES } from '../../../../api/kinds/device-limits.ts';
import {
  duplicate,
  invalid,
  notSupported,
  required,
  tooLong,
  tooMany,
  type FieldError,
} from '../../../../api/meta/field-error.ts';
import {
  cIdentifierErrors,
  dnsLabelErrors,
  dnsSubdomainErrors,
  labelValueErrors,
  qualifiedNameErrors,
} from '../../../../api/meta/names.ts';
import type { Selector, Taint, Toleration } from './device-types.ts';
import { expressionErrors, type ExpressionChecker } from '../admissionregistration/expression-checks.ts';
import { maxBytes } from '../field-rules.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

/** The limits of pools, expressions and parameters in kube-apiserver (pkg/apis/resource). */
const MAX_POOL_BYTES = 253;
const MAX_EXPRESSION_BYTES = 10 * 1024;
const MAX_PARAMETERS_BYTES = 10 * 1024;
const MAX_SELECTORS = 32;

/** Validates the name of a driver: a subdomain (RFC 1123) whose case does not matter. */
export function driverErrors(field: string, driver: string): FieldError[] {
  if (driver === '') return [required(field)];
  return [
    ...maxBytes(field, driver, MAX_DRIVER_BYTES),
    ...invalidFor(field, driver, dnsSubdomainErrors(driver.toLowerCase())),
  ];
}

/** Validates the name of a pool: subdomains that are separated by slashes. */
export function poolErrors(field: string, pool: string): FieldError[] {
  if (pool === '') return [required(field)];
  return [
    ...maxBytes(field, pool, MAX_POOL_BYTES),
    ...pool.split('/').flatMap((part) => invalidFor(field, part, dnsSubdomainErrors(part))),
  ];
}

/** Validates a DNS label. */
export const labelErrors = (field: string, name: string): FieldError[] => invalidFor(field, name, dnsLabelErrors(name));

/**
 * Validates the name of an attribute or a capacity: `identifier` or `domain/identifier`. As in kube-apiserver, a name with
 * several slashes has no errors.
 */
export function qualifiedErrors(field: string, name: string): FieldError[] {
  const [domain = '', identifier] = name.split('/');
  if (name.split('/').length > 2) return [];
  if (identifier === undefined) return identifierErrors(field, name);
  return [
    ...(domain === '' ? [invalid(field, '', 'the domain must not be empty')] : driverErrors(field, domain)),
    ...(identifier === '' ? [invalid(field, '', 'the name must not be empty')] : identifierErrors(field, identifier)),
  ];
}

/** Validates a qualified name with its domain. */
export function fullyQualifiedErrors(field: string, name: string): FieldError[] {
  const errors = qualifiedErrors(field, name);
  if (!name.includes('/'))
    errors.push(invalid(field, name, 'a fully qualified name must be a domain and a name separated by a slash'));
  return errors;
}

function identifierErrors(field: string, text: string): FieldError[] {
  return [...maxBytes(field, text, MAX_IDENTIFIER_BYTES), ...invalidFor(field, text, cIdentifierErrors(text))];
}

/** Validates each item, unless the list has too many. */
export function listErrors<Item>(
  field: string,
  items: readonly Item[],
  max: number,
  itemErrors: (item: Item, at: string) => FieldError[],
): FieldError[] {
  if (items.length > max) return [tooMany(field, items.length, max)];
  return items.flatMap((item, index) => itemErrors(item, `${field}[${index}]`));
}

/** The length up to which the path of an error shows any key whole. */
const MIN_SHOWN_KEY = 16;

/** Returns the path of a map's entry. It shows the two ends of a key that is longer than `max` and `MIN_SHOWN_KEY`. */
export function entryPath(field: string, key: string, max: number): string {
  const limit = Math.max(max, MIN_SHOWN_KEY);
  if (key.length <= limit) return `${field}[${key}]`;
  const shownChars = limit - 3;
  return `${field}[${key.slice(0, Math.ceil(shownChars / 2))}...${key.slice(key.length - Math.floor(shownChars / 2))}]`;
}

/** Validates each item as `listErrors` does, and refuses duplicate keys. */
export function setErrors<Item>(
  field: string,
  items: readonly Item[],
  max: number,
  rules: {
    readonly item: (item: Item, at: string) => FieldError[];
    readonly key: (item: Item) => string;
    /** The form of an item in the error for a duplicate. It is the key if this is absent. */
    readonly shown?: (item: Item) => object;
  },
): FieldError[] {
  const errors = listErrors(field, items, max, rules.item);
  if (items.length > max) return errors;
  const seen = new Set<string>();
  for (const [index, item] of items.entries()) {
    const key = rules.key(item);
    if (seen.has(key)) errors.push(duplicate(`${field}[${index}]`, rules.shown?.(item) ?? key));
    seen.add(key);
  }
  return errors;
}

/** Returns the errors of selectors. Each is a CEL expression on a device, which `check` compiles. */
export function selectorErrors(check: ExpressionChecker, field: string, selectors: readonly Selector[]): FieldError[] {
  return listErrors(field, selectors, MAX_SELECTORS, ({ cel }, at) => {
    if (cel === undefined) return [required(`${at}.cel`)];
    const { expression = '' } = cel;
    const expressionField = `${at}.cel.expression`;
    if (Buffer.byteLength(expression) > MAX_EXPRESSION_BYTES) return [tooLong(expressionField, MAX_EXPRESSION_BYTES)];
    return expressionErrors(check, expressionField, { place: 'deviceSelector', expression, authorizer: false });
  });
}

/** Validates the parameters of a driver, which must be an object. Its content is opaque, and its size is limited to `max`. */
export function opaqueErrors(
  opaque: { driver?: string | undefined; parameters?: unknown } | undefined,
  at: string,
  max = MAX_PARAMETERS_BYTES,
): FieldError[] {
  if (opaque === undefined) return [required(`${at}.opaque`)];
  const { driver = '', parameters } = opaque;
  return [
    ...driverErrors(`${at}.opaque.driver`, driver),
    ...rawObjectErrors(`${at}.opaque.parameters`, parameters, max),
  ];
}

/** Returns the errors of a free-form JSON object. `max` is the limit of its encoded size in bytes. */
export function rawObjectErrors(field: string, value: unknown, max: number): FieldError[] {
  if (value === undefined || value === null) return [required(field)];
  const text = stringifyJson(value);
  if (Buffer.byteLength(text) > max) return [tooLong(field, max)];
  return typeof value === 'object' && !Array.isArray(value)
    ? []
    : [invalid(field, '<value omitted>', 'must be a valid JSON object')];
}

const EFFECTS = ['NoExecute', 'NoSchedule', 'None'];
const OPERATORS = ['Equal', 'Exists'];

const effectErrors = (field: string, effect: string): FieldError[] =>
  EFFECTS.includes(effect) ? [] : [notSupported(field, effect, EFFECTS)];

/** Validates a taint. The effect is not checked if it is that of `old`. */
export function taintErrors(taint: Taint, at: string, old?: Taint): FieldError[] {
  const { key = '', value = '', effect = '' } = taint;
  const errors = [
    ...invalidFor(`${at}.key`, key, qualifiedNameErrors(key)),
    ...(value === '' ? [] : invalidFor(`${at}.value`, value, labelValueErrors(value))),
  ];
  if (old !== undefined && (old.effect ?? '') === effect) return errors;
  return [...errors, ...(effect === '' ? [required(`${at}.effect`)] : effectErrors(`${at}.effect`, effect))];
}

/** Returns the errors of a toleration. `at` is its path. */
export function tolerationErrors(toleration: Toleration, at: string): FieldError[] {
  const { key = '', operator = '', value = '', effect = '' } = toleration;
  const errors = key === '' ? [] : invalidFor(`${at}.key`, key, qualifiedNameErrors(key));
  if (operator === 'Exists') {
    if (value !== '') errors.push(invalid(`${at}.value`, value, 'must be empty for operator `Exists`'));
  } else if (operator === 'Equal') errors.push(...invalidFor(`${at}.value`, value, labelValueErrors(value)));
  else if (operator === '') errors.push(required(`${at}.operator`));
  else errors.push(notSupported(`${at}.operator`, operator, OPERATORS));
  return effect === '' ? errors : [...errors, ...effectErrors(`${at}.effect`, effect)];
}

const MAX_BINDING_CONDITIONS = 4;

interface BindingConditions {
  readonly bindingConditions?: readonly string[] | undefined;
  readonly bindingFailureConditions?: readonly string[] | undefined;
}

/**
 * Validates the binding conditions and the binding failure conditions. A device has both lists or none, and no name is in both.
 */
export function bindingConditionErrors(
  { bindingConditions, bindingFailureConditions }: BindingConditions,
  at: string,
): FieldError[] {
  const [bound, failed] = [bindingConditions ?? [], bindingFailureConditions ?? []];
  const names = (name: string, field: string): FieldError[] => invalidFor(field, name, qualifiedNameErrors(name));
  const boundField = `${at}.bindingConditions`;
  const failedField = `${at}.bindingFailureConditions`;
  const errors = [
    ...listErrors(boundField, bound, MAX_BINDING_CONDITIONS, names),
    ...listErrors(failedField, failed, MAX_BINDING_CONDITIONS, names),
    ...repeated(boundField, bound),
  ];
  const seen = new Set<string>();
  for (const [index, condition] of failed.entries()) {
    const field = `${failedField}[${index}]`;
    if (seen.has(condition)) errors.push(duplicate(field, condition));
    seen.add(condition);
    if (bound.includes(condition))
      errors.push(invalid(field, condition, 'bindingFailureConditions must not overlap with bindingConditions'));
  }
  if (bound.length === 0 && failed.length > 0)
    errors.push(
      invalid(boundField, bindingConditions ?? null, 'bindingConditions are required to use bindingFailureConditions'),
    );
  if (failed.length === 0 && bound.length > 0)
    errors.push(
      invalid(
        failedField,
        bindingFailureConditions ?? null,
        'bindingFailureConditions are required to use bindingConditions',
      ),
    );
  return errors;
}

function repeated(field: string, items: readonly string[]): FieldError[] {
  const seen = new Set<string>();
  return items.flatMap((item, index) => {
    const isRepeated = seen.has(item);
    seen.add(item);
    return isRepeated ? [duplicate(`${field}[${index}]`, item)] : [];
  });
}
