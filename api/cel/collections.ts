/** Implements the CEL functions of lists, sets and optionals. */
import { fn, type FunctionRow, method, type Spending } from './functions.ts';
import {
  bool,
  bytes,
  type CelType,
  double,
  duration,
  dyn,
  int,
  list,
  optional,
  param,
  string,
  timestamp,
  uint,
  unbound,
} from './types.ts';
import { checkedInt, checkedUint } from './operators.ts';
import { comparingCost, reading, readingCost } from './reading-cost.ts';
import {
  adapt,
  CelError,
  type CelValue,
  compare,
  Double,
  Duration,
  equal,
  hasType,
  MIN_TIME,
  Optional,
  Timestamp,
  Uint,
} from './values.ts';

const A = param('A');
const listA = list(A);
type Items = readonly unknown[];

const includes = (items: Items, value: unknown): boolean => items.some((item) => equal(adapt(item), adapt(value)));

/** Returns the implementation of a function of two sets, with the cost of comparing each item with each. */
function withCost(
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

/** Returns why a list has no such slice. */
function sliceFault(items: Items, from: bigint, to: bigint): string {
  if (from < 0n || to < 0n) return 'negative indexes not supported';
  return from > to ? 'start index must be less than or equal to end index' : `list is length ${items.length}`;
}

function flatten(items: Items, depth: bigint): unknown[] {
  return items.flatMap((item) => (Array.isArray(item) && depth > 0n ? flatten(item, depth - 1n) : [item]));
}

/** The types of items that have an order. */
const ORDERED: readonly CelType[] = [int, uint, double, bool, string, bytes, duration, timestamp];
const ordered = (make: (item: CelType) => FunctionRow): FunctionRow[] => ORDERED.map(make);

/** The types of items that can be added, each with the sum of an empty list and the addition of an item. */
const SUMS: readonly (readonly [CelType, CelValue, (sum: never, item: never) => CelValue])[] = [
  [int, 0n, (a: bigint, b: bigint) => checkedInt(a + b)],
  [uint, new Uint(0n), (a: Uint, b: Uint) => checkedUint(a.value + b.value)],
  [double, new Double(0), (a: Double, b: Double) => new Double(a.value + b.value)],
  [duration, new Duration(0n), (a: Duration, b: Duration) => new Duration(checkedInt(a.ns + b.ns))],
];

const wholeLists: FunctionRow[] = [
  ...ordered((item) =>
    method('isSorted', [list(item)], bool, (items: Items) =>
      items.every((one, index) => index === 0 || compare(adapt(items[index - 1]), adapt(one)) <= 0),
    ),
  ),
  ...SUMS.map(([item, start, add]) =>
    method('sum', [list(item)], item, (items: Items) =>
      items.reduce<CelValue>((sum, one) => {
        const value = adapt(one);
        if (!hasType(value, item)) throw new CelError('no such overload');
        return add(sum as never, value as never);
      }, start),
    ),
  ),
  ...ordered((item) => method('min', [list(item)], item, (items: Items) => extreme(items, -1, 'min'))),
  ...ordered((item) => method('max', [list(item)], item, (items: Items) => extreme(items, 1, 'max'))),
  method('indexOf', [listA, A], int, (items: Items, value: CelValue) =>
    BigInt(items.findIndex((item) => equal(adapt(item), value))),
  ),
  method('lastIndexOf', [listA, A], int, (items: Items, value: CelValue) =>
    BigInt(items.findLastIndex((item) => equal(adapt(item), value))),
  ),
  method('slice', [listA, int, int], listA, (items: Items, from: bigint, to: bigint) => {
    if (from < 0n || to > BigInt(items.length) || from > to) {
      throw new CelError(`cannot slice(${from}, ${to}), ${sliceFault(items, from, to)}`);
    }
    return items.slice(Number(from), Number(to));
  }),
  method('flatten', [list(listA)], listA, (items: Items) => flatten(items, 1n)),
  method('flatten', [list(dyn), int], list(dyn), (items: Items, depth: bigint) => {
    if (depth < 0n) throw new CelError('level must be non-negative');
    return flatten(items, depth);
  }),
  method('reverse', [listA], listA, (items: Items) => items.toReversed()),
  // A sort compares each item about log2(n) times, and a comparison of texts reads all of their bytes.
  ...ordered((item) =>
    method('sort', [list(item)], list(item), (items: Items, spending: Spending) => {
      spending.spend(readingCost(items) * Math.ceil(Math.log2(items.length + 1)));
      if (!items.every((one) => hasType(adapt(one), item))) {
        throw new CelError('list elements must have the same type');
      }
      return items.toSorted((a, b) => compare(adapt(a), adapt(b)));
    }),
  ),
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
    withCost((items, other) => other.every((one) => includes(items, one))),
  ),
  fn(
    'sets.equivalent',
    [listA, listA],
    bool,
    withCost(
      (items, other) => other.every((one) => includes(items, one)) && items.every((one) => includes(other, one)),
    ),
  ),
  fn(
    'sets.intersects',
    [listA, listA],
    bool,
    withCost((items, other) => other.some((one) => includes(items, one))),
  ),
];

/** Returns the values of the optionals that have one. */
function unwrap(items: Items, spending: Spending): CelValue {
  spending.spend(items.length);
  return items.flatMap((item) => {
    const value = adapt(item);
    if (!(value instanceof Optional)) throw new CelError('no such overload');
    return value.value === undefined ? [] : [value.value];
  });
}

const optionals: FunctionRow[] = [
  fn('optional.of', [A], optional(A), (value: CelValue) => new Optional(value)),
  fn('optional.none', [], optional(unbound), () => new Optional(undefined)),
  fn('optional.ofNonZeroValue', [A], optional(A), (value: CelValue) => new Optional(isZero(value) ? undefined : value)),
  method('hasValue', [optional(A)], bool, ({ value }: Optional) => value !== undefined),
  method('value', [optional(A)], A, ({ value }: Optional) => {
    if (value === undefined) throw new CelError('optional.none() dereference');
    return value;
  }),
  fn('optional.unwrap', [list(optional(A))], listA, unwrap),
  method('unwrapOpt', [list(optional(A))], listA, unwrap),
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
  // The zero time of Go is the beginning of year 1.
  if (value instanceof Timestamp) return value.ns === MIN_TIME;
  if (value instanceof Duration) return value.ns === 0n;
  if (value instanceof Uint) return value.value === 0n;
  if (value instanceof Uint8Array || Array.isArray(value)) return value.length === 0;
  if (value instanceof Map) return value.size === 0;
  return typeof value === 'object' && Object.getPrototypeOf(value) === Object.prototype && !hasMembers(value);
}

/** The overloads, for the function table of every environment. */
export const collectionFunctions: readonly FunctionRow[] = [...lists, ...optionals];
