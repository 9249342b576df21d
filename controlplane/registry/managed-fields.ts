/**
 * Tracks the ownership of fields on writes, and enforces it in server-side apply.
 *
 * A write other than apply never fails because of field ownership. If the fields of an object cannot be compared, it loses its
 * managed fields, as in kube-apiserver. Objects of the caller are never modified.
 */
import { duplicateErrors, duplicateWarnings } from '../../api/codec/duplicates.ts';
import { compare } from '../../api/codec/structured-merge/compare.ts';
import {
  emptySet,
  intersection,
  isEmptySet,
  setOfPaths,
  union,
  type FieldSet,
} from '../../api/codec/structured-merge/field-set.ts';
import { mergeTypeOf, PathElementError, type MergeType } from '../../api/codec/structured-merge/merge-types.ts';
import { typeErrors } from '../../api/codec/structured-merge/typed-value.ts';
import { type Clock, formatTime } from '../../api/machinery/clock.ts';
import { cloneJson, jsonEqual } from '../../api/meta/json-equality.ts';
import {
  apiVersionOf,
  parseApiVersion,
  type JsonObject,
  type JsonValue,
  type KubeObject,
  type ManagedFieldsEntry,
} from '../../api/meta/object.ts';
import { isStatusError, newBadRequest, newErrorWithoutReason } from '../../api/meta/status-error.ts';
import { DecodeError } from '../../api/schema/decode.ts';
import { withoutEmpties } from '../../api/schema/empty-values.ts';
import type { StructType } from '../../api/schema/schema.ts';
import type { ApplyWrite, FieldManagement, ManagedWrite, VersionLookup } from './field-management.ts';
import { newApplyConflict } from './managed-fields-conflicts.ts';
import { readOwners, sameOwnership, writeOwners, type Owner, type Owners } from './managed-fields-entries.ts';
import { conflictsBeyondLastApplied, withLastApplied } from './managed-fields-last-applied.ts';
import {
  adaptToSchema,
  ownApply,
  ownNew,
  ownUpdate,
  UntypedVersionError,
  type Writer,
} from './managed-fields-ownership.ts';
import { builtInReader, type ExpectedKind } from './object-decoding.ts';
import { atOnce, inTurns, type Pausing, waitFor } from '../../api/machinery/pausing.ts';
import type { ResetFields } from './strategy.ts';

/** The manager of the fields that existed before the first apply. */
const BEFORE_FIRST_APPLY = 'before-first-apply';
const NOTHING: KubeObject = Object.freeze({ metadata: Object.freeze({}) });

/** Creates the management of fields for one kind in one version. `others` finds its other versions. */
export function createFieldManagement(clock: Clock, expected: ExpectedKind, others?: VersionLookup): FieldManagement {
  const type = mergeTypeOf(expected.struct);
  const writerOf = (write: ManagedWrite): Writer => ({
    manager: write.manager,
    apiVersion: write.apiVersion,
    subresource: write.subresource,
    time: write.isUntimed === true ? undefined : formatTime(clock.now()),
    resetFields: write.resetFields,
    ignored: ignoredSet(write.resetFields),
    others: others === undefined ? undefined : otherVersions(others),
    mayChangeSchema: expected.reader !== builtInReader,
  });
  const applied = (...[live, patch, write]: Parameters<FieldManagement['apply']>): Pausing<KubeObject> =>
    applyManaged({ type, expected, live, patch, write, writer: writerOf(write) });
  return {
    update: (live, object, write) => atOnce(updateManaged(expected.struct, live, object, writerOf(write))),
    updateInTurns: (live, object, write) => inTurns(updateManaged(expected.struct, live, object, writerOf(write))),
    apply: (...args) => atOnce(applied(...args)),
    applyInTurns: (...args) => inTurns(applied(...args)),
  };
}

/**
 * Returns the function that finds the version in which an owner wrote, and how objects are converted to it. The function and
 * the conversions throw an `UntypedVersionError` if fields of that version cannot be compared.
 */
function otherVersions(lookup: VersionLookup): NonNullable<Writer['others']> {
  return (apiVersion) => {
    const other = lookup(apiVersion);
    if (other === undefined || other === 'unknown') return other;
    if (other === 'refused')
      throw new UntypedVersionError(`request to convert CR to an invalid group/version: ${apiVersion}`);
    const type = mergeTypeOf(other.struct);
    const convert = function* (object: JsonObject): Pausing<JsonObject> {
      if (object['kind'] === undefined) return object;
      const converted = yield* outcomeOf(other.convert(withMetadata(object)));
      const [error] = other.keepsUndeclared === true ? typeErrors(type, converted) : [];
      if (error !== undefined) throw new UntypedVersionError(error);
      return converted;
    };
    const restore = (object: JsonObject): Pausing<JsonObject> => outcomeOf(other.restore(withMetadata(object)));
    return { type, convert, restore };
  };
}

