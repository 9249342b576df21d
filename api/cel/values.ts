/**
 * Defines the values of CEL at run time.
 *
 * JSON is not converted: objects and lists of a request are read in place. `adapt` turns a JavaScript number into an int or a
 * double when it is read. Ints are `bigint`.
 */
import type { CelType } from './types.ts';
import { INT64_MAX } from '../meta/integers.ts';

/** The error of a failed evaluation. */
export class CelError extends Error {}

/** A 64-bit floating-point number. */
export class Double {
  readonly value: number;
  constructor(value: number) {
    this.value = value;
  }
}

/** An unsigned 64-bit integer. */
export class Uint {
  readonly value: bigint;
  constructor(value: bigint) {
    this.value = value;
  }
}

/** The bounds of a timestamp: the years 1 to 9999, in nanoseconds since 1970. */
export const MIN_TIME = -62_135_596_800_000_000_000n;
const MAX_TIME = 253_402_300_799_999_999_999n;
const MAX_DURATION = INT64_MAX;

/** A time, in nanoseconds since 1970. */
export class Timestamp {
  readonly ns: bigint;
  /** Throws `CelError` outside of the years 1 to 9999. */
  constructor(ns: bigint) {
    if (ns < MIN_TIME || ns > MAX_TIME) throw new CelError('timestamp overflow');
    this.ns = ns;
  }
}

/** Nanoseconds, which may be negative. */
export class Duration {
  readonly ns: bigint;
  /** Throws `CelError` if the value does not fit into 64 bits. */
  constructor(ns: bigint) {
    if (ns < -MAX_DURATION - 1n || ns > MAX_DURATION) throw new CelError('duration overflow');
    this.ns = ns;
  }
}

/** A value that may be absent; `undefined` if it is. */
export class Optional {
  readonly value: CelValue | undefined;
  constructor(value: CelValue | undefined) {
    this.value = value;
  }
}

/** A type as a value, as `type()` returns it. */
export class TypeValue {
  readonly name: string;
  constructor(name: string) {
    this.name = name;
  }
}

/** A value of a library type: a quantity, an IP address, the authorizer and others. */
export abstract class OpaqueValue {
  abstract readonly typeName: string;
  /** Implements `==`. */
  abstract equals(other: OpaqueValue): boolean;
  /** Returns a member of the value. Most library types have no members. */
  member(_name: string): CelValue | undefined {
    return undefined;
  }
}

/** A constructed message: `Object{…}` or `JSONPatch{…}`. */
export class MessageValue {
  readonly typeName: string;
  readonly fields: Map<string, CelValue>;
  constructor(typeName: string, fields: Map<string, CelValue>) {
    this.typeName = typeName;
    this.fields = fields;
  }
}

/** A map that is not read from JSON, such as one that an expression has built. */
export type CelMap = Map<string | bigint | boolean, CelValue>;
/** An object whose members are JSON. */
type CelObject = { readonly [key: string]: unknown };
/** A value at run time. Maps and lists may be JSON that is read in place. */
export type CelValue =
  | null
  | boolean
  | string
  | bigint
  | Double
  | Uint
  | Uint8Array
  | Timestamp
  | Duration
  | Optional
  | TypeValue
  | OpaqueValue
  | MessageValue
  | CelMap
  | readonly unknown[]
  | CelObject;

/** The evaluation costs more than it may. `ofBudget` is true if what others left of a shared budget was the limit. */
export class CostExceeded extends Error {
  readonly ofBudget: boolean;
  constructor({ ofBudget = false }: { readonly ofBudget?: boolean } = {}) {
    super('operation cancelled: actual cost limit exceeded');
    this.ofBudget = ofBudget;
  }
}

/**
 * The error of an expression that needs a value that is not available yet. The expression is run again when the promise has
 * settled.
 */
export class Pending extends Error {
  readonly settled: Promise<void>;
  constructor(settled: Promise<void>) {
    super('pending');
    this.settled = settled;
  }
}

/** Converts a JSON value that was read. Whole numbers become ints, and `undefined` null. */
export function adapt(value: unknown): CelValue {
  if (typeof value === 'number') return Number.isInteger(value) ? BigInt(value) : new Double(value);
  return value === undefined ? null : (value as CelValue);
}

