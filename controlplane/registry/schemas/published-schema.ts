/**
 * Builds the schema of a custom resource for OpenAPI documents. OpenAPI 3 documents contain the whole schema. OpenAPI 2
 * documents contain only what kubectl can validate before it sends a request.
 */
import { jsonEqual } from '../../../api/meta/json-equality.ts';
import { isJsonObject } from '../../../api/meta/json-object.ts';
import type { JsonObject, JsonValue } from '../../../api/meta/object.ts';
import type { ResourceInfo } from '../../../api/schema/schema.ts';
import { type JsonSchema, PRESERVES } from './json-schema.ts';

interface PublishedSchema {
  readonly name: string;
  readonly revision: string;
  readonly v2: JsonObject;
  readonly v3: JsonObject;
  readonly selectableFields: JsonValue | undefined;
}

const META = 'io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta';
const META_TEXT =
  "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

interface PublishOptions {
  readonly revision?: string;
  /** The names of the selectable fields, for example `spec.color`. */
  readonly selectableFields?: readonly string[];
  /** The descriptions of the members that every object has. */
  readonly texts?: TypeTexts;
}

interface TypeTexts {
  readonly apiVersion?: string | undefined;
  readonly kind?: string | undefined;
}

/** What `embedded` needs to know about the document. */
interface Target {
  readonly version: 2 | 3;
  readonly texts: TypeTexts;
}

/** Returns the schemas of the members that every object has, for one version of OpenAPI. */
function objectMembers({ version, texts }: Target): JsonObject {
  const metadata =
    version === 2
      ? { description: META_TEXT, $ref: `#/definitions/${META}` }
      : { description: META_TEXT, allOf: [{ $ref: `#/components/schemas/${META}` }] };
  return {
    apiVersion: textMember(texts.apiVersion),
    kind: textMember(texts.kind),
    metadata,
  };
}

const textMember = (description: string | undefined): JsonObject => ({
  type: 'string',
  ...(description === undefined ? {} : { description }),
});

/** Returns the schema for both versions of OpenAPI, each of which is computed when it is read. */
export function publishedSchema(
  info: ResourceInfo,
  schema: JsonSchema,
  { revision = '', selectableFields = [], texts = {} }: PublishOptions = {},
): PublishedSchema {
  const reversedGroup = info.group.split('.').toReversed().join('.');
  const { group, version, kind } = info;
  const selectable = selectableFields.length === 0 ? undefined : selectableFields.map((fieldPath) => ({ fieldPath }));
  const marked = {
    'x-kubernetes-group-version-kind': [{ group, version, kind }],
    ...(selectable === undefined ? {} : { 'x-kubernetes-selectable-fields': selectable }),
  };
  const whole = schema as unknown as JsonObject;
  return {
    name: `${reversedGroup}.${version}.${kind}`,
    revision,
    selectableFields: selectable,
    get v2() {
      // kubectl refuses unnamed members if a schema names any, so a schema that preserves unknown members names none.
      return {
        ...(schema[PRESERVES] === true ? { type: 'object' } : object(version2(whole, texts), { version: 2, texts })),
        ...marked,
      };
    },
    get v3() {
      const target: Target = { version: 3, texts };
      return { ...object(embedded(unfolded(whole), target), target), ...marked };
    },
  };
}

const object = (schema: JsonObject, target: Target): JsonObject => ({
  ...schema,
  properties: { ...(isJsonObject(schema['properties']) ? schema['properties'] : {}), ...objectMembers(target) },
});

/** Returns the schema with each direct subschema replaced. */
function mapSubschemas(schema: JsonObject, change: (inner: JsonObject) => JsonObject): JsonObject {
  const changed = (value: JsonValue | undefined): JsonValue | undefined =>
    isJsonObject(value) ? change(value) : value;
  const out = { ...schema };
  const { properties, items, additionalProperties } = out;
  if (isJsonObject(properties))
    out['properties'] = Object.fromEntries(Object.entries(properties).map(([name, value]) => [name, changed(value)]));
  if (items !== undefined) out['items'] = changed(items);
  if (additionalProperties !== undefined) out['additionalProperties'] = changed(additionalProperties);
  return out;
}

/** Adds the members that every object has to embedded objects; in OpenAPI 2, not to those that preserve unknown members. */
function embedded(schema: JsonObject, target: Target): JsonObject {
  const out = mapSubschemas(schema, (inner) => embedded(inner, target));
  const open = target.version === 2 && out[PRESERVES] === true;
  if (out['x-kubernetes-embedded-resource'] !== true || open) return out;
  const required = Array.isArray(out['required']) ? out['required'] : [];
  return { ...object(out, target), required: [...new Set([...required, 'kind', 'apiVersion'])] };
}

const EITHER: JsonValue = [{ type: 'integer' }, { type: 'string' }];

/** Whether the schema, or the first one in its `allOf`, already allows an integer or a string by its `anyOf`. */
function allowsEither({ anyOf, allOf }: JsonObject): boolean {
  const first = Array.isArray(allOf) ? allOf[0] : undefined;
  return jsonEqual(anyOf, EITHER) || (isJsonObject(first) && jsonEqual(first['anyOf'], EITHER));
}

/** Writes as alternatives what `x-kubernetes-int-or-string` means. */
function unfolded(schema: JsonObject): JsonObject {
  const out = mapSubschemas(schema, unfolded);
  if (out['x-kubernetes-int-or-string'] !== true || allowsEither(out)) return out;
  if (out['anyOf'] === undefined) return { ...out, anyOf: EITHER };
  return { ...out, allOf: [{ anyOf: EITHER }, ...(Array.isArray(out['allOf']) ? out['allOf'] : [])] };
}

/** The keywords that kube-apiserver omits as well. */
const OMITTED_IN_VERSION_2 = ['allOf', 'oneOf', 'anyOf', 'not', 'nullable', 'default'];

const isNullable = (schema: JsonValue | undefined): boolean => isJsonObject(schema) && schema['nullable'] === true;

const version2 = (schema: JsonObject, texts: TypeTexts): JsonObject => embedded(reduced(schema), { version: 2, texts });

/** Returns the schema without keywords and types by which kubectl would refuse values that the server accepts. */
function reduced(schema: JsonObject): JsonObject {
  const out: JsonObject = Object.fromEntries(
    Object.entries(schema).filter(([name]) => !OMITTED_IN_VERSION_2.includes(name)),
  );
  const open = schema[PRESERVES] === true;
  if (open || isNullable(schema)) {
    delete out['items'];
    delete out['properties'];
  }
  // kubectl requires `items` for lists, and allows no members in objects without `properties`.
  const lacksContent = out['type'] === 'array' ? out['items'] === undefined : open && out['type'] === 'object';
  if (lacksContent || isNullable(schema)) delete out['type'];
  const required = requiredBesideNulls(out);
  if (required === undefined) delete out['required'];
  else out['required'] = required;
  return mapSubschemas(out, reduced);
}

/** Returns the required members without the nullable ones, because kubectl treats null as missing. */
function requiredBesideNulls({ required, properties, additionalProperties }: JsonObject): JsonValue[] | undefined {
  if (!Array.isArray(required) || isNullable(additionalProperties)) return undefined;
  const members = isJsonObject(properties) ? properties : {};
  const requiredNames = required.filter((name) => !isNullable(members[String(name)]));
  return requiredNames.length === 0 ? undefined : requiredNames;
}