/**
 * Returns an object with metadata, which conversions expect and pruning may have removed. An object that has metadata is
 * returned itself, by which a conversion knows that it has converted it before.
 */
const withMetadata = (object: JsonObject): KubeObject =>
  ((object['metadata'] ?? undefined) === undefined ? { ...object, metadata: {} } : object) as unknown as KubeObject;

/** Waits for a conversion. Throws an `UntypedVersionError` if the webhook fails, because that concerns only the ownership. */
function* outcomeOf(converted: KubeObject | Promise<KubeObject>): Pausing<JsonObject> {
  if (!(converted instanceof Promise)) return converted as unknown as JsonObject;
  try {
    return (yield* waitFor(converted)) as unknown as JsonObject;
  } catch (error) {
    throw isStatusError(error) ? new UntypedVersionError(error.message, { cause: error }) : error;
  }
}

const ignoredSets = new WeakMap<ResetFields, FieldSet>();

function ignoredSet(reset: ResetFields): FieldSet {
  if (reset.length === 0) return emptySet;
  let set = ignoredSets.get(reset);
  if (set === undefined) {
    set = setOfPaths(reset.map((path) => path.map((name) => `f:${name}`)));
    ignoredSets.set(reset, set);
  }
  return set;
}

/** Returns an object in the form in which ownership is computed. It must not be modified. */
function withoutManagedFields(object: KubeObject): JsonObject {
  if (object.metadata.managedFields === undefined) return object as unknown as JsonObject;
  const { managedFields: _, ...metadata } = object.metadata;
  return { ...object, metadata } as unknown as JsonObject;
}

/** Returns the object with other entries of managed fields, or without any. */
export function withManagedFields(object: KubeObject, entries: ManagedFieldsEntry[] | undefined): KubeObject {
  const { managedFields: _, ...metadata } = object.metadata;
  return { ...object, metadata: entries === undefined ? metadata : { ...metadata, managedFields: entries } };
}

/** Whether the request removes all ownership by sending `[]` or `[{}]`. */
function isReset(entries: readonly ManagedFieldsEntry[] | undefined): boolean {
  const [only] = entries ?? [];
  return entries?.length === 0 || (entries?.length === 1 && only !== undefined && Object.keys(only).length === 0);
}

/** Returns the ownership before the write. A request for the object itself may reset or replace the stored one. */
function startingOwners(live: KubeObject | undefined, object: KubeObject, subresource: string): Owners {
  const entries = object.metadata.managedFields ?? undefined;
  if (subresource === '') {
    if (isReset(entries)) return new Map();
    const sent = readOwners(entries);
    if (sent !== undefined && sent.size > 0) return sent;
  }
  return readOwners(live?.metadata.managedFields) ?? new Map();
}

/**
 * Whether the top-level fields that the endpoint resets, apart from `metadata`, fit their types. kube-apiserver computes
 * ownership before it drops them.
 */
function fitsType(type: MergeType, object: KubeObject, resetFields: ResetFields): boolean {
  return resetFields.every(([name = '', inner]) => {
    const value = object[name] as JsonValue | undefined;
    if (inner !== undefined || name === 'metadata' || value === undefined) return true;
    return typeErrors(type, { [name]: value }, { allowsDuplicates: true }).length === 0;
  });
}

/**
 * Returns the object with its managed fields after a write other than apply, or without any if its ownership is not tracked or
 * cannot be computed.
 */
function* updateManaged(
  struct: StructType,
  live: KubeObject | undefined,
  object: KubeObject,
  writer: Writer,
): Pausing<KubeObject> {
  const type = mergeTypeOf(struct);
  const owners = startingOwners(live, object, writer.subresource);
  if (owners.size === 0 && live?.metadata.uid !== undefined) return withManagedFields(object, undefined);
  if (!fitsType(type, object, writer.resetFields)) return withManagedFields(object, undefined);
  try {
    dropForeign(owners, writer);
    const before = withoutManagedFields(live ?? NOTHING);
    if (writer.mayChangeSchema) yield* adaptToSchema(owners, { type, live: before }, writer);
    if (live !== undefined && writer.subresource === 'scale' && isUnowned(type, live, object, owners))
      return withManagedFields(object, writeOwners(owners));
    // Empty lists inside an atomic list count as a change, because kube-apiserver compares such lists as Go values.
    const next = withoutEmpties(struct, withoutManagedFields(object), { atomicLists: 'kept' });
    yield;
    if (live === undefined && owners.size === 0 && type.kind === 'struct') ownNew(type, next, owners, writer);
    else yield* ownUpdate(type, { old: before, next }, owners, writer);
  } catch (error) {
    if (!(error instanceof PathElementError || error instanceof UntypedVersionError)) throw error;
    return withManagedFields(object, undefined);
  }
  yield;
  const entries = entriesOf(owners, live);
  yield;
  return withManagedFields(object, entries);
}