function isPlainObject(value: unknown): value is CelObject {
  if (typeof value !== 'object' || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

/** Returns the name of the value's type in messages and in `type()`. */
export function typeNameOf(value: CelValue): string {
  if (value === null) return 'null_type';
  switch (typeof value) {
    case 'boolean':
      return 'bool';
    case 'string':
      return 'string';
    case 'bigint':
      return 'int';
    default:
  }
  if (value instanceof Double) return 'double';
  if (value instanceof Uint) return 'uint';
  if (value instanceof Uint8Array) return 'bytes';
  if (value instanceof Timestamp) return 'google.protobuf.Timestamp';
  if (value instanceof Duration) return 'google.protobuf.Duration';
  if (value instanceof Optional) return 'optional_type';
  if (value instanceof TypeValue) return 'type';
  if (value instanceof OpaqueValue || value instanceof MessageValue) return value.typeName;
  return Array.isArray(value) ? 'list' : 'map';
}

/** Whether a value has the type. Of a list, as in cel-go, the first element decides. */
export function hasType(value: CelValue, type: CelType): boolean {
  switch (type.kind) {
    case 'dyn':
    case 'param':
    case 'error':
      return true;
    case 'null':
      return value === null;
    case 'list':
      return Array.isArray(value) && (value.length === 0 || hasType(adapt(value[0]), type.item));
    case 'map':
      return value instanceof Map || isPlainObject(value);
    case 'object':
      return value instanceof MessageValue ? value.typeName === type.name : isPlainObject(value);
    case 'optional':
      return value instanceof Optional;
    case 'opaque':
      return value instanceof OpaqueValue && value.typeName === type.name;
    case 'timestamp':
      return value instanceof Timestamp;
    case 'duration':
      return value instanceof Duration;
    default:
      return typeNameOf(value) === type.kind;
  }
}

function numeric(value: CelValue): bigint | number | undefined {
  if (typeof value === 'bigint') return value;
  if (value instanceof Double || value instanceof Uint) return value.value;
  return undefined;
}

/** Whether two values are equal in CEL: numbers compare by value across their types. */
export function equal(a: CelValue, b: CelValue): boolean {
  const [left, right] = [numeric(a), numeric(b)];
  if (left !== undefined && right !== undefined) return compareNumbers(left, right) === 0;
  if (a === null || b === null || typeof a !== 'object' || typeof b !== 'object') return a === b;
  if (a instanceof Uint8Array) return b instanceof Uint8Array && Buffer.compare(a, b) === 0;
  if (a instanceof Timestamp) return b instanceof Timestamp && a.ns === b.ns;
  if (a instanceof Duration) return b instanceof Duration && a.ns === b.ns;
  if (a instanceof TypeValue) return b instanceof TypeValue && a.name === b.name;
  if (a instanceof OpaqueValue) return b instanceof OpaqueValue && a.typeName === b.typeName && a.equals(b);
  if (a instanceof Optional) {
    if (!(b instanceof Optional)) return false;
    if (a.value === undefined || b.value === undefined) return a.value === b.value;
    return equal(a.value, b.value);
  }
  if (Array.isArray(a)) {
    return Array.isArray(b) && a.length === b.length && a.every((item, index) => equal(adapt(item), adapt(b[index])));
  }
  if (Array.isArray(b)) return false;
  const [entries, otherEntries] = [entriesOf(a), entriesOf(b)];
  if (entries === undefined || otherEntries === undefined || entries.length !== otherEntries.length) return false;
  return entries.every(([key, value]) => {
    const other = member(b, key);
    return other !== undefined && equal(value, other);
  });
}

/** Returns the entries of a map or an object, or `undefined` for other values. */
export function entriesOf(value: CelValue): [string | bigint | boolean, CelValue][] | undefined {
  if (value instanceof Map) return [...value];
  if (value instanceof MessageValue) return [...value.fields];
  if (!isPlainObject(value)) return undefined;
  const entries: [string, CelValue][] = [];
  for (const key of Object.keys(value)) {
    const inner = value[key];
    if (inner !== undefined) entries.push([key, adapt(inner)]);
  }
  return entries;
}

/** Returns the number of entries of a map or an object, or 0 for other values. */
export function countEntries(value: CelValue): number {
  if (value instanceof Map) return value.size;
  if (value instanceof MessageValue) return value.fields.size;
  if (!isPlainObject(value)) return 0;
  let count = 0;
  for (const inner of Object.values(value)) if (inner !== undefined) count += 1;
  return count;
}

/** Returns a member of a map, message or object; `undefined` if there is none. */
export function member(value: CelValue, key: CelValue): CelValue | undefined {
  const plain = key instanceof Uint ? key.value : key instanceof Double ? integral(key.value) : key;
  if (value instanceof Map) return value.get(plain as string);
  if (value instanceof MessageValue) return typeof plain === 'string' ? value.fields.get(plain) : undefined;
  if (value instanceof OpaqueValue) return typeof plain === 'string' ? value.member(plain) : undefined;
  if (typeof plain !== 'string' || !isPlainObject(value) || !Object.hasOwn(value, plain)) return undefined;
  const inner = value[plain];
  return inner === undefined ? undefined : adapt(inner);
}

/** Whether a map or an object has the key. A map may have a default for keys that it does not have. */
export function hasMember(value: CelValue, key: CelValue): boolean {
  if (!(value instanceof Map)) return member(value, key) !== undefined;
  return value.has((key instanceof Uint ? key.value : key instanceof Double ? integral(key.value) : key) as string);
}

const integral = (value: number): bigint | number => (Number.isInteger(value) ? BigInt(value) : value);

/** Compares two numbers: negative, 0, positive or NaN. An integer and a double compare as doubles, as in cel-go. */
function compareNumbers(a: bigint | number, b: bigint | number): number {
  const exact = typeof a === typeof b;
  const [left, right] = exact ? [a, b] : [Number(a), Number(b)];
  return left < right ? -1 : left > right ? 1 : left === right ? 0 : Number.NaN;
}

/** Returns a negative number, 0 or a positive number. Throws for values without an order, such as NaN. */
export function compare(a: CelValue, b: CelValue): number {
  const [left, right] = [numeric(a), numeric(b)];
  if (left !== undefined && right !== undefined) {
    const order = compareNumbers(left, right);
    if (Number.isNaN(order)) throw new CelError('NaN values cannot be ordered');
    return order;
  }
  if (typeof a === 'string' && typeof b === 'string') return Buffer.compare(Buffer.from(a), Buffer.from(b));
  if (typeof a === 'boolean' && typeof b === 'boolean') return Number(a) - Number(b);
  if (a instanceof Uint8Array && b instanceof Uint8Array) return Buffer.compare(a, b);
  if ((a instanceof Timestamp && b instanceof Timestamp) || (a instanceof Duration && b instanceof Duration)) {
    return a.ns < b.ns ? -1 : a.ns > b.ns ? 1 : 0;
  }
  throw new CelError('no such overload');
}
