/**
 * Computes field ownership with field sets: which owners lose the fields that a write changes, and which fields an applier
 * releases because it no longer applies them.
 */
import { compare, type Comparison } from '../../api/codec/structured-merge/compare.ts';
import {
  difference,
  emptySet,
  intersection,
  isEmptySet,
  recursiveDifference,
  setOfPaths,
  union,
  type FieldSet,
} from '../../api/codec/structured-merge/field-set.ts';
import { merge } from '../../api/codec/structured-merge/merge.ts';
import type { MergeType, StructMergeType } from '../../api/codec/structured-merge/merge-types.ts';
import { newFields } from '../../api/codec/structured-merge/new-fields.ts';
import { fieldSetOf, withWholes } from '../../api/codec/structured-merge/typed-value.ts';
import type { JsonObject } from '../../api/meta/object.ts';
import type { OwnerConflict } from './managed-fields-conflicts.ts';
import { asObject, prune, type View } from './managed-fields-pruning.ts';
import type { Pausing } from '../../api/machinery/pausing.ts';
import type { ResetFields } from './strategy.ts';
import { capUpdaters, ownerKey, type Owner, type Owners } from './managed-fields-entries.ts';

const OF_SERVER = [
  ['f:apiVersion'],
  ['f:kind'],
  ...[
    'name',
    'namespace',
    'creationTimestamp',
    'selfLink',
    'uid',
    'clusterName',
    'generation',
    'managedFields',
    'resourceVersion',
  ].map((name) => ['f:metadata', `f:${name}`]),
];

/** Fields that the server sets or the path determines have no owner. */
const UNOWNED = setOfPaths([['f:metadata'], ...OF_SERVER]);

/** The fields of a new object that have no owner, whoever creates it. What is below them has none either. */
const UNOWNED_OF_NEW = setOfPaths(OF_SERVER);

/** The field manager that writes now. */
export interface Writer {
  readonly manager: string;
  readonly apiVersion: string;
  readonly subresource: string;
  /** The time in RFC 3339. Absent for writes through a Scale. */
  readonly time: string | undefined;
  /** The fields that this endpoint does not write, as paths and as a set. */
  readonly resetFields: ResetFields;
  readonly ignored: FieldSet;
  /** Whether the schema may have changed since the owners wrote, as that of a custom resource. */
  readonly mayChangeSchema: boolean;
  /** Returns the version in which another owner wrote. It and the functions of the version throw `UntypedVersionError`. */
  readonly others?: ((apiVersion: string) => View | 'unknown' | undefined) | undefined;
}

/**
 * The fields of an owner cannot be compared: objects cannot be converted to its version, or have members that the schema of
 * that version does not declare.
 */
export class UntypedVersionError extends Error {}

/** Returns another version, or `undefined` if fields of that version are compared in the version of the writer. */
function otherView({ apiVersion, others }: Writer, version: string): View | undefined {
  const view = version === apiVersion ? undefined : others?.(version);
  return view === 'unknown' ? undefined : view;
}

/**
 * Adapts the fields of the owners to the current schema, which may have made objects and lists atomic since the owners wrote.
 * Throws an `UntypedVersionError` if `live` cannot be converted to the version of an owner. Modifies `owners`.
 */
export function* adaptToSchema(
  owners: Owners,
  { type, live }: { readonly type: MergeType; readonly live: JsonObject },
  writer: Writer,
): Pausing<void> {
  const converted = new Set<string>();
  for (const [key, owner] of owners) {
    const view = owner.apiVersion === writer.apiVersion ? undefined : otherView(writer, owner.apiVersion);
    // Only fails if the conversion does. Its result is not needed.
    if (view !== undefined && !converted.has(owner.apiVersion)) yield* view.convert(live);
    converted.add(owner.apiVersion);
    const written = owner.apiVersion === writer.apiVersion ? type : view?.type;
    const fields = written === undefined ? owner.fields : withWholes(written, owner.fields);
    if (fields !== owner.fields) owners.set(key, { ...owner, fields });
  }
}

interface Changes extends Comparison {
  readonly written: FieldSet;
  /** The written and the removed fields. */
  readonly touched: FieldSet;
}

function withUnions({ added, removed, modified }: Comparison): Changes {
  const written = union(added, modified);
  return { added, removed, modified, written, touched: isEmptySet(removed) ? written : union(written, removed) };
}

/** The conversion to the version that an object has. */
// oxlint-disable-next-line require-yield -- its type is that of the conversions that pause
function* unchanged(object: JsonObject): Pausing<JsonObject> {
  return object;
}

/** Returns the function that finds the version of an owner. An owner whose version is not converted has that of the writer. */
function viewsFor(type: MergeType, writer: Writer): (apiVersion: string) => View {
  const writerView: View = { type, convert: unchanged, restore: unchanged };
  const views = new Map<string, View>();
  return (apiVersion) => {
    const view = views.get(apiVersion) ?? otherView(writer, apiVersion) ?? writerView;
    views.set(apiVersion, view);
    return view;
  };
}

