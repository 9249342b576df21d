/**
 * How JSON becomes a custom resource: its metadata as that of any object, the rest as its schema says. The registry uses
 * it where it uses the table's reader for built-in kinds.
 */
import { cloneJson } from '../../../api/meta/json-equality.ts';
import type { JsonObject, KubeObject } from '../../../api/meta/object.ts';
import { DecodeError, decodeStruct } from '../../../api/schema/decode.ts';
import type { StructType } from '../../../api/schema/schema.ts';
import type { SchemaReader } from '../object-decoding.ts';
import { applyDefaults, dropNulls } from './defaulting.ts';
import type { JsonSchema } from './json-schema.ts';
import { prune } from './pruning.ts';

/** `schema` is that of the version; `metadata` the type of object metadata. */
export function createSchemaReader(schema: JsonSchema, metadata: StructType): SchemaReader {
  return {
    conform(value) {
      if (typeof value !== 'object' || value === null || Array.isArray(value)) {
        const type = Array.isArray(value) ? 'array' : value === null ? 'null' : typeof value;
        throw new DecodeError(`json: cannot unmarshal ${type} into Go value of type map[string]interface {}`);
      }
      const pruned = prune(value as JsonObject, schema);
      const meta = decodeStruct(metadata, (value as JsonObject)['metadata']);
      const unknown = [...pruned.unknown, ...meta.unknown.map((path) => `metadata.${path}`)].sort();
      const object = { ...cloneJson(pruned.value), metadata: meta.value } as unknown as KubeObject;
      return { object, unknown };
    },
    applyDefaults(object) {
      const members = object as unknown as JsonObject;
      applyDefaults(members, schema);
      dropNulls(members, schema);
    },
  };
}
