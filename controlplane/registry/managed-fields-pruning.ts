/** Removes the fields that an applier no longer applies, in the version in which it applied them. Pure. */
import {
  difference,
  emptySet,
  intersection,
  isEmptySet,
  union,
  type FieldSet,
} from '../../api/codec/structured-merge/field-set.ts';
import type { MergeType } from '../../api/codec/structured-merge/merge-types.ts';
import { fieldSetOf, removePaths, withNamedMembers } from '../../api/codec/structured-merge/typed-value.ts';
import type { JsonObject, JsonValue } from '../../api/meta/object.ts';
import type { Owner, Owners } from './managed-fields-entries.ts';
import type { Pausing } from '../../api/machinery/pausing.ts';

/** A version of the kind. Its functions convert from and to the version of the request. */
export interface View {
  readonly type: MergeType;
  convert(object: JsonObject): Pausing<JsonObject>;
  restore(object: JsonObject): Pausing<JsonObject>;
}

/** Returns an empty object for an absent value and for null. */
export const asObject = (value: JsonValue | undefined): JsonObject => (value ?? {}) as JsonObject;

/** Removes the fields that the applier applied last time and that have no owner now. */
export function* prune(
  merged: JsonObject,
  owners: Owners,
  last: Owner,
  viewOf: (apiVersion: string) => View,
): Pausing<JsonObject> {
  if (isEmptySet(last.fields)) return merged;
  const view = viewOf(last.apiVersion);
  const { type } = view;
  const lastNamed = withNamedMembers(type, last.fields);
  const converted = yield* view.convert(merged);
  const owned = new Map<View, FieldSet>([[view, emptySet]]);
  for (const owner of owners.values()) {
    const ownerView = viewOf(owner.apiVersion);
    owned.set(ownerView, union(owned.get(ownerView) ?? emptySet, owner.fields));
  }
  yield;
  let pruned = asObject(removePaths(type, converted, lastNamed));
  let at = view;
  for (const [next, fields] of owned) {
    if (next !== at) pruned = yield* next.convert(yield* at.restore(pruned));
    at = next;
    pruned = yield* withOwned(next.type, next === view ? converted : yield* next.convert(merged), pruned, fields);
  }
  if (at !== view) pruned = yield* view.convert(yield* at.restore(pruned));
  yield;
  // Keeps a field that was removed only because it was below a removed one, if the applier did not own it.
  const before = withNamedMembers(type, fieldSetOf(type, converted));
  const prunedSet = withNamedMembers(type, fieldSetOf(type, pruned));
  const removed = intersection(difference(before, prunedSet), lastNamed);
  return yield* view.restore(asObject(removePaths(type, converted, removed)));
}

/** Adds the members of `merged` that have an owner back to `pruned`. */
function* withOwned(type: MergeType, merged: JsonObject, pruned: JsonObject, owned: FieldSet): Pausing<JsonObject> {
  const mergedSet = withNamedMembers(type, fieldSetOf(type, merged));
  yield;
  const prunedSet = withNamedMembers(type, fieldSetOf(type, pruned));
  yield;
  const ownedSet = union(prunedSet, withNamedMembers(type, owned));
  return asObject(removePaths(type, merged, difference(mergedSet, ownedSet)));
}
