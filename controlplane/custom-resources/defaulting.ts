/**
 * Sets the defaults of a custom resource; a null that is not allowed counts as absent.
 *
 * Defaults multiply a request: each item of a list can get one. What they add to an object is bounded before it is added.
 */
import { stringifyJson } from '../../api/codec/json.ts';
import { newRequestEntityTooLarge } from '../../api/meta/status-error.ts';
import { cloneJson, defineMember } from '../../api/meta/json-equality.ts';
import type { JsonObject, JsonValue } from '../../api/meta/object.ts';
import { isObject, itemsOf, type JsonSchema } from './json-schema.ts';

/** What defaults may add: as much as an object may have as a whole. */
const MAX_ADDED_BYTES = 3 * 1024 * 1024;

/** Modifies `object`. Throws 413 where the defaults alone would make it too large. */
export function applyDefaults(object: JsonObject, schema: JsonSchema): void {
  defaultMembers(object, schema, new Additions('refuse'));
}

/** As `applyDefaults` for what is stored: what would be too large gets no further defaults, so that it can be read. */
export function applyDefaultsToStored(object: JsonObject, schema: JsonSchema): void {
  defaultMembers(object, schema, new Additions('stop'));
}

const sizes = new WeakMap<object, number>();

function sizeOf(value: JsonValue): number {
  if (typeof value !== 'object' || value === null) return typeof value === 'string' ? value.length : 8;
  let size = sizes.get(value);
  if (size === undefined) {
    size = stringifyJson(value).length;
    sizes.set(value, size);
  }
  return size;
}

/** Counts what defaults add to one object. */
class Additions {
  readonly #excess: 'refuse' | 'stop';
  #left = MAX_ADDED_BYTES;

  constructor(excess: 'refuse' | 'stop') {
    this.#excess = excess;
  }

  /** A copy of the default; `undefined` where it does not fit. */
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
  if (added !== undefined) defineMember(object, name, added);
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
    const known = schema.properties !== undefined && Object.hasOwn(schema.properties, name);
    const additional = typeof schema.additionalProperties === 'object' ? schema.additionalProperties : undefined;
    const inner = known ? schema.properties?.[name] : additional;
    if (inner === undefined || value === undefined) continue;
    if (value === null && !known && inner.nullable !== true && inner.default !== undefined) {
      setDefault(object, name, inner.default, additions);
    } else defaultInside(value, inner, additions);
  }
}

function defaultInside(value: JsonValue, schema: JsonSchema, additions: Additions): void {
  if (isObject(value)) defaultMembers(value, schema, additions);
  const items = itemsOf(schema);
  if (!Array.isArray(value) || items === undefined) return;
  value.forEach((item, index) => {
    if (item === null && items.nullable !== true && items.default !== undefined)
      value[index] = additions.take(items.default) ?? null;
    else defaultInside(item, items, additions);
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
