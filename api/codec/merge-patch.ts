/**
 * Implements JSON merge patch (RFC 7386): null removes a member, objects merge, and all other values replace. Neither argument
 * is modified.
 */
import { setMember } from '../meta/own-member.ts';
import { isJsonObject } from '../meta/json-object.ts';
import type { JsonObject, JsonValue } from '../meta/object.ts';
import { newBadRequest } from '../meta/status-error.ts';
import { jsonTypeName } from './json-patch.ts';

/** Returns the document with the patch applied. Throws a 400 if the patch is not an object. */
export function applyMergePatch(document: JsonObject, patch: unknown): JsonObject {
  if (patch === null) throw newBadRequest('Invalid JSON Patch');
  if (typeof patch !== 'object' || Array.isArray(patch)) {
    const type = jsonTypeName(patch);
    throw newBadRequest(
      `error decoding patch: json: cannot unmarshal ${type} into Go value of type map[string]interface {}`,
    );
  }
  return mergeObjects(document, patch as JsonObject);
}

function mergeObjects(document: JsonObject, patch: JsonObject): JsonObject {
  const merged: JsonObject = {};
  for (const key of Object.keys(document)) {
    if (!Object.hasOwn(patch, key)) setMember(merged, key, document[key]);
    else if (patch[key] !== null) setMember(merged, key, mergeValue(document[key], patch[key]));
  }
  for (const key of Object.keys(patch)) {
    if (patch[key] === null || Object.hasOwn(document, key)) continue;
    setMember(merged, key, withoutNulls(patch[key]));
  }
  return merged;
}

/**
 * Returns the value of a member that the document and the patch have. As in kube-apiserver's library, a list that replaces an
 * object keeps the nulls of its items.
 */
function mergeValue(old: JsonValue | undefined, patch: JsonValue | undefined): JsonValue | undefined {
  if (isJsonObject(old) && isJsonObject(patch)) return mergeObjects(old, patch);
  return isJsonObject(old) ? patch : withoutNulls(patch);
}

/** Removes the nulls of a new value, because there is nothing that they could remove. Nulls in lists stay. */
function withoutNulls(value: JsonValue | undefined): JsonValue | undefined {
  if (Array.isArray(value)) return value.map((item) => withoutNulls(item) ?? null);
  if (!isJsonObject(value)) return value;
  const cleaned: JsonObject = {};
  for (const key of Object.keys(value)) {
    if (value[key] !== null) setMember(cleaned, key, withoutNulls(value[key]));
  }
  return cleaned;
}
