/**
 * Restores the fields that the Go types always serialize, whose zero values the decoder and every later change of an object
 * must leave in it (`Presence`).
 */
import type { JsonObject, JsonValue } from '../meta/object.ts';
import { isCollection, isEmptyCollection } from './empty-values.ts';
import type { Field, Scalar, StructType, TypeNode } from './schema.ts';

/**
 * Restores, in place, the fields that the type always serializes, and drops those that it does not serialize, after a value was
 * modified.
 */
export function completeStruct(struct: StructType, value: JsonObject): void {
  const { fields } = struct;
  const { isJson, printed } = traitsOf(struct);
  // A type has many fields and an object has few of them, so this visits the members of the object.
  for (const name in value) {
    const field = fields.get(name);
    const member = value[name];
    if (field === undefined || member === undefined) continue;
    if (member !== null && keeps(field, member, isJson)) {
      complete(field.type, member);
      continue;
    }
    const wanted = printedValue(field);
    // A complete value is never modified, because it may be shared and frozen.
    if (wanted === undefined) delete value[name];
    else if (member !== wanted) value[name] = wanted;
  }
  addAbsent(printed, value);
}

/** Adds, in place, the zero values of the absent fields that the type always serializes. */
export function addPrinted(struct: StructType, value: JsonObject): JsonObject {
  return addAbsent(traitsOf(struct).printed, value);
}

function addAbsent(printed: readonly Field[], value: JsonObject): JsonObject {
  for (const field of printed) {
    if (value[field.name] === undefined) value[field.name] = printedValue(field) ?? null;
  }
  return value;
}

/** Returns the value of an absent field that is always serialized, and `undefined` for other fields. */
function printedValue({ presence, type }: Field): JsonValue | undefined {
  if (presence === 'null') return null;
  return presence === 'print' ? zeroValue(type) : undefined;
}

function complete(type: TypeNode, value: JsonValue): void {
  if (typeof value !== 'object' || value === null || type.kind === 'scalar') return;
  if (type.kind === 'struct') {
    if (!Array.isArray(value)) completeStruct(type.struct, value);
  } else if (type.kind === 'list') {
    if (type.items.kind !== 'scalar' && Array.isArray(value)) for (const item of value) complete(type.items, item);
  } else if (type.values.kind !== 'scalar' && !Array.isArray(value)) {
    for (const key in value) complete(type.values, value[key] ?? null);
  }
}

/** Returns the zero value of a field that is always serialized. It is `null` for lists, maps and references. */
export function zeroValue(type: TypeNode): JsonValue {
  if (type.kind === 'struct') return addPrinted(type.struct, {});
  return type.kind === 'scalar' ? ZEROS[type.scalar] : null;
}

const ZEROS: Readonly<Record<Scalar, JsonValue>> = {
  string: '',
  boolean: false,
  int32: 0,
  int64: 0,
  double: 0,
  bytes: null,
  time: null,
  microTime: null,
  duration: '0s',
  quantity: '0',
  intOrString: 0,
  any: null,
  rawExtension: null,
  fieldsV1: null,
};

interface Traits {
  /** Whether the type is one of `STORED_AS_JSON`. */
  readonly isJson: boolean;
  /** The fields that are always serialized. */
  readonly printed: readonly Field[];
}

/** The traits of types, which are computed once for each. */
const traits = new WeakMap<StructType, Traits>();

function traitsOf(struct: StructType): Traits {
  let found = traits.get(struct);
  if (found === undefined) {
    const printed = [...struct.fields.values()].filter(({ presence }) => presence === 'print' || presence === 'null');
    found = { isJson: STORED_AS_JSON.test(struct.name), printed };
    traits.set(struct, found);
  }
  return found;
}

/** Maps that have a meaning even if they are empty: the `overhead` of a pod whose runtime class sets none is refused. */
const KEPT_EMPTY: ReadonlySet<string> = new Set(['overhead']);

/** kube-apiserver stores these types as JSON, in which an empty list that is always serialized differs from null. */
const STORED_AS_JSON = /^io\.k8s\.(?:apiextensions-apiserver|kube-aggregator)\./;

/** Whether a decoded value, which is not null, is kept. `isJson`: whether the type is one of `STORED_AS_JSON`. */
function keeps(field: Field, value: JsonValue, isJson: boolean): boolean {
  if (KEPT_EMPTY.has(field.name)) return true;
  // Stored objects have no empty lists and maps. They are null after decoding, and are serialized only if the type requires it.
  if (
    isCollection(field.type) &&
    (field.presence === 'omit' || (field.presence === 'print' && field.name !== 'items' && !isJson))
  ) {
    return !isEmptyCollection(value);
  }
  return field.presence !== 'omit' || !isZero(field.type, value);
}

/** Whether Go serializes the value of an optional field as absent. */
export function isZero(type: TypeNode, value: JsonValue): boolean {
  if (type.kind === 'scalar') {
    if (type.scalar === 'any' || type.scalar === 'rawExtension' || type.scalar === 'fieldsV1') return false;
    return value === '' || value === 0 || value === false || value === 0n;
  }
  return false;
}
