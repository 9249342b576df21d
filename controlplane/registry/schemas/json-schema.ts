/**
 * Defines the schema of a custom resource as it is in its definition, and the functions on it that pruning, defaulting and
 * validation share.
 */
import type { JsonObject, JsonValue } from '../../../api/meta/object.ts';

/** An OpenAPI v3 schema with the extensions `x-kubernetes-*`. */
export interface JsonSchema {
  readonly type?: string;
  readonly format?: string;
  readonly nullable?: boolean;
  readonly default?: JsonValue;
  readonly enum?: readonly JsonValue[];
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly additionalProperties?: boolean | JsonSchema;
  readonly items?: JsonSchema | readonly JsonSchema[];
  readonly required?: readonly string[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: boolean;
  readonly exclusiveMaximum?: boolean;
  readonly multipleOf?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly pattern?: string;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly uniqueItems?: boolean;
  readonly minProperties?: number;
  readonly maxProperties?: number;
  readonly allOf?: readonly JsonSchema[];
  readonly anyOf?: readonly JsonSchema[];
  readonly oneOf?: readonly JsonSchema[];
  readonly not?: JsonSchema;
  readonly $ref?: string;
  readonly 'x-kubernetes-preserve-unknown-fields'?: boolean;
  readonly 'x-kubernetes-embedded-resource'?: boolean;
  readonly 'x-kubernetes-int-or-string'?: boolean;
  readonly 'x-kubernetes-list-type'?: 'atomic' | 'set' | 'map';
  readonly 'x-kubernetes-list-map-keys'?: readonly string[];
  readonly 'x-kubernetes-map-type'?: 'atomic' | 'granular';
  readonly 'x-kubernetes-validations'?: readonly JsonObject[];
}

/** Returns the schema of the items, or `undefined` if there is none or a list of schemas. */
export function itemsOf(schema: JsonSchema): JsonSchema | undefined {
  const { items } = schema;
  return items !== undefined && !Array.isArray(items) ? (items as JsonSchema) : undefined;
}

/** Returns the schema of a member: its own one, or `additionalProperties`. `undefined` if there is neither. */
export function memberSchema(schema: JsonSchema, name: string): JsonSchema | undefined {
  const { properties, additionalProperties } = schema;
  if (properties !== undefined && Object.hasOwn(properties, name)) return properties[name];
  return typeof additionalProperties === 'object' ? additionalProperties : undefined;
}

/** Returns the schemas directly below a schema. */
export function* innerSchemas(schema: JsonSchema): Generator<JsonSchema> {
  yield* Object.values(schema.properties ?? {});
  if (typeof schema.additionalProperties === 'object') yield schema.additionalProperties;
  const items = itemsOf(schema);
  if (items !== undefined) yield items;
  yield* [...(schema.allOf ?? []), ...(schema.anyOf ?? []), ...(schema.oneOf ?? [])];
  if (schema.not !== undefined) yield schema.not;
}

/** Where it is true, fields without a schema are not pruned. */
export const PRESERVES = 'x-kubernetes-preserve-unknown-fields';

const preservingItems = new WeakMap<JsonSchema, JsonSchema>();

/**
 * Returns the schema for pruning items: items of a list that preserves unknown fields preserve them, too. `undefined` if the
 * items have no schema.
 */
export function itemsToPrune(schema: JsonSchema): JsonSchema | undefined {
  const items = itemsOf(schema);
  if (items === undefined || schema[PRESERVES] !== true) return items;
  if (items[PRESERVES] === true || items['x-kubernetes-int-or-string'] === true) return items;
  let preserving = preservingItems.get(items);
  if (preserving === undefined) {
    preserving = { ...items, [PRESERVES]: true };
    preservingItems.set(items, preserving);
  }
  return preserving;
}

const NO_MEMBERS: JsonSchema = {};

/**
 * Returns the schema by which the items of a list are pruned, or `undefined` if the items keep all members. Where the schema
 * declares no items, for example because it has another type, items keep no members.
 */
export function itemsOfPruned(schema: JsonSchema): JsonSchema | undefined {
  return itemsToPrune(schema) ?? (schema[PRESERVES] === true ? undefined : NO_MEMBERS);
}

/** Whether members without a schema are preserved. */
export function keepsUnknown(schema: JsonSchema): boolean {
  return schema[PRESERVES] === true || schema.additionalProperties === true;
}

/** The members that every object has, whatever its schema is. */
export const OBJECT_MEMBERS: ReadonlySet<string> = new Set(['apiVersion', 'kind', 'metadata']);
