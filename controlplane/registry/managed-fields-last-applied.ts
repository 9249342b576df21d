/**
 * Handles objects that kubectl applied on the client side before. The last-applied annotation shows which conflicts are
 * conflicts of kubectl with itself; these are ignored.
 */
import { parseJson, stringifyJson } from '../../api/codec/json.ts';
import { compare } from '../../api/codec/structured-merge/compare.ts';
import {
  difference,
  emptySet,
  intersection,
  isEmptySet,
  union,
  type FieldSet,
} from '../../api/codec/structured-merge/field-set.ts';
import type { MergeType } from '../../api/codec/structured-merge/merge-types.ts';
import { fieldSetOf } from '../../api/codec/structured-merge/typed-value.ts';
import { isJsonObject } from '../../api/meta/json-object.ts';
import type { JsonObject, JsonValue, KubeObject } from '../../api/meta/object.ts';
import { MAX_ANNOTATIONS_BYTES } from '../../api/meta/validation.ts';
import type { OwnerConflict } from './managed-fields-conflicts.ts';
import { LAST_APPLIED_ANNOTATION } from '../../api/meta/well-known-labels.ts';

function lastApplied(live: KubeObject | undefined): string {
  return live?.metadata.annotations?.[LAST_APPLIED_ANNOTATION] ?? '';
}

/**
 * Returns the conflicts that remain: those about fields that were not applied on the client side, or that have another value
 * since. If the annotation is absent or invalid, all conflicts remain.
 */
export function conflictsBeyondLastApplied(
  type: MergeType,
  live: KubeObject | undefined,
  conflicts: readonly OwnerConflict[],
): readonly OwnerConflict[] {
  const text = lastApplied(live);
  if (text === '') return conflicts;
  let allowed;
  try {
    allowed = unchangedSince(type, parseJson(text).value, live);
  } catch (error) {
    // Users can write the annotation, so an invalid one is ignored.
    if (error instanceof Error) return conflicts;
    throw error;
  }
  return conflicts
    .map(({ owner, fields }) => ({ owner, fields: difference(fields, intersection(fields, allowed)) }))
    .filter(({ fields }) => !isEmptySet(fields));
}

/** Returns the fields that were applied on the client side and still have the applied value. */
function unchangedSince(type: MergeType, applied: JsonValue, live: KubeObject | undefined): FieldSet {
  const version = isJsonObject(applied) ? applied['apiVersion'] : '';
  if (version !== live?.apiVersion) return emptySet;
  const { added, removed, modified } = compare(type, applied, live as unknown as JsonValue);
  return difference(fieldSetOf(type, applied), union(union(added, removed), modified));
}

/**
 * Returns `object` with an updated annotation, if `live` has the annotation and the applier is kubectl. The annotation is
 * removed if it would be larger than annotations may be.
 */
export function withLastApplied(
  object: JsonObject,
  config: JsonObject,
  live: KubeObject | undefined,
  manager: string,
): JsonObject {
  if (manager !== 'kubectl' || lastApplied(live) === '') return object;
  const metadata = object['metadata'] as KubeObject['metadata'];
  const annotations = { ...metadata.annotations };
  const text = `${stringifyJson(withoutAnnotation(config))}\n`;
  if (Buffer.byteLength(text) > MAX_ANNOTATIONS_BYTES) delete annotations[LAST_APPLIED_ANNOTATION];
  else annotations[LAST_APPLIED_ANNOTATION] = text;
  return { ...object, metadata: { ...metadata, annotations } } as unknown as JsonObject;
}

function withoutAnnotation(config: JsonObject): JsonObject {
  const metadata = config['metadata'] as KubeObject['metadata'];
  if (metadata.annotations?.[LAST_APPLIED_ANNOTATION] === undefined) return config;
  const { [LAST_APPLIED_ANNOTATION]: _, ...annotations } = metadata.annotations;
  return { ...config, metadata: { ...metadata, annotations } } as unknown as JsonObject;
}
