/** The CEL functions of lists, sets, optionals and numbers. */
import { fn, type FunctionRow, method, type Spending } from './functions.ts';
import { bool, double, duration, dyn, int, list, optional, param, uint } from './types.ts';
import { comparingCost, reading, readingCost } from './reading-cost.ts';
import { adapt, CelError, type CelValue, compare, Double, Duration, equal, Optional, Uint } from './values.ts';

const A = param('A');
const listA = list(A);
type Items = readonly unknown[];

const includes = (items: Items, value: unknown): boolean => items.some((item) => equal(adapt(item), adapt(value)));

function spent(
  run: (items: Items, other: Items) => CelValue,
): (items: Items, other: Items, spending: Spending) => CelValue {
  return (items, other, spending) => {
    spending.spend(Math.max(items.length, 1) * comparingCost(other) + items.length);
    return run(items, other);
  };
}
function unique(items: Items): unknown[] {
  const found: unknown[] = [];
  for (const item of items) if (!includes(found, item)) found.push(item);
  return found;
}

function extreme(items: Items, sign: number, what: string): CelValue {
  let best: CelValue | undefined;
  for (const item of items) {
    const value = adapt(item);
    if (best === undefined || compare(value, best) * sign > 0) best = value;
  }
  if (best === undefined) throw new CelError(`${what} called on empty list`);
  return best;
}

function flatten(items: Items, depth: bigint): unknown[] {
  return items.flatMap((item) => (Array.isArray(item) && depth > 0n ? flatten(item, depth - 1n) : [item]));
}

const wholeLists: FunctionRow[] = [
  method('isSorted', [listA], bool, (items: Items) =>
    items.every((item, index) => index === 0 || compare(adapt(items[index - 1]), adapt(item)) <= 0),
  ),
  method('sum', [list(int)], int, (items: Items) =>
    items.reduce<bigint>((sum, item) => sum + (adapt(item) as bigint), 0n),
  ),
  method(
    'sum',
    [list(uint)],
    uint,
    (items: Items) => new Uint(items.reduce<bigint>((sum, item) => sum + (item as Uint).value, 0n)),
  ),
  method(
    'sum',
    [list(double)],
    double,
    (items: Items) => new Double(items.reduce<number>((sum, item) => sum + numberOf(adapt(item)), 0)),
  ),
  method(
    'sum',
    [list(duration)],
    duration,
    (items: Items) => new Duration(items.reduce<bigint>((sum, item) => sum + (item as Duration).ns, 0n)),
  ),
  method('min', [listA], A, (items: Items) => extreme(items, -1, 'min')),
  method('max', [listA], A, (items: Items) => extreme(items, 1, 'max')),
  method('indexOf', [listA, A], int, (items: Items, value: CelValue) =>
    BigInt(items.findIndex((item) => equal(adapt(item), value))),
  ),
  method('lastIndexOf', [listA, A], int, (items: Items, value: CelValue) =>
    BigInt(items.findLastIndex((item) => equal(adapt(item), value))),
  ),
  method('slice', [listA, int, int], listA, (items: Items, from: bigint, to: bigint) => {
    if (from < 0n || to > BigInt(items.length) || from > to) {
      throw new CelError(`cannot slice(${from}, ${to}), list is length ${items.length}`);
    }
    return items.slice(Number(from), Number(to));
  }),
  method('flatten', [list(dyn)], list(dyn), (items: Items) => flatten(items, 1n)),
  method('flatten', [list(dyn), int], list(dyn), flatten),
  method('reverse', [listA], listA, (items: Items) => items.toReversed()),
  // A comparison of texts encodes both.
  method('sort', [listA], listA, (items: Items, spending: Spending) => {
    spending.spend(readingCost(items) * Math.ceil(Math.log2(items.length + 1)));
    return items.toSorted((a, b) => compare(adapt(a), adapt(b)));
  }),
];

const lists: FunctionRow[] = [
  ...reading(wholeLists),
  method('distinct', [listA], listA, (items: Items, spending: Spending) => {
    spending.spend(items.length * comparingCost(items));
    return unique(items);
  }),
  method(
    'first',
    [listA],
    optional(A),
    (items: Items) => new Optional(items.length === 0 ? undefined : adapt(items[0])),
  ),
  method(
    'last',
    [listA],
    optional(A),
    (items: Items) => new Optional(items.length === 0 ? undefined : adapt(items.at(-1))),
  ),
  fn('lists.range', [int], list(int), (count: bigint, spending: Spending) => {
    spending.spend(Math.max(0, Number(count)));
    return Array.from({ length: Number(count) }, (_item, index) => BigInt(index));
  }),
  fn(
    'sets.contains',
    [listA, listA],
    bool,
    spent((items, other) => other.every((one) => includes(items, one))),
  ),
  fn(
    'sets.equivalent',
    [listA, listA],
    bool,
    spent((items, other) => other.every((one) => includes(items, one)) && items.every((one) => includes(other, one))),
  ),
  fn(
    'sets.intersects',
    [listA, listA],
    bool,
    spent((items, other) => other.some((one) => includes(items, one))),
  ),
];

