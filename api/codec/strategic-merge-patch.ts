/**
 * Implements strategic merge patch: a merge patch that merges some lists by key and obeys directives in the patch (`$patch`,
 * `$retainKeys`, `$setElementOrder/…`, `$deleteFromPrimitiveList/…`).
 *
 * The `patchStrategy` and `patchMergeKey` of the schema determine which lists merge. Neither the document nor the patch is
 * modified.
 */
import { quote } from '../meta/field-error.ts';
import { cloneJson } from '../meta/json-equality.ts';
import { setMember } from '../meta/own-member.ts';
import { isJsonObject } from '../meta/json-object.ts';
import type { JsonObject, JsonValue } from '../meta/object.ts';
import { newBadRequest, newErrorWithoutReason, newStatusError } from '../meta/status-error.ts';
import type { StructType, TypeNode } from '../schema/schema.ts';
import { jsonTypeName } from './json-patch.ts';
import {
  checkSetElementOrder,
  goText,
  goTypeName,
  ItemIndex,
  orderElements,
  requireMap,
  requireMergeKey,
  unexpectedType,
} from './strategic-merge-order.ts';

const PATCH = '$patch';
const RETAIN_KEYS = '$retainKeys';
const SET_ORDER = '$setElementOrder';
const DELETE_FROM = '$deleteFromPrimitiveList';

/** The result of a patch, and what kube-apiserver shows of the patch in errors: it drops the parts that it has handled. */
interface StrategicMerge {
  readonly value: JsonObject;
  readonly patch: JsonValue;
}

/**
 * Returns the document with the patch applied. Throws a 400 for an invalid patch, a 422 for lists of lists that would be
 * merged, and a 500 without a reason for patches on which kube-apiserver fails in this way.
 */
export function applyStrategicMergePatch(document: JsonObject, patch: unknown, struct: StructType): StrategicMerge {
  if (patch === null) return { value: document, patch: {} };
  if (typeof patch !== 'object' || Array.isArray(patch)) {
    const type = jsonTypeName(patch);
    throw newBadRequest(
      `error decoding patch: json: cannot unmarshal ${type} into Go value of type map[string]interface {}`,
    );
  }
  const remaining = cloneJson(patch) as JsonObject;
  return { value: mergeMap(cloneJson(document), remaining, { kind: 'struct', struct }), patch: remaining };
}

/** The type of a member in the schema, and how patches treat it. */
interface MemberRules {
  readonly type: TypeNode | undefined;
  readonly merges: boolean;
  readonly replaces: boolean;
  readonly mergeKey: string;
}

const NO_RULES: MemberRules = { type: undefined, merges: false, replaces: false, mergeKey: '' };

function rulesOf(owner: TypeNode | undefined, member: string): MemberRules {
  if (owner?.kind === 'map') return { ...NO_RULES, type: owner.values };
  if (owner?.kind !== 'struct') return NO_RULES;
  const field = owner.struct.fields.get(member);
  if (field === undefined) {
    const name = owner.struct.name.slice(owner.struct.name.lastIndexOf('.') + 1);
    throw newErrorWithoutReason(`unable to find api field in struct ${name} for the json field ${quote(member)}`);
  }
  const strategies = field.patchStrategy ?? [];
  return {
    type: field.type,
    merges: strategies.includes('merge'),
    replaces: strategies.includes('replace'),
    mergeKey: field.patchMergeKey ?? '',
  };
}

const itemType = (type: TypeNode | undefined): TypeNode | undefined => (type?.kind === 'list' ? type.items : undefined);

/** Merges `patch` into `original` and may modify both. */
function mergeMap(original: JsonObject, patch: JsonObject, type: TypeNode | undefined): JsonObject {
  if (Object.hasOwn(patch, PATCH)) return obeyMapDirective(patch);
  retainKeys(original, patch);
  mergeOrderedLists(original, patch, type);
  for (const [key, value] of Object.entries(patch)) mergeMember(original, key, value, type);
  return original;
}

function obeyMapDirective(patch: JsonObject): JsonObject {
  const directive = patch[PATCH];
  if (directive === 'delete') return {};
  if (directive !== 'replace')
    throw newErrorWithoutReason(`unknown patch type: ${goText(directive)} in map: ${goText(patch)}`);
  delete patch[PATCH];
  return patch;
}

