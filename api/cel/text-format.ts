/**
 * Formats CEL values for the function `format` of the strings library, as cel-go does in the library version that Kubernetes
 * enables: numbers of `%f` as in English texts, and values inside of lists and maps as literals.
 */
import { quoteText } from '../meta/quote.ts';
import { doubleText } from './double-text.ts';
import { precisionFault, refusalOf } from './format-check.ts';
import { formatDuration, formatTimestamp } from './time.ts';
import {
  adapt,
  CelError,
  type CelValue,
  Double,
  Duration,
  entriesOf,
  Timestamp,
  TypeValue,
  typeNameOf,
  Uint,
} from './values.ts';

const DEFAULT_PRECISION = 6;
/** The maximum precision of JavaScript's `toFixed`. Further decimals are written as 0. */
const MAX_DIGITS = 100;
/** Bounds the length of a formatted number. */
const MAX_PRECISION = 1000;

/**
 * Replaces the clauses of a text by the formatted arguments: `%s`, `%d`, `%f`, `%e`, `%b`, `%o`, `%x` and `%X` with an optional
 * precision, and `%%`. Throws `CelError` for an unknown or incomplete clause, a missing argument, an argument of a type that
 * its clause does not take, and too large a precision.
 */
export function format(text: string, args: readonly unknown[]): string {
  let next = 0;
  return text.replace(/%(\.\d*)?(.?)/gsu, (whole, precision: string | undefined, verb: string) => {
    if (whole === '%%') return '%';
    const unread = precision === undefined ? undefined : precisionFault(precision, verb);
    if (unread !== undefined && next < args.length) throw new CelError(`could not parse formatting clause: ${unread}`);
    if (whole === '%') throw new CelError('unexpected end of string');
    if (next >= args.length) throw new CelError(`index ${next} out of range`);
    const value = adapt(args[next]);
    next += 1;
    return clause(verb, value, precision === undefined ? DEFAULT_PRECISION : Number(precision.slice(1)));
  });
}

function clause(verb: string, value: CelValue, precision: number): string {
  const whole = value instanceof Uint ? value.value : value;
  const refuse = (): CelError => new CelError(`error during formatting: ${refusalOf(verb, typeNameOf(value))}`);
  if (precision > MAX_PRECISION) throw new CelError(`error during formatting: precision ${precision} is too large`);
  switch (verb) {
    case 's':
      return shown(value);
    case 'd':
      if (typeof whole !== 'bigint') throw refuse();
      return String(whole);
    case 'f':
    case 'e': {
      const number = numberOf(value);
      if (number === undefined) throw refuse();
      // With `%e`, cel-go takes the precision for the minimum width.
      return verb === 'f' ? grouped(number, precision) : scientific(number).padStart(precision);
    }
    case 'b':
      if (typeof value === 'boolean') return value ? '1' : '0';
      if (typeof whole !== 'bigint') throw refuse();
      return whole.toString(2);
    case 'o':
      if (typeof whole !== 'bigint') throw refuse();
      return whole.toString(8);
    case 'x':
    case 'X': {
      const hex = hexOf(whole);
      if (hex === undefined) throw refuse();
      return verb === 'X' ? hex.toUpperCase() : hex;
    }
    default:
      throw new CelError(`could not parse formatting clause: unrecognized formatting clause "${verb}"`);
  }
}

function hexOf(value: CelValue): string | undefined {
  if (typeof value === 'bigint') return value.toString(16);
  if (typeof value === 'string') return Buffer.from(value).toString('hex');
  return value instanceof Uint8Array ? Buffer.from(value).toString('hex') : undefined;
}

const WORDS: ReadonlyMap<CelValue, number> = new Map([
  ['NaN', Number.NaN],
  ['Infinity', Number.POSITIVE_INFINITY],
  ['-Infinity', Number.NEGATIVE_INFINITY],
]);

const numberOf = (value: CelValue): number | undefined => (value instanceof Double ? value.value : WORDS.get(value));

