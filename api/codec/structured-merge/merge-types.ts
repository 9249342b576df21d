/**
 * Defines how structured merge treats a type: as one value, or merged by member, by key or as a set.
 */
import type { JsonObject, JsonValue } from '../../meta/object.ts';
import { quoteText } from '../../meta/quote.ts';
import { type Field, type Scalar, type StructType, type TypeNode, zeroOfScalar } from '../../schema/schema.ts';
import { canonicalJson, valueElement } from './path-element.ts';

/** The type of a value in a merge. */
export type MergeType =
  | LeafMergeType
  /** The type of values without a schema: objects merge by member, and lists are one value. */
  | { readonly kind: 'deduced' }
  | { readonly kind: 'keyed'; readonly keys: readonly ListKey[]; readonly items: MergeType }
  | { readonly kind: 'set'; readonly items: MergeType }
  | { readonly kind: 'map'; readonly values: MergeType }
  | StructMergeType;

/** A type whose value is owned as a whole. */
interface LeafMergeType {
  readonly kind: 'leaf';
  /** The kind of value that is required. Free-form JSON has none. */
  readonly expects: 'map' | 'list' | 'scalar' | Scalar | undefined;
  /** The type of the items of an atomic list, which are not owned separately. */
  readonly items?: MergeType;
  /** The type of an atomic map, whose members are not owned separately. */
  readonly content?: MergeType;
}

/** An object whose members merge one by one. */
export interface StructMergeType {
  readonly kind: 'struct';
  /** The types of the members that the type names. */
  readonly members: ReadonlyMap<string, MergeMember>;
  /** The type of all other members. Absent if there may be none. */
  readonly others: MergeType | undefined;
}

/** A member of a struct. `element` is its path element, such as `f:spec`. */
interface MergeMember {
  readonly name: string;
  readonly element: string;
  readonly type: MergeType;
  /** The value if the object omits the member, because the type always has it. */
  readonly zero: JsonValue | undefined;
}

interface ListKey {
  readonly name: string;
  /** The name as path elements contain it. */
  readonly quotedName: string;
  /** The value for items that omit the key. */
  readonly default: JsonValue | undefined;
}

/** The type of values of which the schema knows nothing. */
export const deduced: MergeType = { kind: 'deduced' };

const structs = new WeakMap<StructType, MergeType>();
const EMPTY: JsonObject = Object.freeze({});

/** Returns the merge type of a struct, which is the same object each time. */
export function mergeTypeOf(struct: StructType): MergeType {
  if (struct.untyped === true) return deduced;
  const found = structs.get(struct);
  if (found !== undefined) return found;
  const type = struct.mapType === 'atomic' ? atomicMap(granularStruct(struct)) : granularStruct(struct);
  structs.set(struct, type);
  return type;
}

const atomicMap = (content: MergeType): MergeType => ({ kind: 'leaf', expects: 'map', content });
const atomicList = (items: MergeType): MergeType => ({ kind: 'leaf', expects: 'list', items });
const freeList: MergeType = { kind: 'leaf', expects: 'list' };

function granularStruct(struct: StructType): MergeType {
  let members: ReadonlyMap<string, MergeMember> | undefined;
  return {
    kind: 'struct',
    /** A getter, so that types may refer to themselves. */
    get members() {
      members ??= new Map([...struct.fields.values()].map((field) => [field.name, memberOf(field)]));
      return members;
    },
    others: struct.preserveUnknown === true ? deduced : undefined,
  };
}

function memberOf(field: Field): MergeMember {
  return { name: field.name, element: `f:${field.name}`, type: fieldType(field), zero: zeroOf(field) };
}

function fieldType(field: Field): MergeType {
  const { type } = field;
  if (type.kind === 'list') return listType(field, type.items);
  if (type.kind === 'map' && field.mapType === 'atomic') return atomicMap(nodeType(type));
  if (type.kind === 'struct' && field.mapType === 'atomic') return atomicMap(granularStruct(type.struct));
  if (type.kind === 'struct' && field.mapType === 'granular') return granularStruct(type.struct);
  return nodeType(type);
}

