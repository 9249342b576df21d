/**
 * Builds the schema of a custom resource for OpenAPI documents. OpenAPI 3 documents contain the whole schema. OpenAPI 2
 * documents contain only what kubectl can validate before it sends a request: where the schema allows nulls or unknown members,
 * they have neither type nor members, because kubectl would refuse values that the server accepts.
 */
import type { JsonObject, JsonValue } from '../../api/meta/object.ts';
import type { ResourceInfo } from '../../api/schema/schema.ts';
import { isObject, type JsonSchema } from './json-schema.ts';

export interface PublishedSchema {
  readonly name: string;
  readonly revision: string;
  readonly v2: JsonObject;
  readonly v3: JsonObject;
}

const META = 'io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta';
const PRESERVES = 'x-kubernetes-preserve-unknown-fields';
/** The conformance tests of Kubernetes look for the first words of this text and of the metadata's. */
const VERSION_TEXT = 'APIVersion defines the version of the schema that this object is written in, with its group.';
const KIND_TEXT = 'The REST resource that this object stands for. In CamelCase; cannot be updated.';
const META_TEXT = "Standard object's metadata.";

/** Returns the schemas of the members that every object has, for one version of OpenAPI. */
function objectMembers(version: 2 | 3): JsonObject {
  const metadata =
    version === 2
      ? { description: META_TEXT, $ref: `#/definitions/${META}` }
      : { description: META_TEXT, allOf: [{ $ref: `#/components/schemas/${META}` }] };
  return {
    apiVersion: { type: 'string', description: VERSION_TEXT },
    kind: { type: 'string', description: KIND_TEXT },
    metadata,
  };
}

/** Each version is computed when it is read. A different schema has a different `revision`. */
export function publishedSchema(info: ResourceInfo, schema: JsonSchema, revision = ''): PublishedSchema {
  const reversedGroup = info.group.split('.').toReversed().join('.');
  const { group, version, kind } = info;
  const marked = { 'x-kubernetes-group-version-kind': [{ group, version, kind }] };
  const whole = schema as unknown as JsonObject;
  return {
    name: `${reversedGroup}.${version}.${kind}`,
    revision,
    get v2() {
      // kubectl accepts only the members that a schema names, so this one names none.
      return { ...(schema[PRESERVES] === true ? { type: 'object' } : object(version2(whole), 2)), ...marked };
    },
    get v3() {
      return { ...object(embedded(whole, 3), 3), ...marked };
    },
  };
}

const object = (schema: JsonObject, version: 2 | 3): JsonObject => ({
  ...schema,
  properties: { ...(isObject(schema['properties']) ? schema['properties'] : {}), ...objectMembers(version) },
});

/** Returns the schema with each direct subschema replaced. */
function below(schema: JsonObject, change: (inner: JsonObject) => JsonObject): JsonObject {
  const changed = (value: JsonValue | undefined): JsonValue | undefined => (isObject(value) ? change(value) : value);
  const out = { ...schema };
  const { properties, items, additionalProperties } = out;
  if (isObject(properties))
    out['properties'] = Object.fromEntries(Object.entries(properties).map(([name, value]) => [name, changed(value)]));
  if (items !== undefined) out['items'] = changed(items);
  if (additionalProperties !== undefined) out['additionalProperties'] = changed(additionalProperties);
  return out;
}

/** Embedded objects have the members that every object has. */
function embedded(schema: JsonObject, version: 2 | 3): JsonObject {
  const out = below(schema, (inner) => embedded(inner, version));
  if (out['x-kubernetes-embedded-resource'] !== true || (version === 2 && out[PRESERVES] === true)) return out;
  const required = Array.isArray(out['required']) ? out['required'] : [];
  return { ...object(out, version), required: [...new Set([...required, 'kind', 'apiVersion'])] };
}

/** OpenAPI 2 can express neither alternatives nor nulls, so these keywords are omitted. */
const LATER = ['allOf', 'oneOf', 'anyOf', 'not', 'nullable', 'x-kubernetes-validations'];

const isNullable = (schema: JsonValue | undefined): boolean => isObject(schema) && schema['nullable'] === true;

const version2 = (schema: JsonObject): JsonObject => embedded(withoutLater(schema), 2);

function withoutLater(schema: JsonObject): JsonObject {
  const out: JsonObject = Object.fromEntries(Object.entries(schema).filter(([name]) => !LATER.includes(name)));
  const open = schema[PRESERVES] === true;
  if (open || isNullable(schema)) {
    delete out['items'];
    delete out['properties'];
  }
  // kubectl requires `items` for lists, and allows no members in objects without `properties`.
  const untold = out['type'] === 'array' ? out['items'] === undefined : open && out['type'] === 'object';
  if (untold || isNullable(schema)) delete out['type'];
  const required = requiredBesideNulls(out);
  if (required === undefined) delete out['required'];
  else out['required'] = required;
  return below(out, withoutLater);
}

/** Returns the required members without the nullable ones, because kubectl treats null as missing. */
function requiredBesideNulls({ required, properties, additionalProperties }: JsonObject): JsonValue[] | undefined {
  if (!Array.isArray(required) || isNullable(additionalProperties)) return undefined;
  const members = isObject(properties) ? properties : {};
  const left = required.filter((name) => !isNullable(members[String(name)]));
  return left.length === 0 ? undefined : left;
}
