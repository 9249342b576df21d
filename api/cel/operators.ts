/** Implements functions of CEL's standard library: arithmetic, comparison, conversion, sizes and texts. */
import { doubleText } from './double-text.ts';
import { type RE2JS, RE2JSException } from 're2js';
import { compilePattern, PatternCache, patternSize } from '../meta/pattern.ts';
import { both, fn, type FunctionRow, method, type Spending } from './functions.ts';
import { comparingCost, reading } from './reading-cost.ts';
import { formatDuration, formatTimestamp, parseDuration, parseTimestamp, wholeSince1970 } from './time.ts';
import {
  bool,
  bytes,
  type CelType,
  double,
  duration,
  dyn,
  int,
  list,
  map,
  nullType,
  opaque,
  optional,
  param,
  string,
  timestamp,
  typeOfType,
  uint,
} from './types.ts';
import {
  CelError,
  type CelValue,
  compare,
  countEntries,
  Double,
  Duration,
  Timestamp,
  TypeValue,
  typeNameOf,
  Uint,
} from './values.ts';
import { INT64_MAX, INT64_MIN, UINT64_MAX } from '../meta/integers.ts';

/** Throws `CelError` for a number that is no signed integer of 64 bits. */
export function checkedInt(value: bigint): bigint {
  if (value < INT64_MIN || value > INT64_MAX) throw new CelError('integer overflow');
  return value;
}

/** Throws `CelError` for a number that is negative or has more than 64 bits. */
export function checkedUint(value: bigint): Uint {
  if (value < 0n || value > UINT64_MAX) throw new CelError('unsigned integer overflow');
  return new Uint(value);
}

function nonZero(value: bigint, what: string): bigint {
  if (value === 0n) throw new CelError(what);
  return value;
}

const DIVISION_BY_ZERO = 'division by zero';
const MODULUS_BY_ZERO = 'modulus by zero';

const arithmetic: FunctionRow[] = [
  fn('_+_', [int, int], int, (a: bigint, b: bigint) => checkedInt(a + b)),
  fn('_-_', [int, int], int, (a: bigint, b: bigint) => checkedInt(a - b)),
  fn('_*_', [int, int], int, (a: bigint, b: bigint) => checkedInt(a * b)),
  fn('_/_', [int, int], int, (a: bigint, b: bigint) => checkedInt(a / nonZero(b, DIVISION_BY_ZERO))),
  // As in cel-go, a remainder overflows where its quotient does.
  fn('_%_', [int, int], int, (a: bigint, b: bigint) => {
    checkedInt(a / nonZero(b, MODULUS_BY_ZERO));
    return a % b;
  }),
  fn('-_', [int], int, (a: bigint) => checkedInt(-a)),
  fn('_+_', [uint, uint], uint, (a: Uint, b: Uint) => checkedUint(a.value + b.value)),
  fn('_-_', [uint, uint], uint, (a: Uint, b: Uint) => checkedUint(a.value - b.value)),
  fn('_*_', [uint, uint], uint, (a: Uint, b: Uint) => checkedUint(a.value * b.value)),
  fn('_/_', [uint, uint], uint, (a: Uint, b: Uint) => new Uint(a.value / nonZero(b.value, DIVISION_BY_ZERO))),
  fn('_%_', [uint, uint], uint, (a: Uint, b: Uint) => new Uint(a.value % nonZero(b.value, MODULUS_BY_ZERO))),
  fn('_+_', [double, double], double, (a: Double, b: Double) => new Double(a.value + b.value)),
  fn('_-_', [double, double], double, (a: Double, b: Double) => new Double(a.value - b.value)),
  fn('_*_', [double, double], double, (a: Double, b: Double) => new Double(a.value * b.value)),
  fn('_/_', [double, double], double, (a: Double, b: Double) => new Double(a.value / b.value)),
  fn('-_', [double], double, (a: Double) => new Double(-a.value)),
  fn('_+_', [string, string], string, (a: string, b: string, spending: Spending) => {
    spending.spend(textCost(a.length + b.length));
    return a + b;
  }),
  ...reading([fn('_+_', [bytes, bytes], bytes, (a: Uint8Array, b: Uint8Array) => Buffer.concat([a, b]))]),
  fn('_+_', [list(param('A')), list(param('A'))], list(param('A')), joined),
  fn('_+_', [timestamp, duration], timestamp, (a: Timestamp, b: Duration) => new Timestamp(a.ns + b.ns)),
  fn('_+_', [duration, timestamp], timestamp, (a: Duration, b: Timestamp) => new Timestamp(a.ns + b.ns)),
  fn('_+_', [duration, duration], duration, (a: Duration, b: Duration) => new Duration(checkedInt(a.ns + b.ns))),
  fn('_-_', [timestamp, timestamp], duration, (a: Timestamp, b: Timestamp) => new Duration(checkedInt(a.ns - b.ns))),
  fn('_-_', [timestamp, duration], timestamp, (a: Timestamp, b: Duration) => new Timestamp(a.ns - b.ns)),
  fn('_-_', [duration, duration], duration, (a: Duration, b: Duration) => new Duration(checkedInt(a.ns - b.ns))),
  fn('!_', [bool], bool, (a: boolean) => !a),
];

