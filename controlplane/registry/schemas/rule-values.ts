/** Converts a value of a custom resource for the CEL rules of its schema, which escape the names of some members. */
import { setMember } from '../../../api/meta/own-member.ts';
import { isJsonObject } from '../../../api/meta/json-object.ts';
import type { JsonValue } from '../../../api/meta/object.ts';
import { itemsOf, type JsonSchema, memberSchema } from './json-schema.ts';
import { namesInRules } from './rule-types.ts';

const renames = new WeakMap<JsonSchema, boolean>();

/** Whether the schema contains a member whose name must be escaped in CEL. */
function hasRenamed(schema: JsonSchema): boolean {
  const cached = renames.get(schema);
  if (cached !== undefined) return cached;
  const items = itemsOf(schema);
  const { additionalProperties } = schema;
  const found =
    Object.entries(schema.properties ?? {}).some(([name, inner]) => isRenamed(name) || hasRenamed(inner)) ||
    (items !== undefined && hasRenamed(items)) ||
    (typeof additionalProperties === 'object' && hasRenamed(additionalProperties));
  renames.set(schema, found);
  return found;
}

const isRenamed = (name: string): boolean => namesInRules(name)[0] !== name;

/** Returns the value with the names of members that rules use. Does not modify `value`. */
export function celView(value: JsonValue, schema: JsonSchema): JsonValue {
  if (!hasRenamed(schema)) return value;
  const items = itemsOf(schema);
  if (Array.isArray(value)) return items === undefined ? value : value.map((item) => celView(item, items));
  if (!isJsonObject(value)) return value;
  const view: Record<string, JsonValue> = {};
  for (const [name, member] of Object.entries(value)) {
    if (member === undefined) continue;
    const inner = memberSchema(schema, name);
    const isDeclared = schema.properties !== undefined && Object.hasOwn(schema.properties, name);
    const shown = inner === undefined ? member : celView(member, inner);
    for (const written of isDeclared ? namesInRules(name) : [name]) setMember(view, written, shown);
  }
  return view;
}
