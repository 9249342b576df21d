/** Converts the result of a strategic merge patch or of an apply, which is no text, to the type of an object as Go does. */
import type { JsonValue } from '../meta/object.ts';
import { goType, plainGoType } from './go-types.ts';
import type { TypeNode } from './schema.ts';
import { INT64_MIN } from '../meta/integers.ts';

const BITS = { int32: 32, int64: 64 } as const;

/**
 * Converts a number to an integer of the type, as Go does. Returns `undefined` for a number with a fraction. A float beyond 64
 * bits becomes the smallest 64-bit integer before it is cut, as on amd64.
 */
export function convertedInteger(scalar: 'int32' | 'int64', value: number | bigint): number | bigint | undefined {
  if (typeof value === 'number' && !Number.isInteger(value)) return undefined;
  const exact = BigInt(value);
  const whole = BigInt.asIntN(64, exact) === exact ? exact : INT64_MIN;
  const cut = BigInt.asIntN(BITS[scalar], whole);
  return Number.isSafeInteger(Number(cut)) ? Number(cut) : cut;
}

/** Returns the message for a value that does not have the type of its field. */
export function conversionFault(type: TypeNode, value: JsonValue): string {
  const found = goKind(value);
  if (type.kind === 'struct') return `cannot restore struct from: ${found}`;
  if (type.kind === 'map') return `cannot restore map from ${found}`;
  if (type.kind === 'list' || type.scalar === 'bytes') return `cannot restore slice from ${found}`;
  const wanted = plainGoType(type);
  const isNumberForNumber = found === 'float64' && (wanted === 'int32' || wanted === 'int64');
  if (isNumberForNumber || (found === 'int64' && wanted === 'string'))
    return `cannot convert ${found} to ${goType(type)}`;
  return `unrecognized type: ${wanted}`;
}

function goKind(value: JsonValue): string {
  if (typeof value === 'string') return 'string';
  if (typeof value === 'boolean') return 'bool';
  if (typeof value === 'bigint') return 'int64';
  if (typeof value === 'number') return Number.isSafeInteger(value) ? 'int64' : 'float64';
  return Array.isArray(value) ? 'slice' : 'map';
}