function joined(a: readonly unknown[], b: readonly unknown[], spending: Spending): CelValue {
  spending.spend(a.length + b.length);
  return [...a, ...b];
}

/** Returns the cost of reading a text: a step for each ten characters. */
export const textCost = (length: number): number => Math.ceil(length / 10);

const NUMBERS = [int, uint, double];
const ORDERS: readonly [string, (order: number) => boolean][] = [
  ['_<_', (order) => order < 0],
  ['_<=_', (order) => order <= 0],
  ['_>_', (order) => order > 0],
  ['_>=_', (order) => order >= 0],
];

const comparison: FunctionRow[] = ORDERS.flatMap(([name, holds]) => {
  const run = (a: CelValue, b: CelValue): boolean => holds(compare(a, b));
  const same = [bool, string, bytes, timestamp, duration].map((type) => fn(name, [type, type], bool, run));
  return [...same, ...NUMBERS.flatMap((a) => NUMBERS.map((b) => fn(name, [a, b], bool, run)))];
});

function conversionError(from: string, to: string): CelError {
  return new CelError(`type conversion error from '${from}' to '${to}'`);
}

/**
 * The maximum length of a text that is converted to an integer. The time to parse a number grows with the square of its digits,
 * and a longer text represents an integer of 64 bits only with many leading zeros.
 */
const MAX_DIGITS = 1000;
/** The number of steps that parsing a time or a duration costs. */
const PARSING_STEPS = 8;

function intOf(text: string): bigint {
  if (text.length > MAX_DIGITS || !/^[+-]?\d+$/.test(text)) throw conversionError('string', 'int');
  const value = BigInt(text.replace(/^\+/, ''));
  if (value < INT64_MIN || value > INT64_MAX) throw conversionError('string', 'int');
  return value;
}

function truncated(value: Double): bigint {
  // The bounds themselves are rejected, because a double at the bound may represent an integer beyond it.
  if (!Number.isFinite(value.value) || value.value <= -(2 ** 63)) throw new CelError('integer overflow');
  return checkedInt(BigInt(Math.trunc(value.value)));
}

function doubleOf(text: string): Double {
  if (/^[+-]?(inf|infinity)$/i.test(text)) return new Double(text.startsWith('-') ? -Infinity : Infinity);
  if (/^nan$/i.test(text)) return new Double(Number.NaN);
  const digits =
    /^[+-]?(\d[\d_]*(\.[\d_]*)?|\.\d[\d_]*)(e[+-]?[\d_]+)?$/i.test(text) && !/__|_(?!\d)|(?<!\d)_/.test(text);
  const value = Number(text.replaceAll('_', ''));
  if (!digits || !Number.isFinite(value)) throw conversionError('string', 'double');
  return new Double(value);
}

const TRUE = new Set(['1', 't', 'T', 'true', 'TRUE', 'True']);
const FALSE = new Set(['0', 'f', 'F', 'false', 'FALSE', 'False']);

