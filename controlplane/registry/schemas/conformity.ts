/** Checks whether a stored object already conforms to its schema: nothing to prune, and no default missing. */
import { isJsonObject } from '../../../api/meta/json-object.ts';
import type { JsonObject, JsonValue } from '../../../api/meta/object.ts';
import { itemsOfPruned, type JsonSchema, keepsUnknown, memberSchema, OBJECT_MEMBERS } from './json-schema.ts';

/** Whether an object conforms to the schema. Such an object can be served as its stored bytes. Pure. */
export function conforms(object: JsonObject, schema: JsonSchema): boolean {
  return conformsInside(object, schema, true);
}

function conformsInside(object: JsonObject, schema: JsonSchema, isResource: boolean): boolean {
  for (const [name, inner] of Object.entries(schema.properties ?? {})) {
    if (inner.default === undefined) continue;
    const value = Object.hasOwn(object, name) ? object[name] : undefined;
    if (value === undefined || (value === null && inner.nullable !== true)) return false;
  }
  for (const [name, value] of Object.entries(object)) {
    if (value === undefined || (isResource && OBJECT_MEMBERS.has(name))) continue;
    const inner = memberSchema(schema, name);
    if (inner === undefined ? !keepsUnknown(schema) : !valueConforms(value, inner)) return false;
  }
  return true;
}

function valueConforms(value: JsonValue, schema: JsonSchema): boolean {
  if (isJsonObject(value)) return conformsInside(value, schema, schema['x-kubernetes-embedded-resource'] === true);
  if (value === null) return schema.nullable === true || schema.default === undefined;
  const items = itemsOfPruned(schema);
  if (!Array.isArray(value) || items === undefined) return true;
  return value.every((item) => valueConforms(item, items));
}