/** Returns NaN and infinities as English texts write them, and `undefined` for finite numbers. */
function nonFiniteText(value: number): string | undefined {
  if (Number.isNaN(value)) return 'NaN';
  if (Number.isFinite(value)) return undefined;
  return value > 0 ? '∞' : '-∞';
}

/** Returns the number with this many decimals and with commas between thousands. */
function grouped(value: number, precision: number): string {
  const [whole = '', ...decimals] = fixed(value, precision).split('.');
  return nonFiniteText(value) ?? [withCommas(whole), ...decimals].join('.');
}

function withCommas(whole: string): string {
  const [, sign = '', digits = ''] = /^(-?)(.*)$/.exec(whole) ?? [];
  const groups: string[] = [];
  for (let end = digits.length; end > 0; end -= 3) groups.unshift(digits.slice(Math.max(0, end - 3), end));
  return `${sign}${groups.join(',')}`;
}

const SUPERSCRIPTS = '⁰¹²³⁴⁵⁶⁷⁸⁹';

/** Returns the number with six decimals in scientific notation, such as `1.234568×10⁰⁴`. */
function scientific(value: number): string {
  const [mantissa = '', exponent = ''] = value.toExponential(DEFAULT_PRECISION).split('e');
  const digits = exponent.slice(1).padStart(2, '0');
  const power = [...digits].map((digit) => SUPERSCRIPTS.charAt(Number(digit))).join('');
  return nonFiniteText(value) ?? `${mantissa}×10${exponent.startsWith('-') ? '⁻' : ''}${power}`;
}

/**
 * Formats a finite number with this many decimals, and returns an empty string for others. A number exactly between two results
 * is rounded to the even one.
 */
function fixed(value: number, precision: number): string {
  if (!Number.isFinite(value)) return '';
  if (precision > MAX_DIGITS) return fixed(value, MAX_DIGITS) + '0'.repeat(precision - MAX_DIGITS);
  if (Math.abs(value) >= 1e21)
    return precision === 0 ? String(BigInt(value)) : `${BigInt(value)}.${'0'.repeat(precision)}`;
  const rounded = value.toFixed(precision);
  const exact = value.toFixed(MAX_DIGITS);
  const dropped = exact.slice(exact.indexOf('.') + 1 + precision);
  if (!/^50*$/.test(dropped)) return rounded;
  const down = exact.slice(0, exact.length - dropped.length).replace(/\.$/, '');
  return /[02468]$/.test(down) ? down : rounded;
}

/** Formats a value for `%s`. Lists and maps are written as literals. Throws `CelError` for a type that has no text. */
function shown(value: CelValue): string {
  if (value === null) return 'null';
  if (typeof value !== 'object') return String(value);
  if (value instanceof Double) return doubleText(value.value);
  if (value instanceof Uint) return String(value.value);
  if (value instanceof Timestamp) return formatTimestamp(value);
  if (value instanceof Duration) return formatDuration(value);
  if (value instanceof Uint8Array) return Buffer.from(value).toString('utf8');
  if (value instanceof TypeValue) return value.name;
  if (Array.isArray(value)) return `[${value.map((item) => literal(adapt(item))).join(', ')}]`;
  const entries = entriesOf(value);
  if (entries === undefined) throw new CelError(`error during formatting: ${refusalOf('s', typeNameOf(value))}`);
  const parts = entries
    .map(([key, inner]) => [literal(key), literal(inner)] as const)
    .sort(([a], [b]) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  return `{${parts.map(([key, inner]) => `${key}:${inner}`).join(', ')}}`;
}

/** Returns a value inside of a list or map as it is written in an expression. */
function literal(value: CelValue): string {
  if (typeof value === 'string') return quoteText(value);
  if (value instanceof Uint8Array) return `b${quoteText(shown(value))}`;
  if (value instanceof Timestamp) return `timestamp(${quoteText(shown(value))})`;
  if (value instanceof Duration) return `duration(${quoteText(shown(value))})`;
  if (!(value instanceof Double)) return shown(value);
  return Number.isFinite(value.value) ? fixed(value.value, DEFAULT_PRECISION) : quoteText(doubleText(value.value));
}
