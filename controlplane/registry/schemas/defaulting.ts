/** Sets the defaults of a custom resource. A null where the schema does not allow null counts as absent. */
import { stringifyJson } from '../../../api/codec/json.ts';
import { newRequestEntityTooLarge } from '../../../api/meta/status-error.ts';
import { cloneJson } from '../../../api/meta/json-equality.ts';
import { setMember } from '../../../api/meta/own-member.ts';
import { isJsonObject } from '../../../api/meta/json-object.ts';
import type { JsonObject, JsonValue } from '../../../api/meta/object.ts';
import { itemsOf, type JsonSchema } from './json-schema.ts';

/** The maximum size of all added defaults, which is also the maximum size of an object. */
const MAX_ADDED_BYTES = 3 * 1024 * 1024;

/**
 * Sets the defaults of an object from a request, which it modifies. Throws a 413 if the defaults alone would make it too large.
 */
export function applyDefaults(object: JsonObject, schema: JsonSchema): void {
  defaultMembers(object, schema, new Additions('refuse'));
}

/** Sets the defaults of a stored object. Defaults that would make it too large are omitted, so that it can still be read. */
export function applyDefaultsToStored(object: JsonObject, schema: JsonSchema): void {
  defaultMembers(object, schema, new Additions('stop'));
}

const sizes = new WeakMap<object, number>();

/** Returns about the size of a value as JSON. Each character counts as one byte. */
function sizeOf(value: JsonValue): number {
  if (typeof value !== 'object' || value === null) return typeof value === 'string' ? value.length : 8;
  let size = sizes.get(value);
  if (size === undefined) {
    size = stringifyJson(value).length;
    sizes.set(value, size);
  }
  return size;
}

/** Counts the bytes that defaults add to one object. */
class Additions {
  readonly #excess: 'refuse' | 'stop';
  #left = MAX_ADDED_BYTES;

  constructor(excess: 'refuse' | 'stop') {
    this.#excess = excess;
  }

  /** Returns a copy of the default. Beyond the limit, returns `undefined` with `stop`, and throws a 413 with `refuse`. */
  take(value: JsonValue): JsonValue | undefined {
    this.#left -= sizeOf(value);
    if (this.#left >= 0) return cloneJson(value);
    if (this.#excess === 'stop') return undefined;
    throw newRequestEntityTooLarge(
      `request is too large: the defaults of its schema add more than ${MAX_ADDED_BYTES} bytes to the object`,
    );
  }
}

function setDefault(object: JsonObject, name: string, value: JsonValue, additions: Additions): void {
  const added = additions.take(value);
  if (added !== undefined) setMember(object, name, added);
}

function defaultMembers(object: JsonObject, schema: JsonSchema, additions: Additions): void {
  for (const [name, inner] of Object.entries(schema.properties ?? {})) {
    const value = Object.hasOwn(object, name) ? object[name] : undefined;
    if (inner.default === undefined) continue;
    if (value === undefined || (value === null && inner.nullable !== true)) {
      setDefault(object, name, inner.default, additions);
    }
  }
  for (const [name, value] of Object.entries(object)) {
    const isProperty = schema.properties !== undefined && Object.hasOwn(schema.properties, name);
    const additional = typeof schema.additionalProperties === 'object' ? schema.additionalProperties : undefined;
    const inner = isProperty ? schema.properties?.[name] : additional;
    if (inner === undefined || value === undefined) continue;
    if (value === null && !isProperty && inner.nullable !== true && inner.default !== undefined) {
      setDefault(object, name, inner.default, additions);
    } else defaultInside(value, inner, additions);
  }
}

function defaultInside(value: JsonValue, schema: JsonSchema, additions: Additions): void {
  if (isJsonObject(value)) defaultMembers(value, schema, additions);
  const items = itemsOf(schema);
  if (!Array.isArray(value) || items === undefined) return;
  value.forEach((item, index) => {
    if (item === null && items.nullable !== true && items.default !== undefined)
      value[index] = additions.take(items.default) ?? null;
    else defaultInside(item, items, additions);
  });
}

/**
 * Drops nulls of members that are not nullable. Modifies `object`. Runs after defaulting, because a default replaces such a
 * null.
 */
export function dropNulls(object: JsonObject, schema: JsonSchema): void {
  for (const [name, value] of Object.entries(object)) {
    const named = schema.properties !== undefined && Object.hasOwn(schema.properties, name);
    const additional = typeof schema.additionalProperties === 'object' ? schema.additionalProperties : undefined;
    const inner = named ? schema.properties?.[name] : additional;
    if (inner === undefined || value === undefined) continue;
    if (value === null && inner.nullable !== true) delete object[name];
    else dropNullsInside(value, inner);
  }
}

function dropNullsInside(value: JsonValue, schema: JsonSchema): void {
  const items = itemsOf(schema);
  if (isJsonObject(value)) dropNulls(value, schema);
  else if (Array.isArray(value) && items !== undefined) value.forEach((item) => dropNullsInside(item, items));
}