/** Whether no owner has a field that the write adds or modifies. kube-apiserver does not track such a write of a Scale. */
function isUnowned(type: MergeType, live: KubeObject, object: KubeObject, owners: Owners): boolean {
  const { added, modified } = compare(type, withoutManagedFields(live), withoutManagedFields(object));
  const written = union(added, modified);
  return [...owners.values()].every(({ fields }) => isEmptySet(intersection(fields, written)));
}

/**
 * Drops owners in another group, because versions are converted within a group only. Also drops the owners of versions that no
 * longer exist.
 */
function dropForeign(owners: Owners, writer: Writer): void {
  const groupOf = (apiVersion: string): string => parseApiVersion(apiVersion)?.group ?? '';
  for (const [key, { apiVersion }] of owners) {
    if (apiVersion === writer.apiVersion) continue;
    if (groupOf(apiVersion) !== groupOf(writer.apiVersion) || writer.others?.(apiVersion) === 'unknown')
      owners.delete(key);
  }
}

/** Returns the owners as entries: those of `live` if they have the same owners, fields and times. */
function entriesOf(owners: Owners, live: KubeObject | undefined): ManagedFieldsEntry[] | undefined {
  const entries = equalEntries(owners, live);
  const old = entries === undefined ? undefined : readOwners(entries);
  const sameTimes = old !== undefined && [...owners].every(([key, owner]) => old.get(key)?.time === owner.time);
  return sameTimes ? entries : writeOwners(owners);
}

/** Returns the entries of `live` if they have the same owners and fields, whatever their times are. */
function equalEntries(owners: Owners, live: KubeObject | undefined): ManagedFieldsEntry[] | undefined {
  const entries = live?.metadata.managedFields;
  const old = entries === undefined ? undefined : readOwners(entries);
  return old !== undefined && sameOwnership(owners, old) ? entries : undefined;
}

interface ApplyRequest {
  readonly type: MergeType;
  readonly expected: ExpectedKind;
  readonly live: KubeObject | undefined;
  readonly patch: { readonly body: unknown; readonly force: boolean; readonly duplicates: readonly string[] };
  readonly write: ApplyWrite;
  readonly writer: Writer;
}

/**
 * Returns the object that results from an apply, with its managed fields. Throws a 409 for conflicts with other managers, a 400
 * for an invalid body, and a 500 if fields do not fit the schema or cannot be compared.
 */
function* applyManaged(request: ApplyRequest): Pausing<KubeObject> {
  const { type, expected, live, writer } = request;
  const config = readApplied(expected, request.patch.body);
  yield;
  const owners = readOwners(live?.metadata.managedFields);
  if (owners === undefined) throw newErrorWithoutReason('failed to decode managed fields');
  const current = withoutManagedFields(live ?? emptyOf(expected));
  const isFirst = owners.size === 0 && live !== undefined;
  yield* asFailure(adaptOwners(owners, { type, live: current }, writer));
  yield;
  if (isFirst) {
    refuseUntyped(request, current);
    const first = { old: withoutManagedFields(NOTHING), next: current };
    yield* ownUpdate(type, first, owners, { ...writer, manager: BEFORE_FIRST_APPLY });
  }
  const { object, conflicts } = yield* asFailure(ownApply(type, { live: current, applied: config }, owners, writer));
  yield;
  const refused = request.patch.force
    ? []
    : writer.manager === 'kubectl'
      ? conflictsBeyondLastApplied(type, live, conflicts)
      : conflicts;
  if (refused.length > 0) throw newApplyConflict(refused, request.write.shownAs);
  reportDuplicates(request);
  if (live !== undefined && jsonEqual(object, current)) {
    // The store may modify the result, so it must not share parts with the cached object.
    const liveCopy = withLastApplied(cloneJson(live) as unknown as JsonObject, config, live, writer.manager);
    return withManagedFields(liveCopy as unknown as KubeObject, entriesOf(owners, live));
  }
  const result = yield* conform(
    expected,
    withLastApplied(object, config, live, writer.manager),
    subjectText(expected, config['metadata']),
  );
  yield;
  const unchanged =
    live !== undefined && jsonEqual(withoutEmpties(expected.struct, withoutManagedFields(result)), current);
  return withManagedFields(result, (unchanged && equalEntries(owners, live)) || writeOwners(stamped(owners, writer)));
}

/** Refuses to apply to an object that has no owners and whose fields cannot be compared. */
function refuseUntyped({ type, expected }: ApplyRequest, current: JsonObject): void {
  const [error] = typeErrors(type, current, { allowsDuplicates: true });
  if (error === undefined) return;
  const subject = subjectText(expected, current['metadata']);
  throw newErrorWithoutReason(
    `failed to create manager for existing fields: failed to convert new object (${subject}) to smd typed: ${error}`,
  );
}

