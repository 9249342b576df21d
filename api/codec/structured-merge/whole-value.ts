/** Computes the set of all paths of a value that only one side of a comparison has. The set is made in its wire form. */
import { isJsonObject } from '../../meta/json-object.ts';
import type { JsonObject, JsonValue } from '../../meta/object.ts';
import type { FieldSet } from './field-set.ts';
import { decodeFieldsV1, NO_FIELDS, sortElements, sortTexts } from './fields-v1.ts';
import { deduce, itemElement, type MergeType, type StructMergeType, zerosOf } from './merge-types.ts';

type ListType = Extract<MergeType, { kind: 'keyed' | 'set' }>;

/** Returns the path of the value and all paths below it. Throws `PathElementError`. */
export function wholeValue(type: MergeType, value: JsonValue): FieldSet {
  return new WireSet(wireOf(type, value), { owned: true });
}

/** A set that has its wire form. */
export class WireSet implements FieldSet {
  readonly owned: boolean;
  readonly wire: JsonObject;
  #children: FieldSet['children'] | null = null;

  constructor(wire: JsonObject, { owned }: { readonly owned: boolean } = { owned: false }) {
    this.wire = wire;
    this.owned = owned;
  }

  get children(): FieldSet['children'] {
    if (this.#children === null) this.#children = decodeFieldsV1(this.wire).children;
    return this.#children;
  }
}

/** Returns the wire form of the paths below the path of the value, which is owned. */
export function wireOf(type: MergeType, value: JsonValue): JsonObject {
  switch (type.kind) {
    case 'leaf':
      return NO_FIELDS;
    case 'deduced':
      return wireOf(deduce(value), value);
    case 'keyed':
    case 'set':
      return Array.isArray(value) && value.length > 0 ? wireOfItems(type, value, newWire()) : NO_FIELDS;
    case 'map':
      return isJsonObject(value) ? wireOfMap(type.values, value) : NO_FIELDS;
    case 'struct':
      return (isJsonObject(value) ? wireOfStruct(type, value, newWire()) : undefined) ?? NO_FIELDS;
  }
}

/** Returns the wire form of a new set, in which the path itself is owned. */
const newWire = (): JsonObject => ({ '.': NO_FIELDS });

function wireOfMap(values: MergeType, value: JsonObject): JsonObject {
  const names = Object.keys(value).filter((name) => value[name] !== undefined);
  if (names.length === 0) return NO_FIELDS;
  const wire = newWire();
  for (const name of sortTexts(names)) wire[`f:${name}`] = wireOf(values, value[name] ?? null);
  return wire;
}

/** Adds the paths of the members to `wire` and returns it, or returns `undefined` if there are none. */
export function wireOfStruct(type: StructMergeType, value: JsonObject, wire: JsonObject): JsonObject | undefined {
  const names: string[] = [];
  for (const name in value) {
    if (value[name] !== undefined && (type.others !== undefined || type.members.has(name))) names.push(name);
  }
  for (const { name } of zerosOf(type)) if (value[name] === undefined) names.push(name);
  if (names.length === 0) return undefined;
  for (const name of sortTexts(names)) {
    const member = type.members.get(name);
    const inner = member?.type ?? type.others;
    if (inner !== undefined) wire[member?.element ?? `f:${name}`] = wireOf(inner, value[name] ?? member?.zero ?? null);
  }
  return wire;
}

/** Adds the paths of the items, of which there is one at least, to `wire` and returns it. */
export function wireOfItems(type: ListType, items: readonly JsonValue[], wire: JsonObject): JsonObject {
  const [first] = items;
  if (items.length === 1 && first !== undefined) {
    wire[itemElement(type, first)] = wireOf(type.items, first);
    return wire;
  }
  const byElement = new Map<string, JsonObject>();
  for (const item of items) {
    const element = itemElement(type, item);
    // Several items with one key are owned together and have no paths below.
    byElement.set(element, byElement.has(element) ? NO_FIELDS : wireOf(type.items, item));
  }
  for (const element of sortElements([...byElement.keys()])) wire[element] = byElement.get(element);
  return wire;
}