function retainKeys(original: JsonObject, patch: JsonObject): void {
  if (!Object.hasOwn(patch, RETAIN_KEYS)) return;
  const list = patch[RETAIN_KEYS];
  delete patch[RETAIN_KEYS];
  if (!Array.isArray(list)) throw newBadRequest('invalid patch format of retainKeys');
  const retained = new Set(list);
  for (const [key, value] of Object.entries(patch)) {
    if (value === null || key.startsWith(`${DELETE_FROM}/`) || key.startsWith(`${SET_ORDER}/`)) continue;
    if (!retained.has(key)) throw newBadRequest('invalid patch format of retainKeys');
  }
  for (const key of Object.keys(original)) {
    if (!retained.has(key)) delete original[key];
  }
}

/**
 * Returns the member to which a directive such as `$setElementOrder/containers` belongs, or `undefined` for another key. Throws
 * a 400 with the message `fault` for a directive without a member.
 */
function memberOfDirective(key: string, directive: string, fault: string): string | undefined {
  if (!key.startsWith(directive)) return undefined;
  const member = key.slice(directive.length);
  if (!member.startsWith('/')) throw newBadRequest(fault);
  return member.slice(1);
}

/** Merges the lists with `$setElementOrder` and removes them from the patch. */
function mergeOrderedLists(original: JsonObject, patch: JsonObject, type: TypeNode | undefined): void {
  const fault = 'invalid patch format of setElementOrder list';
  for (const [key, order] of Object.entries(patch)) {
    const member = memberOfDirective(key, SET_ORDER, fault);
    if (member === undefined) continue;
    delete patch[key];
    if (!Array.isArray(order)) throw noList(order);
    const before = Object.hasOwn(original, member) ? original[member] : undefined;
    const added = Object.hasOwn(patch, member) ? patch[member] : undefined;
    if (before !== undefined && !isList(before)) throw noList(before);
    if (added !== undefined && !isList(added)) throw noList(added);
    const rules = rulesOf(type, member);
    checkSetElementOrder(added, order, rules.mergeKey);
    if (before === undefined && added === undefined) continue;
    const serverOrder = [...(before ?? [])];
    const merged = mergedList(before, added, rules);
    if (rules.mergeKey !== '') checkPlaces(merged, order, rules.mergeKey);
    // kube-apiserver asks for a merge key even where the list has none.
    if (elementType([...serverOrder, ...(added ?? [])], [before ?? [], added ?? []]) === MAP)
      for (const item of [...order, ...merged, ...serverOrder]) requireMergeKey(requireMap(item), rules.mergeKey);
    setMember(original, member, orderElements(merged, order, serverOrder, rules.mergeKey));
    delete patch[member];
  }
}

/** Throws, as kube-apiserver does, for items without the merge key and for an order that is not one of objects. */
function checkPlaces(items: readonly JsonValue[], order: readonly JsonValue[], mergeKey: string): void {
  for (const item of items) requireMergeKey(requireMap(item), mergeKey);
  const place = items.length === 0 ? -1 : order.findIndex((item) => !isJsonObject(item));
  if (place >= 0) throw newErrorWithoutReason(`value for key ${place} is not a map`);
}

const noList = (found: JsonValue | undefined) => unexpectedType('[]interface {}', found);

const isList = (value: JsonValue | undefined): value is JsonValue[] => Array.isArray(value);

function mergedList(before: JsonValue[] | undefined, added: JsonValue[] | undefined, rules: MemberRules): JsonValue[] {
  if (added === undefined) return before ?? [];
  if (before === undefined) return dropDirectives(added) as JsonValue[];
  return rules.merges ? mergeList(before, added, rules) : added;
}

/** Applies one member of a patch to `original`. */
function mergeMember(
  original: JsonObject,
  key: string,
  value: JsonValue | undefined,
  type: TypeNode | undefined,
): void {
  const listed = memberOfDirective(key, DELETE_FROM, 'invalid patch format of primitive list');
  const member = listed ?? key;
  if (value === null || value === undefined) {
    delete original[member];
    return;
  }
  const old = Object.hasOwn(original, member) ? original[member] : undefined;
  if (isList(old) && isList(value)) {
    const rules = rulesOf(type, member);
    if (listed !== undefined) setMember(original, member, deleteFromList(old, value, rules));
    else setMember(original, member, rules.merges ? mergeList(old, value, rules) : value);
  } else if (listed !== undefined) {
    return;
  } else if (isJsonObject(old) && isJsonObject(value)) {
    const rules = rulesOf(type, member);
    setMember(original, member, rules.replaces ? value : mergeMap(old, value, rules.type));
  } else {
    dropNulls(value);
    const added = dropDirectives(value);
    if (added === undefined) delete original[member];
    else setMember(original, member, added);
  }
}