/** Returns the changes of a write in the version of the writer, and a function for the changes in the version of an owner. */
function changesIn(
  type: MergeType,
  old: JsonObject,
  next: JsonObject,
  writer: Writer,
): { readonly writerChanges: Changes; readonly changesFor: ChangesFor } {
  const { ignored } = writer;
  const writerChanges = withUnions(changesOf(type, old, next, ignored));
  const byVersion = new Map([[writer.apiVersion, writerChanges]]);
  const changesFor: ChangesFor = function* (owner) {
    let changes = byVersion.get(owner.apiVersion);
    if (changes === undefined) {
      const other = otherView(writer, owner.apiVersion);
      changes = other === undefined ? writerChanges : withUnions(yield* changesInOther(other, old, next, ignored));
      byVersion.set(owner.apiVersion, changes);
    }
    return changes;
  };
  return { writerChanges, changesFor };
}

/** Returns the changes of a write in the version of an owner. */
type ChangesFor = (owner: Owner) => Pausing<Changes>;

function* changesInOther(other: View, old: JsonObject, next: JsonObject, ignored: FieldSet): Pausing<Comparison> {
  const before = yield* other.convert(old);
  try {
    return changesOf(other.type, before, yield* other.convert(next), ignored);
  } catch (error) {
    if (!(error instanceof UntypedVersionError)) throw error;
    throw new UntypedVersionError(`failed to convert new object: ${error.message}`, { cause: error });
  }
}

/** Returns the changes of a write, without fields that its endpoint does not write. */
function changesOf(type: MergeType, old: JsonObject, next: JsonObject, ignored: FieldSet): Comparison {
  const changes = compare(type, old, next);
  if (isEmptySet(ignored)) return changes;
  return {
    added: recursiveDifference(changes.added, ignored),
    removed: recursiveDifference(changes.removed, ignored),
    modified: recursiveDifference(changes.modified, ignored),
  };
}

/** Removes the changed fields from every owner except one. Owners without fields are removed. */
function* takeFrom(owners: Owners, changesFor: ChangesFor, except: string | undefined): Pausing<void> {
  for (const [key, owner] of owners) {
    const remaining = key === except ? owner.fields : difference(owner.fields, (yield* changesFor(owner)).touched);
    if (isEmptySet(remaining)) owners.delete(key);
    else if (remaining !== owner.fields) owners.set(key, { ...owner, fields: remaining });
  }
}

const skippedOfNew = new WeakMap<FieldSet, FieldSet>();

/** Computes the ownership of a new object that has no owners yet, as `ownUpdate` does. Adds the writer to `owners`. */
export function ownNew(type: StructMergeType, object: JsonObject, owners: Owners, writer: Writer): void {
  let skipped = skippedOfNew.get(writer.ignored);
  if (skipped === undefined) {
    skipped = union(UNOWNED_OF_NEW, writer.ignored);
    skippedOfNew.set(writer.ignored, skipped);
  }
  const fields = newFields(type, object, skipped);
  if (fields === undefined) return;
  const identity = { ...identityOf(writer), operation: 'Update' } as const;
  owners.set(ownerKey(identity), { ...identity, time: writer.time, fields });
}

/** Computes ownership after a write other than apply. Modifies `owners`. */
export function* ownUpdate(
  type: MergeType,
  { old, next }: { readonly old: JsonObject; readonly next: JsonObject },
  owners: Owners,
  writer: Writer,
): Pausing<void> {
  const { writerChanges, changesFor } = changesIn(type, old, next, writer);
  yield;
  yield* takeFrom(owners, changesFor, undefined);
  const owned = difference(writerChanges.written, UNOWNED);
  if (!isEmptySet(owned)) {
    const identity = { ...identityOf(writer), operation: 'Update' } as const;
    const key = ownerKey(identity);
    const before = owners.get(key)?.fields ?? emptySet;
    owners.set(key, { ...identity, time: writer.time, fields: union(owned, before) });
  }
  capUpdaters(owners);
}

function identityOf({
  manager,
  apiVersion,
  subresource,
}: Writer): Pick<Owner, 'manager' | 'apiVersion' | 'subresource'> {
  return { manager, apiVersion, subresource };
}

/** The result of an apply before its conflicts are judged. */
interface Applied {
  readonly object: JsonObject;
  /** The conflicts with other owners, whether or not the request forces them. */
  readonly conflicts: readonly OwnerConflict[];
}

/** Applies a configuration to `live`. Modifies `owners`, as if the request had forced the conflicts. */
export function* ownApply(
  type: MergeType,
  { live, applied }: { readonly live: JsonObject; readonly applied: JsonObject },
  owners: Owners,
  writer: Writer,
): Pausing<Applied> {
  const identity = { ...identityOf(writer), operation: 'Apply' } as const;
  const key = ownerKey(identity);
  const before = owners.get(key);
  const config = recursiveDifference(fieldSetOf(type, applied), writer.ignored);
  owners.set(key, { ...identity, time: before?.time, fields: config });
  yield;
  const merged = asObject(merge(type, live, applied));
  yield;
  const object = before === undefined ? merged : yield* prune(merged, owners, before, viewsFor(type, writer));
  yield;
  const { changesFor } = changesIn(type, live, object, writer);
  yield;
  const conflicts: OwnerConflict[] = [];
  for (const [other, owner] of owners) {
    if (other === key) continue;
    const fields = intersection(owner.fields, (yield* changesFor(owner)).written);
    if (!isEmptySet(fields)) conflicts.push({ owner, fields });
  }
  yield* takeFrom(owners, changesFor, key);
  const owned = difference(config, UNOWNED);
  if (isEmptySet(owned)) owners.delete(key);
  else owners.set(key, { ...identity, time: before?.time, fields: owned });
  return { object, conflicts };
}
