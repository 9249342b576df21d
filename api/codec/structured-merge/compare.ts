/** Compares two values of one type. Returns the sets of added, removed and modified paths. */
import { jsonEqual } from '../../meta/json-equality.ts';
import { isJsonObject } from '../../meta/json-object.ts';
import type { JsonObject, JsonValue } from '../../meta/object.ts';
import { type FieldSet, FieldSetBuilder, isEmptySet } from './field-set.ts';
import { type MergeType, type StructMergeType, deduce, itemElement, zerosOf } from './merge-types.ts';
import { wholeValue } from './whole-value.ts';

/** The paths that differ. They are disjoint. */
export interface Comparison {
  readonly added: FieldSet;
  readonly removed: FieldSet;
  readonly modified: FieldSet;
}

type ListType = Extract<MergeType, { kind: 'keyed' | 'set' }>;

interface Sets {
  readonly added: FieldSetBuilder;
  readonly removed: FieldSetBuilder;
  readonly modified: FieldSetBuilder;
}

/** Returns which paths differ between two values. Throws `PathElementError` for lists whose items have no keys. */
export function compare(type: MergeType, old: JsonValue, next: JsonValue): Comparison {
  const sets = newSets();
  compareInside(type, old, next, sets);
  return sets;
}

const newSets = (): Sets => ({
  added: new FieldSetBuilder(),
  removed: new FieldSetBuilder(),
  modified: new FieldSetBuilder(),
});

/** Adds all paths of a value that only one side has. */
function takeChild(type: MergeType, value: JsonValue, element: string, set: FieldSetBuilder): void {
  if (type.kind === 'leaf') set.own(element);
  else set.own(element, wholeValue(type, value));
}

function takeItems(type: ListType, items: readonly JsonValue[], set: FieldSetBuilder): void {
  const [first] = items;
  if (items.length === 1 && first !== undefined) {
    takeChild(type.items, first, itemElement(type, first), set);
    return;
  }
  for (const [element, same] of indexItems(type, items)) {
    const [only] = same;
    if (same.length === 1 && only !== undefined) takeChild(type.items, only, element, set);
    else set.own(element);
  }
}

/** Compares values without a schema. If their forms differ, they are compared in the form of each. */
function compareDeduced(old: JsonValue, next: JsonValue, sets: Sets): void {
  const nextType = deduce(next);
  const oldType = deduce(old);
  if (oldType.kind !== nextType.kind) compareInside(oldType, old, next, sets);
  compareInside(nextType, old, next, sets);
}

function compareInside(type: MergeType, old: JsonValue, next: JsonValue, sets: Sets): void {
  switch (type.kind) {
    case 'leaf':
      compareLeaf(old, next, sets);
      return;
    case 'deduced':
      compareDeduced(old, next, sets);
      return;
    case 'keyed':
    case 'set': {
      const oldItems = Array.isArray(old) ? old : [];
      const nextItems = Array.isArray(next) ? next : [];
      if (oldItems.length === 0 && nextItems.length === 0) compareLeaf(old, next, sets);
      else compareItems(type, oldItems, nextItems, sets);
      return;
    }
    case 'map':
    case 'struct': {
      const oldMembers = isJsonObject(old) ? old : undefined;
      const nextMembers = isJsonObject(next) ? next : undefined;
      if (isEmptyObject(type, oldMembers) && isEmptyObject(type, nextMembers)) compareLeaf(old, next, sets);
      else if (type.kind === 'map') compareMap(type.values, oldMembers, nextMembers, sets);
      else compareStruct(type, oldMembers, nextMembers, sets);
    }
  }
}

/** Whether an object has no members. A struct whose type always has a member is never empty. */
function isEmptyObject(type: MergeType, object: JsonObject | undefined): boolean {
  if (object === undefined) return true;
  for (const name in object) {
    if (object[name] !== undefined) return false;
  }
  return type.kind !== 'struct' || zerosOf(type).length === 0;
}

function compareLeaf(old: JsonValue, next: JsonValue, sets: Sets): void {
  if (!jsonEqual(old, next)) sets.modified.owned = true;
}

/** Compares two structs. It visits the members of the objects, which may be few of those that the type has. */
function compareStruct(
  type: StructMergeType,
  old: JsonObject | undefined,
  next: JsonObject | undefined,
  sets: Sets,
): void {
  for (const name in next) compareNamed(type, name, old, next, sets);
  for (const name in old) {
    if (next === undefined || !Object.hasOwn(next, name)) compareNamed(type, name, old, next, sets);
  }
  // If both sides are objects, the members that the type always has are equal where both omit them.
  if (old !== undefined && next !== undefined) return;
  for (const { name } of zerosOf(type)) {
    if ((old ?? next)?.[name] === undefined) compareNamed(type, name, old, next, sets);
  }
}

