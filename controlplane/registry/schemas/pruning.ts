/** Removes the fields of a custom resource that its schema does not have, and returns their paths. */
import { memberPath } from '../../../api/meta/field-error.ts';
import { setMember } from '../../../api/meta/own-member.ts';
import { isJsonObject } from '../../../api/meta/json-object.ts';
import type { JsonObject, JsonValue } from '../../../api/meta/object.ts';
import { itemsOfPruned, type JsonSchema, keepsUnknown, memberSchema, OBJECT_MEMBERS } from './json-schema.ts';

interface Pruned {
  /** A new object. It shares metadata and values without a schema with the input, which is not modified. */
  readonly value: JsonObject;
  /** Paths such as `spec.unknown` and `spec.list[0].extra`, in the order of the object. */
  readonly unknown: readonly string[];
}

/** Prunes a whole object, of which `apiVersion`, `kind` and `metadata` are always kept. */
export function prune(object: JsonObject, schema: JsonSchema): Pruned {
  const unknown: string[] = [];
  const value = pruneObject(object, schema, { path: '', isResource: true }, unknown);
  return { value, unknown };
}

interface Place {
  readonly path: string;
  /** Whether the object is a resource. Its `apiVersion`, `kind` and `metadata` are kept, whatever the schema is. */
  readonly isResource: boolean;
}

function pruneObject(
  object: JsonObject,
  schema: JsonSchema,
  { path, isResource }: Place,
  unknown: string[],
): JsonObject {
  const pruned: JsonObject = {};
  for (const [name, value] of Object.entries(object)) {
    if (value === undefined) continue;
    const at = memberPath(path, name);
    if (isResource && OBJECT_MEMBERS.has(name)) {
      setMember(pruned, name, value);
      continue;
    }
    const inner = memberSchema(schema, name);
    if (inner !== undefined) setMember(pruned, name, pruneValue(value, inner, at, unknown));
    else if (keepsUnknown(schema)) setMember(pruned, name, value);
    else unknown.push(at);
  }
  return pruned;
}

/** Prunes any value. The paths of removed fields are added to `unknown`. */
export function pruneValue(value: JsonValue, schema: JsonSchema, path: string, unknown: string[]): JsonValue {
  if (isJsonObject(value)) {
    const isResource = schema['x-kubernetes-embedded-resource'] === true;
    return pruneObject(value, schema, { path, isResource }, unknown);
  }
  const items = itemsOfPruned(schema);
  if (!Array.isArray(value) || items === undefined) return value;
  return value.map((item, index) => pruneValue(item, items, `${path}[${index}]`, unknown));
}
