/** Reads values at run time: members, items, keys, and JSON values whose declared type is another CEL type. */
import type { Run } from './compiled.ts';
import { doubleText } from './double-text.ts';
import { parseDuration, parseTimestamp } from './time.ts';
import { bool, type CelType, dyn, int, map, string } from './types.ts';
import { adapt, CelError, type CelValue, Double, hasType, member, MessageValue, typeNameOf, Uint } from './values.ts';

/** Returns a key as the messages of errors show it. */
export const shownKey = (key: CelValue): string =>
  key instanceof Double || key instanceof Uint ? String(key.value) : String(key as string);

/**
 * Returns the item of a list or the member of a map; `undefined` if there is none. Throws `CelError` for an index of a list
 * that is not an integer.
 */
export function itemAt(value: CelValue, key: CelValue): CelValue | undefined {
  if (!Array.isArray(value)) {
    if (!hasType(value, map(dyn, dyn)) && !(value instanceof MessageValue)) return undefined;
    return member(value, key);
  }
  const index = listIndex(key);
  const item: unknown = value[index];
  return index < 0 || index >= value.length ? undefined : adapt(item);
}

/** Returns a number as the index of a list. Throws `CelError` for other values and for fractions. */
function listIndex(key: CelValue): number {
  if (typeof key === 'bigint') return Number(key);
  if (key instanceof Uint) return Number(key.value);
  if (!(key instanceof Double)) throw new CelError(`unsupported index type '${typeNameOf(key)}' in list`);
  if (!Number.isInteger(key.value)) throw new CelError(`unsupported index value ${doubleText(key.value)} in list`);
  return key.value;
}

/** Returns the member that `value.field` selects. As in cel-go, null and scalars have none. Throws for a list. */
export function selected(value: CelValue, field: string): CelValue | undefined {
  if (Array.isArray(value)) throw new CelError("unsupported index type 'string' in list");
  return value === null || typeof value !== 'object' ? undefined : member(value, field);
}

/** Returns a value as the key of a map. Throws `CelError` for a type that no key can have. */
export function keyOf(value: CelValue): string | bigint | boolean {
  if (typeof value === 'string' || typeof value === 'bigint' || typeof value === 'boolean') return value;
  if (value instanceof Uint) return value.value;
  throw new CelError(`unsupported key type: ${typeNameOf(value)}`);
}

/** Returns the length of a text, a list or bytes, and 1 for other values. Values of different extents are not equal. */
export function extent(value: CelValue): number {
  if (typeof value === 'string' || Array.isArray(value) || value instanceof Uint8Array) return value.length;
  return 1;
}

/** Returns the type of a literal of the source. */
export function literalType(value: CelValue): CelType {
  if (value === null) return { kind: 'null' };
  if (typeof value === 'boolean') return bool;
  if (typeof value === 'string') return string;
  if (typeof value === 'bigint') return int;
  if (value instanceof Double) return { kind: 'double' };
  return value instanceof Uint ? { kind: 'uint' } : { kind: 'bytes' };
}

/** Converts a JSON value to its declared type, because JSON has no separate doubles, timestamps and bytes. */
export function coerce(type: CelType, value: CelValue): CelValue {
  switch (type.kind) {
    case 'double':
      return typeof value === 'bigint' ? new Double(Number(value)) : value;
    case 'timestamp':
      return typeof value === 'string' ? parseTimestamp(value.includes('T') ? value : `${value}T00:00:00Z`) : value;
    case 'duration':
      return typeof value === 'string' ? parseDuration(value) : value;
    case 'bytes':
      return typeof value === 'string' ? Buffer.from(value, 'base64') : value;
    default:
      return value;
  }
}

/** Returns a part that converts its JSON values to the declared type, as `coerce` does. */
export function coerced(type: CelType, run: Run): Run {
  if (!['double', 'timestamp', 'duration', 'bytes'].includes(type.kind)) return run;
  return (frame) => coerce(type, run(frame));
}
