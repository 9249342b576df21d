/**
 * Converts the schema of a custom resource to the type model of built-in kinds, so that structured merge, patches, Tables and
 * encodings treat it like any other kind.
 */
import type { GroupVersionKind } from '../../../api/meta/object.ts';
import type { Field, StructType, TypeNode } from '../../../api/schema/schema.ts';
import { itemsToPrune, type JsonSchema, PRESERVES } from './json-schema.ts';

interface Within {
  /** The type of ObjectMeta. */
  readonly metadata: StructType;
  /** Whether an object above preserves unknown members. */
  readonly preserves: boolean;
}

/** Returns the type of the objects of a definition. `metadata` is the type of ObjectMeta. */
export function structTypeOf(gvk: GroupVersionKind, schema: JsonSchema, metadata: StructType): StructType {
  const name = `${gvk.group}.${gvk.version}.${gvk.kind}`;
  return structOf(name, { ...schema, 'x-kubernetes-embedded-resource': true }, { metadata, preserves: false });
}

/**
 * Returns the type of an object. Objects within one that preserves unknown members preserve theirs too, as in kube-apiserver's
 * conversion of OpenAPI.
 */
function structOf(name: string, schema: JsonSchema, within: Within): StructType {
  let fields: ReadonlyMap<string, Field> | undefined;
  const preserves = within.preserves || schema[PRESERVES] === true;
  return {
    name,
    /** Computed on first use, because a large cluster has many definitions whose objects are never written. */
    get fields() {
      fields ??= fieldsOf(name, schema, { ...within, preserves });
      return fields;
    },
    ...(schema['x-kubernetes-map-type'] === 'atomic' ? { mapType: 'atomic' } : {}),
    ...(preserves ? { preserveUnknown: true } : {}),
    ...(schema['x-kubernetes-embedded-resource'] === true ? { embeddedResource: true } : {}),
  };
}

function fieldsOf(name: string, schema: JsonSchema, within: Within): ReadonlyMap<string, Field> {
  const fields = new Map<string, Field>();
  const required = new Set(schema.required);
  if (schema['x-kubernetes-embedded-resource'] === true) {
    const text = { kind: 'scalar', scalar: 'string' } as const;
    fields.set('apiVersion', { name: 'apiVersion', type: text, required: false });
    fields.set('kind', { name: 'kind', type: text, required: false });
    fields.set('metadata', { name: 'metadata', type: { kind: 'struct', struct: within.metadata }, required: false });
  }
  for (const [member, inner] of Object.entries(schema.properties ?? {})) {
    if (fields.has(member)) continue;
    const described = fieldOf(`${name}.${member}`, inner, within);
    fields.set(member, { ...described, name: member, required: required.has(member) });
  }
  return fields;
}

function fieldOf(path: string, schema: JsonSchema, within: Within): Omit<Field, 'name' | 'required'> {
  const listType = schema.type === 'array' ? schema['x-kubernetes-list-type'] : undefined;
  const keys = schema['x-kubernetes-list-map-keys'];
  const mapType = schema['x-kubernetes-map-type'];
  return {
    type: typeOf(path, schema, within),
    ...(listType === undefined ? {} : { listType }),
    ...(keys === undefined ? {} : { listMapKeys: keys }),
    ...(mapType === undefined ? {} : { mapType }),
    ...(schema.default === undefined ? {} : { default: schema.default }),
    ...(schema.nullable === true ? { nullable: true } : {}),
  };
}

function typeOf(path: string, schema: JsonSchema, within: Within): TypeNode {
  if (schema['x-kubernetes-int-or-string'] === true) return unknown(path);
  switch (schema.type) {
    case 'array': {
      const items = itemsToPrune(schema);
      return { kind: 'list', items: items === undefined ? unknown(path) : typeOf(`${path}[]`, items, within) };
    }
    case 'object': {
      const { additionalProperties } = schema;
      if (typeof additionalProperties === 'object') {
        return { kind: 'map', values: typeOf(`${path}.*`, additionalProperties, within) };
      }
      if (additionalProperties === true) return free(path);
      return { kind: 'struct', struct: structOf(path, schema, within) };
    }
    default:
      return schema.type === undefined || schema.type === '' ? unknown(path) : scalarOf(schema);
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

/**
 * Returns the scalar type of a schema. A text with another format than `byte` accepts any scalar in an apply; the validation by
 * the schema checks it afterwards.
 */
function scalarOf({ type, format = '' }: JsonSchema): TypeNode {
  if (type === 'string' && format !== '' && format !== 'byte')
    return { kind: 'scalar', scalar: 'intOrString', takesAnyScalar: true };
  const scalars = { integer: 'int64', number: 'double', boolean: 'boolean' } as const;
  const scalar = type === 'integer' || type === 'number' || type === 'boolean' ? scalars[type] : 'string';
  return { kind: 'scalar', scalar };
}