const optionals: FunctionRow[] = [
  fn('optional.of', [A], optional(A), (value: CelValue) => new Optional(value)),
  fn('optional.none', [], optional(dyn), () => new Optional(undefined)),
  fn('optional.ofNonZeroValue', [A], optional(A), (value: CelValue) => new Optional(isZero(value) ? undefined : value)),
  method('hasValue', [optional(A)], bool, ({ value }: Optional) => value !== undefined),
  method('value', [optional(A)], A, ({ value }: Optional) => {
    if (value === undefined) throw new CelError('optional.none() dereference');
    return value;
  }),
  method('or', [optional(A), optional(A)], optional(A), (a: Optional, b: Optional) => (a.value === undefined ? b : a)),
  method(
    'orValue',
    [optional(A), A],
    A,
    ({ value }: Optional, other: CelValue) => value ?? (value === null ? null : other),
  ),
];

function hasMembers(value: object): boolean {
  for (const _name in value) return true;
  return false;
}

function isZero(value: CelValue): boolean {
  if (value === null || value === false || value === '' || value === 0n) return true;
  if (value instanceof Double) return value.value === 0;
  if (value instanceof Uint) return value.value === 0n;
  if (value instanceof Uint8Array || Array.isArray(value)) return value.length === 0;
  if (value instanceof Map) return value.size === 0;
  return typeof value === 'object' && Object.getPrototypeOf(value) === Object.prototype && !hasMembers(value);
}

function numberOf(value: CelValue): number {
  if (value instanceof Double) return value.value;
  if (value instanceof Uint) return Number(value.value);
  if (typeof value === 'bigint') return Number(value);
  throw new CelError('no such overload');
}

const NUMBERS = [int, uint, double];

/** Declares the overloads for two to five numbers and for a list. */
function variadic(name: string, sign: number): FunctionRow[] {
  const short = name.slice('math.'.length);
  const pick = (values: readonly CelValue[]): CelValue => extreme(values, sign, short);
  const rows: FunctionRow[] = [fn(name, [list(dyn)], dyn, pick)];
  for (const type of NUMBERS) rows.push(fn(name, [type], type, (value: CelValue) => value));
  for (let count = 2; count <= 5; count += 1) {
    for (const type of NUMBERS) {
      rows.push(
        fn(
          name,
          Array.from({ length: count }, () => type),
          type,
          (...values: CelValue[]) => pick(values.slice(0, count)),
        ),
      );
    }
    rows.push(
      fn(
        name,
        Array.from({ length: count }, () => dyn),
        dyn,
        (...values: CelValue[]) => pick(values.slice(0, count)),
      ),
    );
  }
  return rows;
}

const rounding = (name: string, round: (value: number) => number): FunctionRow =>
  fn(name, [double], double, ({ value }: Double) => new Double(round(value)));
const half = (value: number): number => Math.sign(value) * Math.floor(Math.abs(value) + 0.5);

const bits = (name: string, combine: (a: bigint, b: bigint) => bigint): FunctionRow[] => [
  fn(name, [int, int], int, (a: bigint, b: bigint) => BigInt.asIntN(64, combine(a, b))),
  fn(name, [uint, uint], uint, (a: Uint, b: Uint) => new Uint(BigInt.asUintN(64, combine(a.value, b.value)))),
];

function shift(a: bigint, by: bigint, left: boolean): bigint {
  if (by < 0n) throw new CelError(`math.bitShift${left ? 'Left' : 'Right'}() negative offset: ${by}`);
  if (by > 63n) return 0n;
  return BigInt.asIntN(64, left ? a << by : BigInt.asUintN(64, a) >> by);
}

const math: FunctionRow[] = [
  ...variadic('math.greatest', 1),
  ...variadic('math.least', -1),
  rounding('math.ceil', Math.ceil),
  rounding('math.floor', Math.floor),
  rounding('math.trunc', Math.trunc),
  rounding('math.round', half),
  fn('math.abs', [double], double, ({ value }: Double) => new Double(Math.abs(value))),
  fn('math.abs', [int], int, (value: bigint) => {
    if (value < -(2n ** 63n) + 1n) throw new CelError('integer overflow');
    return value < 0n ? -value : value;
  }),
  fn('math.abs', [uint], uint, (value: Uint) => value),
  fn('math.sign', [double], double, ({ value }: Double) => new Double(Math.sign(value))),
  fn('math.sign', [int], int, (value: bigint) => (value > 0n ? 1n : value < 0n ? -1n : 0n)),
  fn('math.sign', [uint], uint, ({ value }: Uint) => new Uint(value === 0n ? 0n : 1n)),
  fn('math.sqrt', [double], double, ({ value }: Double) => new Double(Math.sqrt(value))),
  fn('math.sqrt', [int], double, (value: bigint) => new Double(Math.sqrt(Number(value)))),
  fn('math.isNaN', [double], bool, ({ value }: Double) => Number.isNaN(value)),
  fn('math.isInf', [double], bool, ({ value }: Double) => Math.abs(value) === Infinity),
  fn('math.isFinite', [double], bool, ({ value }: Double) => Number.isFinite(value)),
  ...bits('math.bitAnd', (a, b) => a & b),
  ...bits('math.bitOr', (a, b) => a | b),
  ...bits('math.bitXor', (a, b) => a ^ b),
  fn('math.bitNot', [int], int, (a: bigint) => ~a),
  fn('math.bitNot', [uint], uint, ({ value }: Uint) => new Uint(BigInt.asUintN(64, ~value))),
  fn('math.bitShiftLeft', [int, int], int, (a: bigint, by: bigint) => shift(a, by, true)),
  fn('math.bitShiftRight', [int, int], int, (a: bigint, by: bigint) => shift(a, by, false)),
];

export const collectionFunctions: readonly FunctionRow[] = [...lists, ...optionals, ...reading(math)];