function compareNamed(
  type: StructMergeType,
  name: string,
  old: JsonObject | undefined,
  next: JsonObject | undefined,
  sets: Sets,
): void {
  const member = type.members.get(name);
  if (member !== undefined) {
    const oldValue = old === undefined ? undefined : (old[name] ?? impliedValue(old, name, member.zero));
    const nextValue = next === undefined ? undefined : (next[name] ?? impliedValue(next, name, member.zero));
    compareMember(member.type, member.element, oldValue, nextValue, sets);
  } else if (type.others !== undefined) {
    compareMember(type.others, `f:${name}`, memberOf(old, name), memberOf(next, name), sets);
  }
}

/** Returns the value for a member that is null or absent. */
function impliedValue(object: JsonObject, name: string, zero: JsonValue | undefined): JsonValue | undefined {
  return object[name] === null ? (zero === undefined ? null : zero) : zero;
}

function compareMap(values: MergeType, old: JsonObject | undefined, next: JsonObject | undefined, sets: Sets): void {
  for (const name of memberNames(old, next)) {
    compareMember(values, `f:${name}`, memberOf(old, name), memberOf(next, name), sets);
  }
}

function memberOf(object: JsonObject | undefined, name: string): JsonValue | undefined {
  return object !== undefined && Object.hasOwn(object, name) ? object[name] : undefined;
}

function memberNames(old: JsonObject | undefined, next: JsonObject | undefined): Iterable<string> {
  if (old === undefined) return Object.keys(next ?? {});
  if (next === undefined) return Object.keys(old);
  return new Set([...Object.keys(old), ...Object.keys(next)]);
}

function compareMember(
  type: MergeType,
  element: string,
  old: JsonValue | undefined,
  next: JsonValue | undefined,
  sets: Sets,
): void {
  // Most values of an update are equal scalars.
  if (old === next) return;
  if (old === undefined) {
    if (next !== undefined) takeChild(type, next, element, sets.added);
  } else if (next === undefined) takeChild(type, old, element, sets.removed);
  else if (type.kind === 'leaf') {
    if (!jsonEqual(old, next)) sets.modified.own(element);
  } else {
    const below = newSets();
    compareInside(type, old, next, below);
    sets.added.add(element, below.added);
    sets.removed.add(element, below.removed);
    sets.modified.add(element, below.modified);
  }
}

function compareItems(type: ListType, old: readonly JsonValue[], next: readonly JsonValue[], sets: Sets): void {
  if (old.length === 0) {
    takeItems(type, next, sets.added);
    return;
  }
  const oldItems = indexItems(type, old);
  const nextItems = indexItems(type, next);
  for (const [element, items] of oldItems) compareSameItems(type, element, items, nextItems.get(element) ?? [], sets);
  for (const [element, items] of nextItems) {
    if (!oldItems.has(element)) compareSameItems(type, element, [], items, sets);
  }
}

/** Whether two lists have equal items. A member that is absent equals the value that its type implies. */
function sameItems(type: MergeType, old: readonly JsonValue[], next: readonly JsonValue[]): boolean {
  if (old.length !== next.length) return false;
  return old.every((item, index) => {
    const { added, removed, modified } = compare(type, item, next[index] ?? null);
    return [added, removed, modified].every(isEmptySet);
  });
}

/**
 * Compares items with the same key, usually at most one on each side. Several items are owned together and have no paths below.
 */
function compareSameItems(
  type: ListType,
  element: string,
  old: readonly JsonValue[],
  next: readonly JsonValue[],
  sets: Sets,
): void {
  if (old.length < 2 && next.length < 2) {
    compareMember(type.items, element, old[0], next[0], sets);
  } else if (old.length >= 2 && next.length >= 2) {
    if (!sameItems(type.items, old, next)) sets.modified.child(element).owned = true;
  } else if (old.length >= 2) {
    if (next.length > 0) compareMember(type.items, element, undefined, next[0], sets);
    sets.removed.child(element).owned = true;
  } else {
    if (old.length > 0) compareMember(type.items, element, old[0], undefined, sets);
    sets.added.child(element).owned = true;
  }
}

function indexItems(type: ListType, items: readonly JsonValue[]): Map<string, JsonValue[]> {
  const byElement = new Map<string, JsonValue[]>();
  for (const item of items) {
    const element = itemElement(type, item);
    const same = byElement.get(element);
    if (same === undefined) byElement.set(element, [item]);
    else same.push(item);
  }
  return byElement;
}
