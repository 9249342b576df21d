/** Drops what a custom resource's schema does not name, and says what that was. */
import { defineMember } from '../../api/meta/json-equality.ts';
import type { JsonObject, JsonValue } from '../../api/meta/object.ts';
import { isObject, itemsToPrune, type JsonSchema, keepsUnknown, memberSchema, OBJECT_MEMBERS } from './json-schema.ts';

export interface Pruned {
  /** Shares what was not pruned with the value that came in, which is not changed. */
  readonly value: JsonObject;
  /** `spec.unknown`, `spec.list[0].extra`; in order of the text. */
  readonly unknown: readonly string[];
}

export function prune(object: JsonObject, schema: JsonSchema): Pruned {
  const unknown: string[] = [];
  const value = pruneObject(object, schema, '', true, unknown);
  return { value, unknown };
}

/** `isResource`: `apiVersion`, `kind` and `metadata` are not the schema's business. */
function pruneObject(
  object: JsonObject,
  schema: JsonSchema,
  path: string,
  isResource: boolean,
  unknown: string[],
): JsonObject {
  const kept: JsonObject = {};
  for (const [name, value] of Object.entries(object)) {
    if (value === undefined) continue;
    const at = path === '' ? name : `${path}.${name}`;
    if (isResource && OBJECT_MEMBERS.has(name)) {
      defineMember(kept, name, value);
      continue;
    }
    const inner = memberSchema(schema, name);
    if (inner !== undefined) defineMember(kept, name, pruneValue(value, inner, at, unknown));
    else if (keepsUnknown(schema)) defineMember(kept, name, value);
    else unknown.push(at);
  }
  return kept;
}

/** Of a value anywhere; names what was dropped in `unknown`. */
export function pruneValue(value: JsonValue, schema: JsonSchema, path: string, unknown: string[]): JsonValue {
  if (isObject(value)) {
    return pruneObject(value, schema, path, schema['x-kubernetes-embedded-resource'] === true, unknown);
  }
  const items = itemsToPrune(schema);
  if (!Array.isArray(value) || items === undefined) return value;
  return value.map((item, index) => pruneValue(item, items, `${path}[${index}]`, unknown));
}
