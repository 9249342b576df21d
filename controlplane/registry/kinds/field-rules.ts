/** Holds the rules that the validation of many kinds shares. Paths are complete (`spec.replicas`). */
import { invalid, notSupported, required, tooLong, tooMany, type FieldError } from '../../../api/meta/field-error.ts';
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import { dnsLabelErrors, dnsSubdomainErrors, rangeError } from '../../../api/meta/names.ts';
import { equalAs } from '../../../api/schema/semantic-equality.ts';
import { internalForm } from '../../../api/schema/internal-form.ts';
import { invalidFor } from '../../../api/kinds/validation-rules.ts';

/** kube-apiserver's text of a field that must not change. */
export const IMMUTABLE = 'field is immutable';

/** Returns a map as an error shows it: sorted, or null if it is absent. */
export const shownMap = <Value>(map: Readonly<Record<string, Value>> | undefined): Record<string, Value> | null =>
  map === undefined ? null : Object.fromEntries(Object.entries(map).sort(([a], [b]) => (a < b ? -1 : 1)));

/** Validates that a number is 0 or greater. An absent value is valid. */
export function nonNegative(field: string, value: number | undefined | null): FieldError[] {
  return value !== undefined && value !== null && value < 0
    ? [invalid(field, value, 'must be greater than or equal to 0')]
    : [];
}

/** Validates that a number is greater than 0. An absent value is valid. */
export function positive(field: string, value: number | undefined | null): FieldError[] {
  return value !== undefined && value !== null && value <= 0 ? [invalid(field, value, 'must be greater than 0')] : [];
}

/** Returns the error of a number below `low` or above `high`. Both bounds are valid, and so is an absent value. */
export function within(field: string, value: number | undefined | null, low: number, high: number): FieldError[] {
  if (value === undefined || value === null || (value >= low && value <= high)) return [];
  return [invalid(field, value, rangeError(low, high))];
}

/** Returns the error of an absent or empty text. `detail` is appended to the message. */
export function requiredText(field: string, value: string | undefined | null, detail = ''): FieldError[] {
  return value === undefined || value === null || value === '' ? [required(field, detail)] : [];
}

/** Restricts a value to the supported ones if it is present. */
export function optionalOneOf(
  field: string,
  value: string | undefined | null,
  supported: readonly string[],
): FieldError[] {
  return value === undefined || value === null || supported.includes(value)
    ? []
    : [notSupported(field, value, supported)];
}

/**
 * Returns the error of a value that differs from `old`. `typeName` is the built-in type of structs, which an error shows in
 * their internal form.
 */
export function immutable(field: string, value: unknown, old: unknown, typeName?: string): FieldError[] {
  if (typeName === undefined) return semanticEqual(value, old) ? [] : [invalid(field, value, IMMUTABLE)];
  return equalAs(typeName, value, old) ? [] : [invalid(field, internalForm(typeName, value), IMMUTABLE)];
}

/** Validates that a text has at most `max` bytes of UTF-8. */
export function maxBytes(field: string, value: string | undefined, max: number): FieldError[] {
  return value !== undefined && Buffer.byteLength(value) > max ? [tooLong(field, max)] : [];
}

/** Validates that a list has at most `max` items. An absent list is valid. */
export function maxItems(field: string, items: readonly unknown[] | undefined, max: number): FieldError[] {
  return items !== undefined && items.length > max ? [tooMany(field, items.length, max)] : [];
}

/** Validates a name of RFC 1123 without dots. */
export function dnsLabel(field: string, value: string): FieldError[] {
  return invalidFor(field, value, dnsLabelErrors(value));
}

/** Validates a name of RFC 1123 with dots. */
export function dnsSubdomain(field: string, value: string): FieldError[] {
  return invalidFor(field, value, dnsSubdomainErrors(value));
}

/** Returns an error if the list has other items beside `*`, which matches everything. `what` names the items in the plural. */
export function wildcardErrors(field: string, values: readonly string[], what: string): FieldError[] {
  return values.length > 1 && values.includes('*')
    ? [invalid(field, values, `if '*' is present, must not specify other ${what}`)]
    : [];
}
