/** Validates the lifetimes of service account tokens, which volumes, CSI drivers and token requests state. */
import { type FieldError, invalid } from '../meta/field-error.ts';

const MIN_SECONDS = 600;
const MAX_SECONDS = 2 ** 32;

/** Returns the error of a lifetime in seconds that is out of bounds. */
export function tokenLifetimeErrors(field: string, seconds: number): FieldError[] {
  if (seconds < MIN_SECONDS) return [invalid(field, seconds, 'may not specify a duration less than 10 minutes')];
  if (seconds > MAX_SECONDS) return [invalid(field, seconds, 'may not specify a duration larger than 2^32 seconds')];
  return [];
}