function boolOf(text: string): boolean {
  if (TRUE.has(text)) return true;
  if (FALSE.has(text)) return false;
  throw conversionError('string', 'bool');
}

function textOf(data: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(data);
  } catch (error) {
    throw new CelError('invalid UTF-8 in bytes, cannot convert to string', { cause: error });
  }
}

const NANOS = 1_000_000_000n;

/** Returns the timestamp of seconds since 1970. Throws `CelError` if they are out of range. */
export const timestampOf = (seconds: bigint): Timestamp => new Timestamp(seconds * NANOS);

const conversions: FunctionRow[] = [
  fn('int', [int], int, (a: bigint) => a),
  fn('int', [uint], int, (a: Uint) => checkedInt(a.value)),
  fn('int', [double], int, truncated),
  fn('int', [string], int, intOf),
  fn('int', [timestamp], int, (a: Timestamp) => wholeSince1970(a, NANOS)),
  fn('int', [duration], int, (a: Duration) => a.ns),
  fn('uint', [uint], uint, (a: Uint) => a),
  fn('uint', [int], uint, (a: bigint) => checkedUint(a)),
  fn('uint', [double], uint, ({ value }: Double) => {
    // As for an int, the upper bound itself is rejected.
    if (!(value >= 0 && value < 2 ** 64)) throw new CelError('unsigned integer overflow');
    return checkedUint(BigInt(Math.trunc(value)));
  }),
  fn('uint', [string], uint, (a: string) => {
    if (a.length > MAX_DIGITS || !/^\d+$/.test(a)) throw conversionError('string', 'uint');
    const value = BigInt(a);
    if (value > UINT64_MAX) throw conversionError('string', 'uint');
    return new Uint(value);
  }),
  fn('double', [double], double, (a: Double) => a),
  fn('double', [int], double, (a: bigint) => new Double(Number(a))),
  fn('double', [uint], double, (a: Uint) => new Double(Number(a.value))),
  fn('double', [string], double, doubleOf),
  fn('string', [string], string, (a: string) => a),
  fn('string', [bool], string, String),
  fn('string', [int], string, String),
  fn('string', [uint], string, (a: Uint) => String(a.value)),
  fn('string', [double], string, (a: Double) => doubleText(a.value)),
  fn('string', [bytes], string, textOf),
  fn('string', [timestamp], string, formatTimestamp),
  fn('string', [duration], string, formatDuration),
  fn('bytes', [bytes], bytes, (a: Uint8Array) => a),
  fn('bytes', [string], bytes, (a: string) => Buffer.from(a)),
  fn('bool', [bool], bool, (a: boolean) => a),
  fn('bool', [string], bool, boolOf),
  fn('timestamp', [timestamp], timestamp, (a: Timestamp) => a),
  ...reading([fn('timestamp', [string], timestamp, parseTimestamp)], PARSING_STEPS),
  fn('timestamp', [int], timestamp, timestampOf),
  fn('duration', [duration], duration, (a: Duration) => a),
  ...reading([fn('duration', [string], duration, parseDuration)], PARSING_STEPS),
  fn('duration', [int], duration, () => {
    throw conversionError('int', 'google.protobuf.Duration');
  }),
];

const types: FunctionRow[] = [
  fn('dyn', [param('A')], dyn, (a: CelValue) => a),
  fn('type', [param('A')], typeOfType(param('A')), (a: CelValue) => new TypeValue(typeNameOf(a))),
];

const sizes: FunctionRow[] = [
  ...reading(both('size', [string], int, (a: string) => BigInt(codePoints(a)))),
  ...both('size', [bytes], int, (a: Uint8Array) => BigInt(a.length)),
  ...both('size', [list(param('A'))], int, (a: readonly unknown[]) => BigInt(a.length)),
  ...both('size', [map(param('A'), param('B'))], int, (a: CelValue, spending: Spending) => {
    const size = countEntries(a);
    spending.spend(2 * size);
    return BigInt(size);
  }),
];

