/** Reads JSON as a custom resource: the metadata as in any object, and the rest by its schema. */
import { invalid, memberPath } from '../../../api/meta/field-error.ts';
import { cloneJson } from '../../../api/meta/json-equality.ts';
import { isJsonObject } from '../../../api/meta/json-object.ts';
import type { JsonObject, JsonValue, KubeObject } from '../../../api/meta/object.ts';
import { completeStruct } from '../../../api/schema/complete.ts';
import { DecodeError, decodeStruct } from '../../../api/schema/decode.ts';
import type { StructType } from '../../../api/schema/schema.ts';
import type { SchemaReader } from '../object-decoding.ts';
import { applyDefaults, dropNulls } from '../schemas/defaulting.ts';
import { itemsOf, type JsonSchema, memberSchema } from '../schemas/json-schema.ts';
import { prune } from '../schemas/pruning.ts';

/** Creates the reader. `schema` is the schema of the version, and `metadata` is the type of ObjectMeta. */
export function createSchemaReader(schema: JsonSchema, metadata: StructType): SchemaReader {
  return {
    *conform(value) {
      if (typeof value !== 'object' || value === null || Array.isArray(value)) {
        const type = Array.isArray(value) ? 'array' : value === null ? 'null' : typeof value;
        throw new DecodeError(`json: cannot unmarshal ${type} into Go value of type map[string]interface {}`);
      }
      const pruned = prune(value as JsonObject, schema);
      yield;
      const meta = decodeMetadata(metadata, (value as JsonObject)['metadata']);
      const members = cloneJson(pruned.value);
      yield;
      const embedded: string[] = [];
      conformEmbedded(members, schema, '', { metadata, unknown: embedded, isRoot: true });
      yield;
      const unknown = [...meta.unknown.map((path) => `metadata.${path}`), ...[...pruned.unknown, ...embedded].sort()];
      const object = { ...members, metadata: meta.value } as unknown as KubeObject;
      return { object, unknown };
    },
    applyDefaults: (object) => applyDefaults(object as unknown as JsonObject, schema),
    dropNulls: (object) => dropNulls(object as unknown as JsonObject, schema),
  };
}

/** Decodes the metadata of an object. Empty lists and maps are dropped, as Go does when it writes the metadata back. */
function decodeMetadata(type: StructType, metadata: unknown): ReturnType<typeof decodeStruct> {
  const decoded = decodeStruct(type, metadata);
  completeStruct(type, decoded.value);
  return decoded;
}

interface Embedding {
  readonly metadata: StructType;
  readonly unknown: string[];
  readonly isRoot: boolean;
}

/** Reads the metadata of embedded objects. Modifies `value`. */
function conformEmbedded(value: JsonValue, schema: JsonSchema, path: string, embedding: Embedding): void {
  const inside = { ...embedding, isRoot: false };
  const items = itemsOf(schema);
  if (Array.isArray(value)) {
    if (items !== undefined) value.forEach((item, index) => conformEmbedded(item, items, `${path}[${index}]`, inside));
    return;
  }
  if (!isJsonObject(value)) return;
  if (schema['x-kubernetes-embedded-resource'] === true && !embedding.isRoot) conformResource(value, path, embedding);
  for (const [name, member] of Object.entries(value)) {
    const inner = memberSchema(schema, name);
    if (inner === undefined || member === undefined) continue;
    conformEmbedded(member, inner, memberPath(path, name), inside);
  }
}

/**
 * Decodes the metadata of an embedded object in place, and adds its unknown fields to `unknown`. Throws a `DecodeError` for an
 * `apiVersion`, a `kind` or a field of the metadata of the wrong type. Metadata that is no object is left to the validation.
 */
function conformResource(value: JsonObject, path: string, { metadata, unknown }: Embedding): void {
  for (const name of ['apiVersion', 'kind']) {
    const member = value[name];
    if (member !== undefined && typeof member !== 'string')
      throw invalidMember(`${path}.${name}`, member, 'must be a string');
  }
  const embedded = value['metadata'];
  if (!isJsonObject(embedded)) return;
  try {
    const decoded = decodeMetadata(metadata, embedded);
    value['metadata'] = decoded.value;
    for (const name of decoded.unknown) unknown.push(`${path}.metadata.${name}`);
  } catch (error) {
    if (!(error instanceof DecodeError)) throw error;
    throw invalidMember(`${path}.metadata`, embedded, error.message);
  }
}

/** Creates the error of a member. An object is shown with sorted members, as Go writes maps. */
const invalidMember = (path: string, value: JsonValue, why: string): DecodeError =>
  new DecodeError(invalid(path, isJsonObject(value) ? sorted(value) : value, why).toString());

const sorted = (value: JsonObject): JsonObject =>
  Object.fromEntries(Object.entries(value).toSorted(([one], [other]) => (one < other ? -1 : 1)));
