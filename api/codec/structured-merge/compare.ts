/**
 * Compares two values of one type. Returns the sets of added, removed and modified paths.
 *
 * It runs on every write, so it walks both values once and creates nothing but the sets.
 */
import { jsonEqual } from '../../meta/json-equality.ts';
import { isJsonObject } from '../../meta/json-object.ts';
import type { JsonObject, JsonValue } from '../../meta/object.ts';
import { type FieldSet, FieldSetBuilder } from './field-set.ts';
import { type MergeMember, type MergeType, type StructMergeType, deduce, itemElement } from './merge-types.ts';

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

/** Returns which paths differ between two values. Throws `PathElementError` for lists whose items have no distinct keys. */
export function compare(type: MergeType, old: JsonValue | undefined, next: JsonValue | undefined): Comparison {
  const sets = { added: new FieldSetBuilder(), removed: new FieldSetBuilder(), modified: new FieldSetBuilder() };
  compareValue(type, old, next, sets);
  return sets;
}

/** Adds the differences of two values to the sets. `undefined` means that the value is absent. Null is a value. */
function compareValue(type: MergeType, old: JsonValue | undefined, next: JsonValue | undefined, sets: Sets): void {
  if (old === undefined) {
    if (next !== undefined) takeWhole(type, next, sets.added);
  } else if (next === undefined) takeWhole(type, old, sets.removed);
  else if (type.kind === 'deduced') compareDeduced(old, next, sets);
  else compareInside(type, old, next, sets);
}

/** Adds every path of a value that only one side has, which is most of the work when an object is created. */
function takeWhole(type: MergeType, value: JsonValue, set: FieldSetBuilder): void {
  set.owned = true;
  switch (type.kind) {
    case 'leaf':
      return;
    case 'deduced':
      takeWhole(deduce(value), value, set);
      return;
    case 'keyed':
    case 'set':
      if (Array.isArray(value)) takeItems(type, value, set);
      return;
    case 'map':
      if (!isJsonObject(value)) return;
      for (const name in value) {
        const member = value[name];
        if (member !== undefined) takeChild(type.values, member, `f:${name}`, set);
      }
      return;
    case 'struct':
      if (isJsonObject(value)) takeMembers(type, value, set);
  }
}

function takeChild(type: MergeType, value: JsonValue, element: string, set: FieldSetBuilder): void {
  if (type.kind === 'leaf') set.own(element);
  else takeWhole(type, value, set.child(element));
}

function takeMembers(type: StructMergeType, value: JsonObject, set: FieldSetBuilder): void {
  for (const name in value) {
    const given = value[name];
    const member = type.members.get(name);
    const inner = member?.type ?? type.others;
    if (given === undefined || inner === undefined) continue;
    takeChild(inner, given ?? member?.zero ?? null, member?.element ?? `f:${name}`, set);
  }
  for (const member of zerosOf(type)) {
    if (value[member.name] === undefined) takeChild(member.type, member.zero ?? null, member.element, set);
  }
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

/** A struct is never empty if its type always has a member. */
function isEmptyObject(type: MergeType, object: JsonObject | undefined): boolean {
  if (object === undefined) return true;
  for (const name in object) {
    if (object[name] !== undefined) return false;
  }
  return type.kind !== 'struct' || zerosOf(type).length === 0;
}

const zeros = new WeakMap<StructMergeType, readonly MergeMember[]>();

/** Returns the members that the type always has. */
function zerosOf(type: StructMergeType): readonly MergeMember[] {
  let found = zeros.get(type);
  if (found === undefined) {
    found = [...type.members.values()].filter((member) => member.zero !== undefined);
    zeros.set(type, found);
  }
  return found;
}

function compareLeaf(old: JsonValue, next: JsonValue, sets: Sets): void {
  if (!jsonEqual(old, next)) sets.modified.owned = true;
}

function compareStruct(
  type: StructMergeType,
  old: JsonObject | undefined,
  next: JsonObject | undefined,
  sets: Sets,
): void {
  for (const member of type.members.values()) {
    const oldValue = old === undefined ? undefined : (old[member.name] ?? nullOr(old, member.name, member.zero));
    const nextValue = next === undefined ? undefined : (next[member.name] ?? nullOr(next, member.name, member.zero));
    if (oldValue === undefined && nextValue === undefined) continue;
    compareMember(member.type, member.element, oldValue, nextValue, sets);
  }
  if (type.others === undefined) return;
  for (const name of memberNames(old, next)) {
    if (!type.members.has(name)) compareMember(type.others, `f:${name}`, own(old, name), own(next, name), sets);
  }
}

/** Returns the value for a member that is null or absent. */
function nullOr(object: JsonObject, name: string, zero: JsonValue | undefined): JsonValue | undefined {
  return object[name] === null ? (zero === undefined ? null : zero) : zero;
}

function compareMap(values: MergeType, old: JsonObject | undefined, next: JsonObject | undefined, sets: Sets): void {
  for (const name of memberNames(old, next)) {
    compareMember(values, `f:${name}`, own(old, name), own(next, name), sets);
  }
}

function own(object: JsonObject | undefined, name: string): JsonValue | undefined {
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
    const below = {
      added: sets.added.child(element),
      removed: sets.removed.child(element),
      modified: sets.modified.child(element),
    };
    compareValue(type, old, next, below);
    sets.added.dropEmpty(element);
    sets.removed.dropEmpty(element);
    sets.modified.dropEmpty(element);
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
    if (!jsonEqual(old, next)) sets.modified.child(element).owned = true;
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
