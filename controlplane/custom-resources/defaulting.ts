/** Sets the defaults of a custom resource; a null that is not allowed counts as absent. */
import { cloneJson, defineMember } from '../../api/meta/json-equality.ts';
import type { JsonObject, JsonValue } from '../../api/meta/object.ts';
import { isObject, itemsOf, type JsonSchema } from './json-schema.ts';

/** Modifies `object`. */
export function applyDefaults(object: JsonObject, schema: JsonSchema): void {
  for (const [name, inner] of Object.entries(schema.properties ?? {})) {
    const value = Object.hasOwn(object, name) ? object[name] : undefined;
    if (inner.default === undefined) continue;
    if (value === undefined || (value === null && inner.nullable !== true)) {
      defineMember(object, name, cloneJson(inner.default));
    }
  }
  for (const [name, value] of Object.entries(object)) {
    const known = schema.properties !== undefined && Object.hasOwn(schema.properties, name);
    const additional = typeof schema.additionalProperties === 'object' ? schema.additionalProperties : undefined;
    const inner = known ? schema.properties?.[name] : additional;
    if (inner === undefined || value === undefined) continue;
    if (value === null && !known && inner.nullable !== true && inner.default !== undefined) {
      defineMember(object, name, cloneJson(inner.default));
    } else defaultInside(value, inner);
  }
}

function defaultInside(value: JsonValue, schema: JsonSchema): void {
  if (isObject(value)) applyDefaults(value, schema);
  const items = itemsOf(schema);
  if (!Array.isArray(value) || items === undefined) return;
  value.forEach((item, index) => {
    if (item === null && items.nullable !== true && items.default !== undefined)
      value[index] = cloneJson(items.default);
    else defaultInside(item, items);
  });
}

/**
 * Drops nulls of named members that are not nullable. Modifies `object`; runs after defaulting, which replaces nulls of members
 * that have a default.
 */
export function dropNulls(object: JsonObject, schema: JsonSchema): void {
  for (const [name, value] of Object.entries(object)) {
    const named = schema.properties !== undefined && Object.hasOwn(schema.properties, name);
    const additional = typeof schema.additionalProperties === 'object' ? schema.additionalProperties : undefined;
    const inner = named ? schema.properties?.[name] : additional;
    if (inner === undefined || value === undefined) continue;
    if (value === null && named && inner.nullable !== true) delete object[name];
    else dropNullsInside(value, inner);
  }
}

function dropNullsInside(value: JsonValue, schema: JsonSchema): void {
  const items = itemsOf(schema);
  if (isObject(value)) dropNulls(value, schema);
  else if (Array.isArray(value) && items !== undefined) value.forEach((item) => dropNullsInside(item, items));
}