function nodeType(type: TypeNode): MergeType {
  switch (type.kind) {
    case 'scalar':
      return type.takesAnyScalar === true ? { kind: 'leaf', expects: 'scalar' } : scalarType(type.scalar);
    case 'list':
      return atomicList(nodeType(type.items));
    case 'map':
      return { kind: 'map', values: nodeType(type.values) };
    case 'struct':
      return mergeTypeOf(type.struct);
  }
}

function scalarType(scalar: Scalar): MergeType {
  const free = scalar === 'any' || scalar === 'rawExtension' || scalar === 'fieldsV1';
  return { kind: 'leaf', expects: free ? undefined : scalar };
}

function listType(field: Field, items: TypeNode): MergeType {
  if (field.listType === 'set') return { kind: 'set', items: nodeType(items) };
  if (field.listType !== 'map') return atomicList(nodeType(items));
  const struct = items.kind === 'struct' ? items.struct : undefined;
  const keys = [...(field.listMapKeys ?? [])]
    .sort()
    .map((name) => ({ name, quotedName: quoteText(name), default: keyDefault(struct, name) }));
  return { kind: 'keyed', keys, items: nodeType(items) };
}

/**
 * The type of the items of `imagePullSecrets`. Its key `name` is optional and has the default '' in kube-apiserver's schema for
 * apply, so that an item without a name is an empty reference.
 */
const LOCAL_REFERENCE = 'io.k8s.api.core.v1.LocalObjectReference';

function keyDefault(struct: StructType | undefined, name: string): JsonValue | undefined {
  const field = struct?.fields.get(name);
  if (field === undefined) return undefined;
  if (struct?.name === LOCAL_REFERENCE) return '';
  return field.default ?? (field.presence === 'print' ? zeroOf(field) : undefined);
}

function zeroOf(field: Field): JsonValue | undefined {
  if (field.presence === 'null') return null;
  if (field.presence !== 'print') return undefined;
  if (field.type.kind === 'struct') return EMPTY;
  if (field.type.kind !== 'scalar') return null;
  return field.type.scalar === 'duration' ? '0s' : (zeroOfScalar(field.type.scalar) ?? null);
}

const zeros = new WeakMap<StructMergeType, readonly MergeMember[]>();

/** Returns the members that the type always has. */
export function zerosOf(type: StructMergeType): readonly MergeMember[] {
  let found = zeros.get(type);
  if (found === undefined) {
    found = [...type.members.values()].filter((member) => member.zero !== undefined);
    zeros.set(type, found);
  }
  return found;
}

/** Returns the type of a value without a schema. Scalars and null are owned as a whole. */
export function deduce(value: JsonValue | undefined): MergeType {
  if (typeof value !== 'object' || value === null) return { kind: 'leaf', expects: undefined };
  return Array.isArray(value) ? freeList : { kind: 'map', values: deduced };
}

/** The error of an item of a keyed list or a set that has no path element, such as an item without keys. */
export class PathElementError extends Error {}

/** Returns the element that names an item of a keyed list or a set. Throws `PathElementError`. */
export function itemElement(type: Extract<MergeType, { kind: 'keyed' | 'set' }>, item: JsonValue): string {
  if (type.kind === 'set') {
    if (item === null)
      throw new PathElementError("associative list without keys has an element that's an explicit null");
    if (typeof item === 'object' && !Array.isArray(item)) {
      throw new PathElementError("associative list without keys has an element that's a map type");
    }
    return valueElement(item);
  }
  if (item === null) throw new PathElementError('associative list with keys may not have a null element');
  if (typeof item !== 'object' || Array.isArray(item)) {
    throw new PathElementError('associative list with keys may not have non-map elements');
  }
  let members = '';
  for (const { name, quotedName, default: missing } of type.keys) {
    const value = item[name] ?? missing;
    if (value !== undefined) members += `${members === '' ? '' : ','}${quotedName}:${canonicalJson(value)}`;
  }
  if (members === '') {
    const names = `[${type.keys.map(({ name }) => quoteText(name)).join(' ')}]`;
    throw new PathElementError(
      `associative list with keys has an element that omits all key fields ${names} ` +
        "(and doesn't have default values for any key fields)",
    );
  }
  return `k:{${members}}`;
}
