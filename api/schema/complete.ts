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
  const { members, printed } = traitsOf(struct);
  // A type has many fields and an object has few of them, so this visits the members of the object.
  for (const name in value) {
    const member = value[name];
    if (member === undefined) continue;
    const traits = members.get(name);
    if (traits === undefined) continue;
    if (member !== null && !isDropped(traits.drops, member)) {
      if (traits.inner !== undefined) complete(traits.inner, member);
      continue;
    }
    const wanted = printedValue(traits.field);
    // A complete value is never modified, because it may be shared and frozen.
    if (wanted === undefined) delete value[name];
    else if (member !== wanted) value[name] = wanted;
  }
  addAbsent(printed, value);
}

/** Adds, in place, the zero values of the absent fields that the type always serializes, unless they are null. */
export function addZeros(struct: StructType, value: JsonObject): JsonObject {
  for (const { name, type } of traitsOf(struct).zeros) {
    if (value[name] === undefined) value[name] = zeroWithoutNulls(type);
  }
  return value;
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
    if (Array.isArray(value)) for (const item of value) complete(type.items, item);
  } else if (!Array.isArray(value)) {
    for (const key in value) complete(type.values, value[key] ?? null);
  }
}

/** Returns the zero value of a field that is always serialized: null where JSON has no other, such as for lists and maps. */
export function zeroValue(type: TypeNode): JsonValue {
  if (type.kind === 'struct') return addPrinted(type.struct, {});
  return type.kind === 'scalar' ? ZEROS[type.scalar] : null;
}

/** Returns the zero value, in which fields that are serialized as null are absent. */
export function zeroWithoutNulls(type: TypeNode): JsonValue {
  return type.kind === 'struct' ? addZeros(type.struct, {}) : zeroValue(type);
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

/** Which values of a field, other than null, are dropped: empty lists and maps, zero values of scalars, or none. */
type Dropped = 'empty' | 'zero' | 'none';

interface MemberTraits {
  readonly field: Field;
  readonly drops: Dropped;
  /** The type of the field if its values have parts to complete. */
  readonly inner: TypeNode | undefined;
}

interface Traits {
  readonly members: ReadonlyMap<string, MemberTraits>;
  /** The fields that are always serialized. */
  readonly printed: readonly Field[];
  /** The fields that are always serialized, and whose zero value is not null. */
  readonly zeros: readonly Field[];
}

/** The traits of types, which are computed once for each. */
const traitsByType = new WeakMap<StructType, Traits>();

function traitsOf(struct: StructType): Traits {
  return traitsByType.get(struct) ?? newTraits(struct);
}

function newTraits(struct: StructType): Traits {
  const isJson = STORED_AS_JSON.test(struct.name);
  const fields = [...struct.fields.values()];
  const traits = {
    members: new Map(
      fields.map((field) => [field.name, { field, drops: droppedValues(field, isJson), inner: innerType(field.type) }]),
    ),
    printed: fields.filter(({ presence }) => presence === 'print' || presence === 'null'),
    zeros: fields.filter(({ presence, type }) => presence === 'print' && hasZero(type)),
  };
  traitsByType.set(struct, traits);
  return traits;
}

const hasZero = (type: TypeNode): boolean =>
  type.kind === 'struct' || (type.kind === 'scalar' && ZEROS[type.scalar] !== null);

function innerType(type: TypeNode): TypeNode | undefined {
  if (type.kind === 'struct') return type;
  const part = type.kind === 'list' ? type.items : type.kind === 'map' ? type.values : undefined;
  return part === undefined || part.kind === 'scalar' ? undefined : type;
}

/** Maps that have a meaning even if they are empty: the `overhead` of a pod whose runtime class sets none is refused. */
const KEPT_EMPTY: ReadonlySet<string> = new Set(['overhead']);

/** kube-apiserver stores these types as JSON, in which an empty list that is always serialized differs from null. */
const STORED_AS_JSON = /^io\.k8s\.(?:apiextensions-apiserver|kube-aggregator)\./;

/** Returns which values are dropped. `isJson`: whether the type is one of `STORED_AS_JSON`. */
function droppedValues({ name, type, presence }: Field, isJson: boolean): Dropped {
  if (KEPT_EMPTY.has(name)) return 'none';
  // Stored objects have no empty lists and maps. They are null after decoding, and are serialized only if the type requires it.
  if (isCollection(type) && (presence === 'omit' || (presence === 'print' && name !== 'items' && !isJson)))
    return 'empty';
  return presence === 'omit' && hasZeroValue(type) ? 'zero' : 'none';
}

function isDropped(drops: Dropped, value: JsonValue): boolean {
  if (drops === 'zero') return isZeroValue(value);
  return drops === 'empty' && isEmptyCollection(value);
}

/** Whether Go serializes the value of an optional field as absent. */
export const isZero = (type: TypeNode, value: JsonValue): boolean => isZeroValue(value) && hasZeroValue(type);

const isZeroValue = (value: JsonValue): boolean => value === '' || value === 0 || value === false || value === 0n;

/** Whether zero values of the type are absent, as those of all scalars except free-form JSON. */
const hasZeroValue = (type: TypeNode): boolean =>
  type.kind === 'scalar' && type.scalar !== 'any' && type.scalar !== 'rawExtension' && type.scalar !== 'fieldsV1';
