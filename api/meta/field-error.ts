/**
 * Defines a validation error: the field, the bad value and the reason.
 *
 * `toString` returns the text that clients see in the message of a 422 (`spec.replicas: Invalid value: -1: must be greater than
 * or equal to 0`).
 */
import { numberText } from './go-number.ts';
import type { JsonValue } from './object.ts';
import { ESCAPES } from './quote.ts';

type FieldErrorType =
  | 'FieldValueNotFound'
  | 'FieldValueRequired'
  | 'FieldValueDuplicate'
  | 'FieldValueInvalid'
  | 'FieldValueNotSupported'
  | 'FieldValueForbidden'
  | 'FieldValueTooLong'
  | 'FieldValueTooMany'
  | 'InternalError'
  | 'FieldValueTypeInvalid';

const TITLES: Readonly<Record<FieldErrorType, string>> = {
  FieldValueNotFound: 'Not found',
  FieldValueRequired: 'Required value',
  FieldValueDuplicate: 'Duplicate value',
  FieldValueInvalid: 'Invalid value',
  FieldValueNotSupported: 'Unsupported value',
  FieldValueForbidden: 'Forbidden',
  FieldValueTooLong: 'Too long',
  FieldValueTooMany: 'Too many',
  InternalError: 'Internal error',
  FieldValueTypeInvalid: 'Invalid value',
};

/** Error types whose text has no bad value between title and detail. */
const WITHOUT_VALUE: ReadonlySet<FieldErrorType> = new Set([
  'FieldValueRequired',
  'FieldValueForbidden',
  'FieldValueTooLong',
  'InternalError',
]);

/** The value of an error whose text omits the value: `spec: Invalid value: must be set`. */
export const OMITTED_VALUE: unique symbol = Symbol('omitted');

/** A validation error. `field` is a path such as `spec.containers[0].name`. */
export class FieldError {
  readonly type: FieldErrorType;
  readonly field: string;
  readonly value: unknown;
  readonly #detail: string | (() => string);

  /** A detail that is costly to compute is a function, which is called only if the error is shown. */
  constructor(type: FieldErrorType, field: string, value: unknown, detail: string | (() => string)) {
    this.type = type;
    this.field = field;
    this.value = value;
    this.#detail = detail;
  }

  /** The explanation. If it is costly to compute, it is computed at each read. */
  get detail(): string {
    return typeof this.#detail === 'string' ? this.#detail : this.#detail();
  }

  /** Returns the text without the field's path, as in `details.causes[].message`. */
  body(): string {
    const title = TITLES[this.type];
    const bare = WITHOUT_VALUE.has(this.type) || this.value === OMITTED_VALUE;
    const shown = bare ? title : `${title}: ${showValue(this.value)}`;
    const { detail } = this;
    return detail === '' ? shown : `${shown}: ${detail}`;
  }

  toString(): string {
    return `${this.field}: ${this.body()}`;
  }
}

/** Formats a value: strings are quoted like Go's %q, objects and lists are JSON, and `undefined` is null. */
function showValue(value: unknown): string {
  if (value === undefined || value === null) return 'null';
  if (typeof value === 'string') return quote(value);
  if (typeof value === 'number' || typeof value === 'bigint') return numberText(value);
  if (typeof value === 'boolean') return String(value);
  const json = JSON.stringify(value as JsonValue, (_key, inner: unknown) =>
    typeof inner === 'bigint' ? Number(inner) : inner,
  );
  return escapedJson(json);
}

/** Escapes the characters of a JSON text that Go's encoder escapes and `JSON.stringify` does not. */
export const escapedJson = (json: string): string => json.replaceAll(ESCAPED_IN_JSON, (char) => `\\u${hex(char, 4)}`);

const ESCAPED_IN_JSON = /[<>&\u2028\u2029]/g;

/** Quotes a string like Go's `strconv.Quote`, which escapes what cannot be printed. */
export function quote(text: string): string {
  const escaped = text.replaceAll(/["\\]|[^\p{L}\p{M}\p{N}\p{P}\p{S} ]/gu, (char) => {
    const code = char.codePointAt(0) ?? 0;
    return (
      ESCAPES.get(char) ??
      (code < 0x80 ? `\\x${hex(char, 2)}` : code < 0x1_00_00 ? `\\u${hex(char, 4)}` : `\\U${hex(char, 8)}`)
    );
  });
  return `"${escaped}"`;
}

const hex = (char: string, digits: number): string => (char.codePointAt(0) ?? 0).toString(16).padStart(digits, '0');

/** Returns the path of a member of the object at `path`, which is empty for the root. */
export const memberPath = (path: string, name: string): string => (path === '' ? name : `${path}.${name}`);

/** Creates the error of a field that is absent or empty. */
export const required = (field: string, detail = ''): FieldError =>
  new FieldError('FieldValueRequired', field, '', detail);
/** Creates the error of a value that is not allowed; `detail` says why. */
export const invalid = (field: string, value: unknown, detail: string): FieldError =>
  new FieldError('FieldValueInvalid', field, value, detail);
/** Creates the error of a value of the wrong type. */
export const typeInvalid = (field: string, value: unknown, detail: string): FieldError =>
  new FieldError('FieldValueTypeInvalid', field, value, detail);
/** Creates the error of an item whose value another item of the list has as well. */
export const duplicate = (field: string, value: unknown): FieldError =>
  new FieldError('FieldValueDuplicate', field, value, '');
/** Creates the error of a field that must not be set here. */
export const forbidden = (field: string, detail: string | (() => string)): FieldError =>
  new FieldError('FieldValueForbidden', field, '', detail);
/** Creates the error of a value that names something which does not exist. */
export const notFound = (field: string, value: unknown, detail = ''): FieldError =>
  new FieldError('FieldValueNotFound', field, value, detail);
/** Creates the error of a field that could not be validated. */
export const internal = (field: string, detail: string): FieldError =>
  new FieldError('InternalError', field, '', detail);

/** Creates the error of a text that is longer than `maxBytes`. */
export function tooLong(field: string, maxBytes: number): FieldError {
  const unit = maxBytes === 1 ? 'byte' : 'bytes';
  return new FieldError('FieldValueTooLong', field, '', `may not be more than ${maxBytes} ${unit}`);
}

/** Creates the error of a list that has more than `max` items. A negative maximum is not named. */
export function tooMany(field: string, actual: number, max: number): FieldError {
  const unit = max === 1 ? 'item' : 'items';
  const why = max < 0 ? 'has too many items' : `must have at most ${max} ${unit}`;
  return new FieldError('FieldValueTooMany', field, actual, why);
}

/** Creates the error of a value that is not supported. Lists the supported ones sorted, as kube-apiserver does. */
export function notSupported(field: string, value: unknown, supported: readonly string[]): FieldError {
  const values = [...supported].sort().map(quote).join(', ');
  return new FieldError('FieldValueNotSupported', field, value, `supported values: ${values}`);
}

/** Creates the error of `notSupported` with the supported values in the order of the caller. */
export function unsupportedValue(field: string, value: unknown, supported: readonly string[]): FieldError {
  return new FieldError('FieldValueNotSupported', field, value, `supported values: ${supported.map(quote).join(', ')}`);
}
