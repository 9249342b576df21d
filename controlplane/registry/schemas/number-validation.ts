/** Validates a number of a custom resource by its schema, with the rules of the OpenAPI library that kube-apiserver uses. */
import { type FieldError, invalid } from '../../../api/meta/field-error.ts';
import { goNumber, isInt64 } from '../../../api/meta/go-number.ts';
import { formatOf } from './formats.ts';
import type { JsonSchema } from './json-schema.ts';
import { JunctionError } from './junction-error.ts';

/** Whether a number of a JSON text is read as an integer. One of more than 64 bits is read as a float64. */
export const isWhole = (value: number | bigint): boolean =>
  typeof value === 'bigint' ? isInt64(value) : Number.isSafeInteger(value);

/**
 * Validates a number by the bounds of its schema. A bound is compared with an integer as an integer, without its fraction. A
 * bound that the type or format of the schema cannot hold is an error of its own, and is compared as it is.
 */
export function numberErrors(value: number | bigint, schema: JsonSchema, path: string): FieldError[] {
  const { multipleOf, maximum, minimum, exclusiveMaximum = false, exclusiveMinimum = false, type = '' } = schema;
  const format = formatOf(type, schema.format);
  const errors: FieldError[] = [];
  const refuse = (text: string): unknown => errors.push(invalid(path, value, `${path} in body should be ${text}`));
  const fits = (checked: number | bigint, what: string): boolean => {
    if (fitsNumberFormat(type, format, checked)) return true;
    const wanted = format === '' ? `${type} (default format)` : `${type} with format ${format}`;
    errors.push(new JunctionError(invalid('<nil>', '', `${what} value must be of type ${wanted} in ${path}`), path));
    return false;
  };
  const boundOf = (bound: number | bigint, what: string): number | bigint =>
    fits(bound, what) && isWhole(value) ? truncated(bound) : bound;
  fits(value, 'Checked');
  if (multipleOf !== undefined) {
    const factor = boundOf(multipleOf, 'MultipleOf');
    if (factor <= 0) {
      const why = `factor MultipleOf declared for ${path} must be positive: ${shown(factor, value)}`;
      errors.push(invalid(path, factor, why));
    } else if (!isMultiple(value, factor)) refuse(`a multiple of ${shown(factor, value)}`);
  }
  if (minimum !== undefined) {
    const bound = boundOf(minimum, 'Minimum boundary');
    const isBelow = exclusiveMinimum ? value <= bound : value < bound;
    if (isBelow) refuse(`greater than ${exclusiveMinimum ? '' : 'or equal to '}${shown(bound, value)}`);
  }
  if (maximum !== undefined) {
    const bound = boundOf(maximum, 'Maximum boundary');
    const isAbove = exclusiveMaximum ? value >= bound : value > bound;
    if (isAbove) refuse(`less than ${exclusiveMaximum ? '' : 'or equal to '}${shown(bound, value)}`);
  }
  return errors;
}

/** Truncates a bound to an integer. kube-apiserver keeps bounds as float64, so large ones are rounded. */
function truncated(bound: number | bigint): number | bigint {
  const whole = Math.trunc(Number(bound));
  return Number.isSafeInteger(whole) ? whole : BigInt(whole);
}

const shown = (bound: number | bigint, value: number | bigint): string =>
  isWhole(value) && isWhole(bound) ? String(bound) : goNumber(Number(bound));

const bitsOf = (format: string): number => (format === 'int32' ? 32 : 64);

function fitsNumberFormat(type: string, format: string, value: number | bigint): boolean {
  if (type !== 'integer') return format !== 'float' || Number.isFinite(Math.fround(Number(value)));
  if (typeof value === 'number' && !Number.isInteger(value)) return false;
  const exact = BigInt(value);
  return BigInt.asIntN(bitsOf(format), exact) === exact;
}

/** How far a quotient may be from a whole number. */
const EPSILON = 1e-9;

/**
 * Whether the value is a multiple of the factor, which is positive. A quotient of floating-point numbers may be off by
 * `EPSILON`.
 */
function isMultiple(value: number | bigint, factor: number | bigint): boolean {
  const [divisor, dividend] = [Number(factor), Number(value)];
  if (isWhole(value) && isWhole(factor)) return BigInt(value) % BigInt(factor) === 0n;
  // Go divides by a small factor in this order, which decides how the quotient is rounded.
  const quotient = divisor < 1 ? (1 / divisor) * dividend : dividend / divisor;
  if (Math.abs(quotient) > Number.MAX_SAFE_INTEGER) return false;
  const whole = Math.trunc(quotient);
  if (quotient === whole) return true;
  return whole !== 0 && Math.abs(quotient - whole) / (Math.abs(quotient) + Math.abs(whole)) < EPSILON;
}
