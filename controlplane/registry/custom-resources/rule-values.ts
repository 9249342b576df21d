/**
 * A value as its rules see it. Nothing is copied unless some member's name has to be written in another way.
 */
import type { JsonValue } from '../../../api/meta/object.ts';
import { isObject, itemsOf, type JsonSchema, memberSchema } from './json-schema.ts';
import { escapedName } from './rule-types.ts';

const renames = new WeakMap<JsonSchema, boolean>();

/** Whether the schema names something inside that CEL writes in another way. */
function hasRenamed(schema: JsonSchema): boolean {
  const known = renames.get(schema);
  if (known !== undefined) return known;
  const items = itemsOf(schema);
  const { additionalProperties } = schema;
  const found =
    Object.entries(schema.properties ?? {}).some(([name, inner]) => escapedName(name) !== name || hasRenamed(inner)) ||
    (items !== undefined && hasRenamed(items)) ||
    (typeof additionalProperties === 'object' && hasRenamed(additionalProperties));
  renames.set(schema, found);
  return found;
}

export function celView(value: JsonValue, schema: JsonSchema): JsonValue {
  if (!hasRenamed(schema)) return value;
  const items = itemsOf(schema);
  if (Array.isArray(value)) return items === undefined ? value : value.map((item) => celView(item, items));
  if (!isObject(value)) return value;
  const view: Record<string, JsonValue> = {};
  for (const [name, member] of Object.entries(value)) {
    if (member === undefined) continue;
    const inner = memberSchema(schema, name);
    const named = schema.properties !== undefined && Object.hasOwn(schema.properties, name);
    const written = named ? escapedName(name) : name;
    if (written !== undefined) view[written] = inner === undefined ? member : celView(member, inner);
  }
  return view;
}
