/** The schema of a custom resource as OpenAPI documents show it. */
import type { JsonObject, JsonValue } from '../../../api/meta/object.ts';
import type { ResourceInfo } from '../../../api/schema/schema.ts';
import { isObject, type JsonSchema } from './json-schema.ts';

export interface PublishedSchema {
  readonly name: string;
  readonly v2: JsonObject;
  readonly v3: JsonObject;
}

const META = 'io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta';
const VERSION_TEXT = 'The version of the schema that this object is written in, with its group.';
const KIND_TEXT = 'The REST resource that this object stands for. In CamelCase; cannot be updated.';

export function publishedSchema(info: ResourceInfo, schema: JsonSchema): PublishedSchema {
  const group = info.group.split('.').toReversed().join('.');
  return {
    name: `${group}.${info.version}.${info.kind}`,
    v2: definition(info, version2(schema as unknown as JsonObject), `#/definitions/${META}`),
    v3: definition(info, structuredClone(schema) as unknown as JsonObject, `#/components/schemas/${META}`, true),
  };
}

function definition(info: ResourceInfo, schema: JsonObject, reference: string, wrapped = false): JsonObject {
  const text = 'Standard metadata of the object.';
  const ref = { $ref: reference };
  const { group, version, kind } = info;
  const properties: JsonObject = {
    ...(isObject(schema['properties']) ? schema['properties'] : {}),
    apiVersion: { type: 'string', description: VERSION_TEXT },
    kind: { type: 'string', description: KIND_TEXT },
    metadata: wrapped ? { description: text, allOf: [ref] } : { description: text, ...ref },
  };
  return { ...schema, properties, 'x-kubernetes-group-version-kind': [{ group, version, kind }] };
}

/** OpenAPI 2 has no alternatives and no null: what is told by them is left open. */
const LATER = ['oneOf', 'anyOf', 'not', 'nullable', 'x-kubernetes-validations'];

function version2(schema: JsonObject): JsonObject {
  const out: JsonObject = {};
  if (schema['x-kubernetes-preserve-unknown-fields'] === true && schema['type'] === 'object') {
    const { description } = schema;
    return {
      type: 'object',
      ...(description === undefined ? {} : { description }),
      'x-kubernetes-preserve-unknown-fields': true,
    };
  }
  for (const [name, value] of Object.entries(schema)) {
    if (LATER.includes(name) || value === undefined) continue;
    if (name === 'properties' && isObject(value)) {
      out[name] = Object.fromEntries(
        Object.entries(value).map(([member, inner]) => [member, isObject(inner) ? version2(inner) : inner]),
      );
    } else if ((name === 'items' || name === 'additionalProperties') && isObject(value)) out[name] = version2(value);
    else out[name] = structuredClone<JsonValue>(value);
  }
  if (schema['nullable'] === true) delete out['type'];
  return out;
}