/** Returns the number of code points in a text. */
export function codePoints(text: string): number {
  let count = text.length;
  for (let at = 0; at < text.length; at += 1) if ((text.charCodeAt(at) & 0xfc00) === 0xdc00) count -= 1;
  return count;
}

/** The limit for the compiled patterns, which all evaluations share, and for the patterns that one evaluation has paid for. */
const MAX_KEPT_INSTRUCTIONS = 100_000;
const patterns = new PatternCache<RE2JS>(MAX_KEPT_INSTRUCTIONS);

/** Compiles a regular expression that matches in linear time. Throws `CelError` if the pattern is invalid. */
export function patternOf(source: string): RE2JS {
  let pattern = patterns.get(source);
  if (pattern === undefined) {
    try {
      pattern = compilePattern(source);
    } catch (error) {
      if (!(error instanceof RE2JSException)) throw error;
      throw new CelError(error.message, { cause: error });
    }
    patterns.add(source, pattern, pattern.programSize());
  }
  return pattern;
}

/** The units for compiling one instruction of a pattern. */
const COMPILING_STEPS = 10;
/** The patterns for which each evaluation has paid and which are still kept for it. */
const paidPatterns = new WeakMap<Spending, PatternCache<true>>();

/** Charges an evaluation for compiling a pattern from data, once while the pattern is kept for the evaluation. */
export function payForPattern(source: string, spending: Spending): void {
  const paid = paidPatterns.get(spending) ?? new PatternCache<true>(MAX_KEPT_INSTRUCTIONS);
  paidPatterns.set(spending, paid);
  if (paid.get(source) === true) return;
  const size = sizeOfPattern(source);
  spending.spend(Math.ceil(source.length / 10) + COMPILING_STEPS * size);
  paid.add(source, true, size);
}

/** Returns the size of a pattern, or 0 for a pattern that is refused without compiling it. */
function sizeOfPattern(source: string): number {
  try {
    const size = patternSize(source);
    return Number.isFinite(size) ? size : 0;
  } catch (error) {
    if (error instanceof RE2JSException) return 0;
    throw error;
  }
}

/** The steps of a match in addition to the cost of reading. */
export const MATCHING_STEPS = 5;

/** Returns the cost of a match. Throws `CelError` if the pattern is invalid. */
export function matchCost(text: string, pattern: string): number {
  // A match reads the beginning of the pattern's program for an empty text as well.
  return (textCost(text.length) || 1) * Math.ceil(Math.max(pattern.length, patternOf(pattern).programSize()) / 4);
}

const texts: FunctionRow[] = [
  method('startsWith', [string, string], bool, (a: string, b: string, spending: Spending) => {
    spending.spend(comparingCost(b));
    return a.startsWith(b);
  }),
  method('endsWith', [string, string], bool, (a: string, b: string, spending: Spending) => {
    spending.spend(comparingCost(b));
    return a.endsWith(b);
  }),
  // A search may compare the searched text at each position.
  method('contains', [string, string], bool, (a: string, b: string, spending: Spending) => {
    spending.spend(textCost(a.length) * textCost(b.length));
    return a.includes(b);
  }),
  ...both('matches', [string, string], bool, (a: string, b: string, spending: Spending) => {
    spending.spend(MATCHING_STEPS + matchCost(a, b));
    return patternOf(b).matcher(a).find();
  }),
];

/** The overloads, with the internal names of operators such as `_+_`. */
export const operators: readonly FunctionRow[] = [
  ...arithmetic,
  ...reading(comparison),
  ...reading(conversions),
  ...types,
  ...sizes,
  ...texts,
];

/** The type names that expressions can use as values. */
export const TYPE_NAMES: ReadonlyMap<string, CelType> = new Map(
  Object.entries({
    bool,
    int,
    uint,
    double,
    string,
    bytes,
    list: list(dyn),
    map: map(dyn, dyn),
    null_type: nullType,
    type: { kind: 'type' },
    optional_type: optional(dyn),
    'google.protobuf.Timestamp': timestamp,
    'google.protobuf.Duration': duration,
    'net.IP': opaque('net.IP'),
    'net.CIDR': opaque('net.CIDR'),
  }),
);
