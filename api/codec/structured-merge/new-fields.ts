/**
 * Computes the paths that the creator of an object owns, in their wire form. In these paths, the object differs from one that
 * has nothing but the members that its type always has.
 */
import { isJsonObject } from '../../meta/json-object.ts';
import { jsonEqual } from '../../meta/json-equality.ts';
import type { JsonObject, JsonValue } from '../../meta/object.ts';
import { type FieldSet, recursiveDifference } from './field-set.ts';
import { encodeFieldsV1, NO_FIELDS, sortTexts } from './fields-v1.ts';
import { deduce, type MergeType, type StructMergeType, zerosOf } from './merge-types.ts';
import { WireSet, wholeValue, wireOf, wireOfItems, wireOfStruct } from './whole-value.ts';

const NOTHING: JsonObject = Object.freeze({});

/**
 * Returns the paths of a new object, without the paths of `skipped` and those below them. The object has metadata. Returns
 * `undefined` if there are none. Throws `PathElementError` for lists whose items have no keys.
 */
export function newFields(type: StructMergeType, object: JsonObject, skipped: FieldSet): FieldSet | undefined {
  const wire = wireBeyondZero(type, NOTHING, object, skipped);
  return wire === undefined ? undefined : new WireSet(wire);
}

/** Returns the paths in which a value differs from the zero value of its field, or `undefined` if they are equal. */
function wireBeyondZero(
  type: MergeType,
  zero: JsonValue,
  value: JsonValue,
  skipped: FieldSet | undefined,
): JsonObject | undefined {
  switch (type.kind) {
    case 'leaf':
      return ofWhole(zero, value);
    case 'deduced':
      return wireBeyondZero(deduce(value), zero, value, skipped);
    case 'keyed':
    case 'set':
      return Array.isArray(value) && value.length > 0 ? wireOfItems(type, value, {}) : ofWhole(zero, value);
    case 'map':
      return isEmptyObject(value) ? ofWhole(zero, value) : ofMembers(type, value, skipped);
    case 'struct':
      if (isEmptyObject(value) && zerosOf(type).length === 0) return ofWhole(zero, value);
      // A reference that was null has no members, not even those that its type always has.
      return zero === null && isJsonObject(value) ? wireOfStruct(type, value, {}) : ofMembers(type, value, skipped);
  }
}

function isEmptyObject(value: JsonValue): boolean {
  if (!isJsonObject(value)) return true;
  for (const name in value) if (value[name] !== undefined) return false;
  return true;
}

const ofWhole = (zero: JsonValue, value: JsonValue): JsonObject | undefined =>
  zero === value || jsonEqual(zero, value) ? undefined : NO_FIELDS;

/** Returns the paths of the members, or `undefined` if there are none. */
function ofMembers(
  type: Extract<MergeType, { kind: 'map' | 'struct' }>,
  value: JsonValue,
  skipped: FieldSet | undefined,
): JsonObject | undefined {
  if (!isJsonObject(value)) return undefined;
  let wire: JsonObject | undefined;
  for (const name of sortTexts(Object.keys(value))) {
    const member = type.kind === 'struct' ? type.members.get(name) : undefined;
    const inner = type.kind === 'map' ? type.values : (member?.type ?? type.others);
    const next = value[name] ?? impliedValue(value[name], member?.zero);
    if (inner === undefined || next === undefined) continue;
    const element = member?.element ?? `f:${name}`;
    const below = skipped?.children?.get(element);
    if (below?.owned === true) continue;
    const zero = name === 'metadata' && skipped !== undefined ? (member?.zero ?? NOTHING) : member?.zero;
    const fields = zero === undefined ? wireOfNew(inner, next, below) : wireBeyondZero(inner, zero, next, below);
    if (fields !== undefined) (wire ??= {})[element] = fields;
  }
  return wire;
}

/** Returns the value for a member that is null or absent. */
function impliedValue(value: JsonValue | undefined, zero: JsonValue | undefined): JsonValue | undefined {
  return value === null && zero === undefined ? null : zero;
}

function wireOfNew(type: MergeType, value: JsonValue, skipped: FieldSet | undefined): JsonObject {
  if (skipped?.children === undefined) return wireOf(type, value);
  return encodeFieldsV1(recursiveDifference(wholeValue(type, value), skipped));
}
