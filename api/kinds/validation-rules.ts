/** Holds small validation rules that several kinds share. Each returns the errors of one field. */
import { invalid, type FieldError } from '../meta/field-error.ts';
import { rangeError, portNameErrors } from '../meta/names.ts';

/** Returns an error for each message about one value. */
export function invalidFor(field: string, value: unknown, texts: readonly string[]): FieldError[] {
  return texts.map((text) => invalid(field, value, text));
}

/** Validates that a number is not negative. An absent number counts as 0. */
export function nonNegative(field: string, value: number | null | undefined): FieldError[] {
  return (value ?? 0) < 0 ? [invalid(field, value, 'must be greater than or equal to 0')] : [];
}

/** Returns an error if the value is outside the range, which includes both ends. An absent number counts as 0. */
export function inRange(field: string, value: number | null | undefined, low: number, high: number): FieldError[] {
  const number = value ?? 0;
  return number < low || number > high ? [invalid(field, number, rangeError(low, high))] : [];
}

/** Validates a port number or a port name. */
export function portReference(field: string, port: unknown): FieldError[] {
  if (typeof port === 'string') return invalidFor(field, port, portNameErrors(port));
  return inRange(field, typeof port === 'number' ? port : 0, 1, 65535);
}

/** Whether a text is absent or empty, which the API treats alike. */
export const isBlank = (value: string | null | undefined): value is '' | null | undefined =>
  value === undefined || value === null || value === '';