/** Removes scalars from a list. Objects cannot be removed in this way: kube-apiserver merges them into the list. */
function deleteFromList(list: JsonValue[], removed: JsonValue[], rules: MemberRules): JsonValue[] {
  if (list.length === 0 && removed.length === 0) return list;
  if (elementType([...list, ...removed], [list, removed]) === MAP)
    return mergeKeyedList(list, removed as JsonObject[], rules);
  const places = new ItemIndex(removed, '');
  return list.filter((item) => places.indexOf(item) < 0);
}

const MAP = goTypeName({});

/** Returns the Go type of the items, which must be the same for all. `lists` are what an error shows. */
function elementType(items: readonly JsonValue[], lists: JsonValue[][]): string {
  const [first] = items;
  if (first === undefined) throw newErrorWithoutReason('no elements in any of the given slices');
  const type = goTypeName(first);
  if (Array.isArray(first)) throw newStatusError(422, '', 'lists of lists are not supported');
  for (const item of items) {
    if (goTypeName(item) !== type)
      throw newErrorWithoutReason(`list element types are not identical: ${goText(lists)}`);
  }
  return type;
}

function mergeList(original: JsonValue[], patch: JsonValue[], rules: MemberRules): JsonValue[] {
  if (original.length === 0 && patch.length === 0) return original;
  if (elementType([...original, ...patch], [original, patch]) !== MAP) {
    const merged: JsonValue[] = [];
    const places = new ItemIndex([], '');
    for (const item of [...original, ...patch]) {
      if (places.indexOf(item) >= 0) continue;
      merged.push(item);
      places.push(item);
    }
    return orderElements(merged, patch, original, '');
  }
  return mergeKeyedList(original, patch as JsonObject[], rules);
}

function mergeKeyedList(original: JsonValue[], patch: JsonObject[], rules: MemberRules): JsonValue[] {
  const { mergeKey } = rules;
  const itemsType = itemType(rules.type);
  if (mergeKey === '')
    throw newErrorWithoutReason(`cannot merge lists without merge key for ${itemsType?.kind ?? 'interface'}`);
  const { remaining, additions, replaced } = obeyListDirectives(original, patch, mergeKey);
  if (replaced) return additions;
  const merged = [...remaining];
  const places = new ItemIndex(merged, mergeKey);
  for (const item of additions) {
    requireMergeKey(item, mergeKey);
    const index = places.indexOf(item);
    const found = merged[index];
    if (isJsonObject(found)) merged[index] = mergeMap(found, item, itemsType);
    else {
      merged.push(item);
      places.push(item);
    }
  }
  for (const item of merged) if (isJsonObject(item)) requireMergeKey(item, mergeKey);
  return orderElements(merged, additions, remaining, mergeKey);
}

interface ListDirectives {
  readonly remaining: JsonValue[];
  readonly additions: JsonObject[];
  readonly replaced: boolean;
}

function obeyListDirectives(original: JsonValue[], patch: readonly JsonObject[], mergeKey: string): ListDirectives {
  const deleted: JsonObject[] = [];
  let replaced = false;
  const additions: JsonObject[] = [];
  for (const item of patch) {
    if (!Object.hasOwn(item, PATCH)) {
      additions.push(item);
      continue;
    }
    switch (item[PATCH]) {
      case 'delete':
        requireMergeKey(item, mergeKey);
        deleted.push(item);
        break;
      case 'replace':
        replaced = true;
        break;
      case 'merge':
        throw newErrorWithoutReason('merging lists cannot yet be specified in the patch');
      default:
        throw newErrorWithoutReason(`unknown patch type: ${goText(item[PATCH])} in map: ${goText(item)}`);
    }
  }
  const removed = new ItemIndex(deleted, mergeKey);
  const remaining = deleted.length === 0 ? original : original.filter((item) => removed.indexOf(item) < 0);
  return { remaining, additions, replaced };
}

/**
 * Removes the objects with `$patch` from a value that is not merged with another one. Returns `undefined` if the value is such
 * an object itself. Objects are changed in place.
 */
function dropDirectives(value: JsonValue): JsonValue | undefined {
  if (Array.isArray(value)) return value.map(dropDirectives).filter((item) => item !== undefined);
  if (!isJsonObject(value)) return value;
  if (Object.hasOwn(value, PATCH)) return undefined;
  for (const [key, member] of Object.entries(value)) {
    const inner = member === undefined ? undefined : dropDirectives(member);
    if (inner === undefined) delete value[key];
    else setMember(value, key, inner);
  }
  return value;
}

/** Removes members that are null at any depth. */
function dropNulls(value: JsonValue): void {
  if (Array.isArray(value)) {
    for (const item of value) dropNulls(item);
    return;
  }
  if (!isJsonObject(value)) return;
  for (const [key, member] of Object.entries(value)) {
    if (member === null || member === undefined) delete value[key];
    else dropNulls(member);
  }
}
