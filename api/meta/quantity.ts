/**
 * Parses, formats, compares and adds resource quantities: `500m`, `1.5Gi`, `1e3`.
 *
 * A quantity is an exact number of billionths, with a format. Finer values are rounded away from zero.
 */
import { INT64_MAX } from './integers.ts';

type QuantityFormat = 'DecimalSI' | 'BinarySI' | 'DecimalExponent';

/** An exact amount. */
export interface Quantity {
  /** Billionths of the unit. */
  readonly nano: bigint;
  readonly format: QuantityFormat;
}

/** The message is the end of a decoding error that clients see. */
export class QuantityError extends Error {
  override readonly name = 'QuantityError';
}

const SYNTAX_TEXT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const NUMERIC_TEXT = 'unable to parse numeric part of quantity';
const SUFFIX_TEXT = "unable to parse quantity's suffix";

const NANO = 1_000_000_000n;
/** A thousandth, in billionths, which are the unit of quantities. */
const MILLI = 1_000_000n;
const LARGEST_BINARY = INT64_MAX * NANO;
/** The maximum exponent. Larger ones have no practical meaning and would only use memory. */
const LARGEST_EXPONENT = 200;
const MAX_LENGTH = 1000;

const DECIMAL_EXPONENTS: ReadonlyMap<string, number> = new Map([
  ['n', -9],
  ['u', -6],
  ['m', -3],
  ['', 0],
  ['k', 3],
  ['M', 6],
  ['G', 9],
  ['T', 12],
  ['P', 15],
  ['E', 18],
]);
const DECIMAL_SUFFIXES: ReadonlyMap<number, string> = new Map(
  [...DECIMAL_EXPONENTS].map(([text, exponent]) => [exponent, text]),
);
const BINARY_SUFFIXES = ['', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei'] as const;

/** Matches canonical text without parsing. Nearly every object has only such quantities. `Ei` may exceed the limit. */
const PLAIN = /^(?:0|[1-9][0-9]{0,2}(?:[numkMGTPE]|[KMGTP]i)?)$/;

const zero: Quantity = { nano: 0n, format: 'DecimalSI' };

/** Parsed quantities by their text. A longer text may be a substring that keeps the whole text of its body in memory. */
const parsed = new Map<string, Quantity>();
const MAX_PARSED = 1000;
const MAX_CACHED_LENGTH = 12;

/** Parses a quantity such as `100m` or `1.5Gi`. Throws `QuantityError`. */
export function parseQuantity(text: string): Quantity {
  const cached = parsed.get(text);
  if (cached !== undefined) return cached;
  const quantity = readQuantity(text);
  if (text.length <= MAX_CACHED_LENGTH) {
    if (parsed.size >= MAX_PARSED) parsed.clear();
    parsed.set(text, quantity);
  }
  return quantity;
}

function readQuantity(text: string): Quantity {
  if (text.length > MAX_LENGTH) throw new QuantityError(NUMERIC_TEXT);
  const parts = /^([+-]?)([0-9]*)(?:\.([0-9]*))?((?:[eEinumkKMGTP]+[-+]?[0-9]*|[-+][0-9]*)?)$/.exec(text);
  if (text === '' || parts === null) {
    if (/^[+-]?0*$/.test(text) && text !== '') return zero;
    throw new QuantityError(SYNTAX_TEXT);
  }
  const [, sign = '', whole = '', fraction = '', suffix = ''] = parts;
  const { base, exponent, format } = interpretSuffix(suffix);
  const magnitude = scale(BigInt(`${whole}${fraction}` || '0'), fraction.length, base, exponent);
  return limited(sign === '-', magnitude, format);
}

function interpretSuffix(suffix: string): { base: 2 | 10; exponent: number; format: QuantityFormat } {
  const decimal = DECIMAL_EXPONENTS.get(suffix);
  if (decimal !== undefined) return { base: 10, exponent: decimal, format: 'DecimalSI' };
  const binary = BINARY_SUFFIXES.indexOf(suffix as (typeof BINARY_SUFFIXES)[number]);
  if (binary > 0) return { base: 2, exponent: binary * 10, format: 'BinarySI' };
  if (!/^[eE][+-]?[0-9]+$/.test(suffix)) throw new QuantityError(SUFFIX_TEXT);
  const exponent = Number(suffix.slice(1));
  if (exponent > LARGEST_EXPONENT) throw new QuantityError(NUMERIC_TEXT);
  return { base: 10, exponent, format: 'DecimalExponent' };
}

/** Computes `digits / 10^fractionDigits * base^exponent` in billionths, rounded up. */
function scale(digits: bigint, fractionDigits: number, base: 2 | 10, exponent: number): bigint {
  if (digits === 0n) return 0n;
  if (base === 2) return divideUp(digits * NANO * 2n ** BigInt(exponent), 10n ** BigInt(fractionDigits));
  const shift = exponent + 9 - fractionDigits;
  if (shift >= 0) return digits * 10n ** BigInt(shift);
  const digitCount = digits.toString().length;
  return -shift > digitCount ? 1n : divideUp(digits, 10n ** BigInt(-shift));
}

function divideUp(dividend: bigint, divisor: bigint): bigint {
  return (dividend + divisor - 1n) / divisor;
}

/** Returns the quantity. A binary one has at most `INT64_MAX` whole units, and is shown as a decimal one if it is below 1. */
function limited(negative: boolean, magnitude: bigint, format: QuantityFormat): Quantity {
  let nano = magnitude;
  let shownAs = format;
  if (format === 'BinarySI') {
    if (nano > LARGEST_BINARY) nano = LARGEST_BINARY;
    if (nano < NANO && nano > 0n) shownAs = 'DecimalSI';
  }
  return { nano: negative ? -nano : nano, format: shownAs };
}

/** Returns the canonical text. */
export function formatQuantity(quantity: Quantity): string {
  const { nano } = quantity;
  if (nano === 0n) return '0';
  const small = nano > -1024n * NANO && nano < 1024n * NANO;
  if (quantity.format === 'BinarySI' && !small && nano % NANO === 0n) return formatBinary(nano / NANO);
  return formatDecimal(nano, quantity.format === 'DecimalExponent');
}

function formatBinary(value: bigint): string {
  let number = value;
  let step = 0;
  while (number % 1024n === 0n && step < BINARY_SUFFIXES.length - 1) {
    number /= 1024n;
    step++;
  }
  return `${number}${BINARY_SUFFIXES[step] ?? ''}`;
}

function formatDecimal(nano: bigint, asExponent: boolean): string {
  let number = nano;
  let exponent = -9;
  while (number % 1000n === 0n) {
    number /= 1000n;
    exponent += 3;
  }
  if (asExponent) return exponent === 0 ? `${number}` : `${number}e${exponent}`;
  while (exponent > 18) {
    number *= 1000n;
    exponent -= 3;
  }
  return `${number}${DECIMAL_SUFFIXES.get(exponent) ?? ''}`;
}

/** Returns the canonical text of a quantity. Throws `QuantityError`. */
export function canonicalQuantity(text: string): string {
  return PLAIN.test(text) ? text : formatQuantity(parseQuantity(text));
}

/** Whether two texts are quantities of the same value in any format. */
export function sameQuantity(a: string, b: string): boolean {
  try {
    return parseQuantity(a).nano === parseQuantity(b).nano;
  } catch (error) {
    if (error instanceof QuantityError) return false;
    throw error;
  }
}

/**
 * Returns the text under which a quantity in JSON is stored. The value is a string (surrounding blanks are dropped) or a
 * number. Throws `QuantityError`.
 */
export function storedQuantity(value: string | number | bigint): string {
  if (typeof value === 'string' && PLAIN.test(value)) return value;
  const text = String(value).trim();
  const quantity = parseQuantity(text);
  return isKeptAsWritten(text, quantity.format) ? text : formatQuantity(quantity);
}

/** Digits that kube-apiserver parses without arbitrary precision. */
const FAST_DIGITS = 18;
const WRITTEN = /^[+-]?0*([0-9]*)(?:\.([0-9]*))?([^0-9.].*)?$/;

/**
 * Whether kube-apiserver takes a text for canonical and keeps it. It compares the digits and the scale only, so `+1`, `01`,
 * `5.`, `1E3` and `1.500` are kept while `0.5`, `1000m` and `1024Mi` become canonical.
 */
function isKeptAsWritten(text: string, format: QuantityFormat): boolean {
  const [, whole = '', fraction = '', suffix = ''] = WRITTEN.exec(text) ?? [];
  const digits = `${whole === '' ? '0' : whole}${fraction}`;
  const { base, exponent } = interpretSuffix(suffix);
  if (base === 2) {
    const digitsLeft = FAST_DIGITS - 4 - digits.length - Math.trunc((exponent * 3) / 10);
    return format === 'BinarySI' && fraction === '' && digitsLeft >= 0 && BigInt(digits) % 8n !== 0n;
  }
  const scaleOfDigits = exponent - fraction.length;
  if (digits.length > FAST_DIGITS || scaleOfDigits < -9) return false;
  return scaleOfDigits % 3 === 0 && !digits.endsWith('000') && !digits.startsWith('0');
}

/** Returns a quantity of whole units. */
export function newQuantity(value: bigint | number, format: QuantityFormat = 'DecimalSI'): Quantity {
  return { nano: BigInt(value) * NANO, format };
}

/** Returns a decimal quantity of `milli` thousandths. */
export function newMilliQuantity(milli: bigint | number): Quantity {
  return { nano: BigInt(milli) * MILLI, format: 'DecimalSI' };
}

/** Compares two amounts for `sort`: negative, 0 or positive. Formats do not count. */
export function compareQuantities(a: Quantity, b: Quantity): number {
  return a.nano < b.nano ? -1 : a.nano > b.nano ? 1 : 0;
}

/** Returns the sum, which has the format of `a`, unless `a` is zero. */
export function addQuantities(a: Quantity, b: Quantity): Quantity {
  return { nano: a.nano + b.nano, format: a.nano === 0n ? b.format : a.format };
}

/** Returns the difference, in the format of the first unless that is 0. */
export function subtractQuantities(a: Quantity, b: Quantity): Quantity {
  return { nano: a.nano - b.nano, format: a.nano === 0n ? b.format : a.format };
}

/** Returns whole units, rounded away from zero. */
export function wholeUnits(quantity: Quantity): bigint {
  return roundAway(quantity.nano, NANO);
}

/** Returns thousandths (such as milli-CPUs), rounded away from zero. */
export function milliUnits(quantity: Quantity): bigint {
  return roundAway(quantity.nano, MILLI);
}

/** Returns the text of a quantity that is rounded up to thousandths. Throws `QuantityError`. */
export function roundedToMilli(text: string): string {
  const quantity = parseQuantity(text);
  const remainder = quantity.nano % MILLI;
  // Other texts stay as the client wrote them, unless parsing may have limited the value.
  if (remainder === 0n && quantity.nano < LARGEST_BINARY) return text;
  const up = remainder > 0n ? MILLI - remainder : 0n - remainder;
  return formatQuantity({ nano: quantity.nano + up, format: quantity.format });
}

/**
 * Returns the ratio of `a` to `b`, and `third` as a number, in the precision of kube-apiserver: of thousandths, or of whole
 * units if one of the three has too many thousandths.
 */
export function quotient(
  a: Quantity,
  b: Quantity,
  third: Quantity,
): { readonly ratio: number; readonly third: number } {
  const wide = [a, b, third].some((one) => wholeUnits(one) >= INT64_MAX / 1000n);
  const units = wide ? wholeUnits : milliUnits;
  return { ratio: Number(units(a)) / Number(units(b)), third: Number(units(third)) / (wide ? 1 : 1000) };
}

/** Whether the quantity has no fraction, as kube-apiserver computes it: in thousandths of 64 bits, which larger ones exceed. */
export function isWhole(quantity: Quantity): boolean {
  const milli = milliUnits(quantity);
  return (milli > INT64_MAX ? INT64_MAX : milli) % 1000n === 0n;
}

/** Returns the amount as a double, which may be rounded. */
export function approximate(quantity: Quantity): number {
  return Number(quantity.nano) / 1e9;
}

function roundAway(nano: bigint, unit: bigint): bigint {
  return nano < 0n ? -divideUp(-nano, unit) : divideUp(nano, unit);
}