function* adaptOwners(owners: Owners, live: Parameters<typeof adaptToSchema>[1], writer: Writer): Pausing<void> {
  dropForeign(owners, writer);
  if (writer.mayChangeSchema) yield* adaptToSchema(owners, live, writer);
}

/** Throws a 500 if fields cannot be compared, which other writes than apply tolerate. */
function* asFailure<Result>(work: Pausing<Result>): Pausing<Result> {
  try {
    return yield* work;
  } catch (error) {
    throw error instanceof UntypedVersionError ? newErrorWithoutReason(error.message) : error;
  }
}

const emptyOf = (expected: ExpectedKind): KubeObject => ({
  apiVersion: apiVersionOf(expected),
  kind: expected.kind,
  metadata: {},
});

/** Returns the owners. The entry of the applier, if it has one, gets the time of this write. */
function stamped(owners: Owners, writer: Writer): Owners {
  const isApplier = (owner: Owner): boolean =>
    owner.operation === 'Apply' && owner.manager === writer.manager && owner.subresource === writer.subresource;
  return new Map([...owners].map(([key, owner]) => [key, isApplier(owner) ? { ...owner, time: writer.time } : owner]));
}

/**
 * Validates the body of an apply patch, and returns it with `metadata`. Throws a 400 for a body that is no object, that has
 * another kind or version or that has managed fields, and a 500 for fields that do not fit the schema.
 */
export function readApplied(expected: ExpectedKind, body: unknown): JsonObject {
  const type = mergeTypeOf(expected.struct);
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    const name = Array.isArray(body) ? 'array' : body === null ? 'null' : typeof body;
    throw newBadRequest(
      `error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal ${name} into Go value of type map[string]interface {}`,
    );
  }
  const config = body as KubeObject;
  const apiVersion = typeof config.apiVersion === 'string' ? config.apiVersion : '';
  const kind = typeof config.kind === 'string' ? config.kind : '';
  const { group, version } = parseApiVersion(apiVersion) ?? { group: '', version: '' };
  if (apiVersion !== apiVersionOf(expected) || kind !== expected.kind) {
    throw newBadRequest(`invalid object type: ${group}/${version}, Kind=${kind}`);
  }
  const metadata = (config.metadata as KubeObject['metadata'] | undefined | null) ?? {};
  if (metadata.managedFields !== undefined && metadata.managedFields !== null) {
    throw newBadRequest('metadata.managedFields must be nil');
  }
  const errors = typeErrors(type, config as unknown as JsonObject);
  if (errors.length > 0) {
    const name = subjectText(expected, metadata);
    const list = errors.length === 1 ? errors[0] : `errors:\n${errors.map((error) => `  ${error}`).join('\n')}`;
    throw newErrorWithoutReason(`failed to create typed patch object (${name}): ${list}`);
  }
  return withoutManagedFields({ ...config, metadata });
}

/** Refuses duplicate members of the body, warns of them or ignores them, as field validation requires. */
function reportDuplicates({ patch, write }: ApplyRequest): void {
  if (patch.duplicates.length === 0) return;
  if (write.validation === 'Strict') {
    const texts = duplicateErrors(patch.duplicates).join(', ');
    throw newBadRequest(`error strict decoding YAML: error converting YAML to JSON: ${texts}`);
  }
  if (write.validation === 'Warn') for (const text of duplicateWarnings(patch.duplicates)) write.warn(text);
}

/** Returns the name of the applied object in errors, for example `default/x; apps/v1, Kind=Deployment`. */
function subjectText(expected: ExpectedKind, metadata: unknown): string {
  const { namespace = '', name = '' } = (metadata ?? {}) as { readonly namespace?: string; readonly name?: string };
  return `${namespace}/${name}; ${kindText(expected)}`;
}

const kindText = ({ group, version, kind }: ExpectedKind): string => `${group}/${version}, Kind=${kind}`;

function* conform(expected: ExpectedKind, merged: JsonObject, subject: string): Pausing<KubeObject> {
  try {
    const { object } = yield* expected.reader.conform(merged, expected.struct, { isConversion: true });
    object.apiVersion = apiVersionOf(expected);
    object.kind = expected.kind;
    object.metadata ??= {};
    yield;
    expected.reader.applyDefaults(object, expected.struct);
    expected.applyDefaults?.(object);
    return object;
  } catch (error) {
    if (!(error instanceof DecodeError)) throw error;
    if (expected.reader !== builtInReader) throw newErrorWithoutReason(error.message);
    const why = `unable to convert unstructured object to ${kindText(expected)}: ${error.message}`;
    throw newErrorWithoutReason(`failed to convert new object (${subject}) to proper version: ${why}`);
  }
}
