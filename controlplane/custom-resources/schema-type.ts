/**
 * Converts the schema of a custom resource to the type model of built-in kinds, so that structured merge, patches, Tables and
 * encodings treat it like any other kind.
 */
import type { GroupVersionKind } from '../../api/meta/object.ts';
import type { Field, Scalar, StructType, TypeNode } from '../../api/schema/schema.ts';
import { itemsToPrune, type JsonSchema, PRESERVES } from './json-schema.ts';

/** `metadata` is the type of ObjectMeta. */
export function structTypeOf(gvk: GroupVersionKind, schema: JsonSchema, metadata: StructType): StructType {
  const name = `${gvk.group}.${gvk.version}.${gvk.kind}`;
  return structOf(name, { ...schema, 'x-kubernetes-embedded-resource': true }, metadata);
}

function structOf(name: string, schema: JsonSchema, metadata: StructType): StructType {
  let fields: ReadonlyMap<string, Field> | undefined;
  return {
    name,
    /** Computed on first use, because a large cluster has many definitions whose objects are never written. */
    get fields() {
      fields ??= fieldsOf(name, schema, metadata);
      return fields;
    },
    ...(schema['x-kubernetes-map-type'] === 'atomic' ? { mapType: 'atomic' } : {}),
    ...(schema[PRESERVES] === true ? { preserveUnknown: true } : {}),
    ...(schema['x-kubernetes-embedded-resource'] === true ? { embeddedResource: true } : {}),
  };
}

function fieldsOf(name: string, schema: JsonSchema, metadata: StructType): ReadonlyMap<string, Field> {
  const fields = new Map<string, Field>();
  const required = new Set(schema.required);
  if (schema['x-kubernetes-embedded-resource'] === true) {
    const text = { kind: 'scalar', scalar: 'string' } as const;
    fields.set('apiVersion', { name: 'apiVersion', type: text, required: false });
    fields.set('kind', { name: 'kind', type: text, required: false });
    fields.set('metadata', { name: 'metadata', type: { kind: 'struct', struct: metadata }, required: false });
  }
  for (const [member, inner] of Object.entries(schema.properties ?? {})) {
    if (fields.has(member)) continue;
    fields.set(member, fieldOf(`${name}.${member}`, member, inner, required.has(member), metadata));
  }
  return fields;
}

function fieldOf(path: string, name: string, schema: JsonSchema, required: boolean, metadata: StructType): Field {
  const listType = schema.type === 'array' ? schema['x-kubernetes-list-type'] : undefined;
  const keys = schema['x-kubernetes-list-map-keys'];
  const mapType = schema['x-kubernetes-map-type'];
  return {
    name,
    type: typeOf(path, schema, metadata),
    required,
    ...(listType === undefined ? {} : { listType }),
    ...(keys === undefined ? {} : { listMapKeys: keys }),
    ...(mapType === undefined ? {} : { mapType }),
    ...(schema.default === undefined ? {} : { default: schema.default }),
    ...(schema.nullable === true ? { nullable: true } : {}),
  };
}

function typeOf(path: string, schema: JsonSchema, metadata: StructType): TypeNode {
  if (schema['x-kubernetes-int-or-string'] === true) return { kind: 'scalar', scalar: 'intOrString' };
  switch (schema.type) {
    case 'array': {
      const items = itemsToPrune(schema);
      return { kind: 'list', items: items === undefined ? unknown(path) : typeOf(`${path}[]`, items, metadata) };
    }
    case 'object': {
      const { additionalProperties } = schema;
      if (typeof additionalProperties === 'object') {
        return { kind: 'map', values: typeOf(`${path}.*`, additionalProperties, metadata) };
      }
      if (additionalProperties === true) return free(path);
      return { kind: 'struct', struct: structOf(path, schema, metadata) };
    }
    default:
      return schema.type === undefined || schema.type === ''
        ? unknown(path)
        : { kind: 'scalar', scalar: scalarOf(schema.type) };
  }
}

/** Returns the type of a value without a schema. Its members are tracked separately. */
function unknown(path: string): TypeNode {
  return { kind: 'struct', struct: { name: path, fields: new Map(), preserveUnknown: true, untyped: true } };
}

/** Returns the type of an object whose members have no schema. */
function free(path: string): TypeNode {
  return { kind: 'struct', struct: { name: path, fields: new Map(), preserveUnknown: true } };
}

function scalarOf(type: string): Scalar {
  if (type === 'integer') return 'int64';
  if (type === 'number') return 'double';
  return type === 'boolean' ? 'boolean' : 'string';
}
