/** Validates the lifetimes of service account tokens, which volumes, CSI drivers and token requests state. */
import { type FieldError, invalid } from '../meta/field-error.ts';

const SHORTEST_SECONDS = 600;
const LONGEST_SECONDS = 2 ** 32;

/** Returns the error of a lifetime in seconds that is out of bounds. */
export function tokenLifetimeErrors(field: string, seconds: number): FieldError[] {
  if (seconds < SHORTEST_SECONDS) return [invalid(field, seconds, 'may not specify a duration less than 10 minutes')];
  if (seconds > LONGEST_SECONDS)
    return [invalid(field, seconds, 'may not specify a duration larger than 2^32 seconds')];
  return [];
}
