/**
 * Removes empty lists and maps of optional fields. A decoded object has them until it is stored, like the Go struct that
 * kube-apiserver decodes: validation can see that they were given.
 */
import { setMember } from '../meta/own-member.ts';
import type { JsonObject, JsonValue } from '../meta/object.ts';
import type { StructType, TypeNode } from './schema.ts';

/** Whether a value of the type is a list or a map, and not a struct or a scalar. */
export const isCollection = (type: TypeNode): boolean => type.kind === 'list' || type.kind === 'map';

/** Whether the value is `[]` or `{}`. */
export function isEmptyCollection(value: JsonValue): boolean {
  if (typeof value !== 'object' || value === null) return false;
  if (Array.isArray(value)) return value.length === 0;
  for (const _key in value) return false;
  return true;
}

interface EmptyOptions {
  readonly atomicLists?: 'kept';
}

/**
 * Returns an object as Go serializes it: without the empty lists and maps of optional fields, which a decoded object has until
 * it is stored. Returns `value` itself if it has none, and otherwise a copy that shares the other parts. With
 * `atomicLists`, the items of atomic lists stay as they are, because kube-apiserver compares the Go values of such lists.
 */
export function withoutEmpties(struct: StructType, value: JsonObject, options: EmptyOptions = {}): JsonObject {
  let copy: JsonObject | undefined;
  for (const name in value) {
    const field = struct.fields.get(name);
    const member = value[name];
    if (field === undefined || typeof member !== 'object' || member === null) continue;
    if (field.presence === 'omit' && isCollection(field.type) && isEmptyCollection(member)) {
      copy ??= { ...value };
      delete copy[name];
      continue;
    }
    if (options.atomicLists === 'kept' && field.type.kind === 'list' && (field.listType ?? 'atomic') === 'atomic')
      continue;
    const cleaned = serialized(field.type, member, options);
    if (cleaned === member) continue;
    copy ??= { ...value };
    copy[name] = cleaned;
  }
  return copy ?? value;
}

function serialized(type: TypeNode, value: JsonValue, options: EmptyOptions): JsonValue {
  if (typeof value !== 'object' || value === null || type.kind === 'scalar') return value;
  if (type.kind === 'struct') return Array.isArray(value) ? value : withoutEmpties(type.struct, value, options);
  if (type.kind === 'list') {
    if (type.items.kind === 'scalar' || !Array.isArray(value)) return value;
    let items: JsonValue[] | undefined;
    // An iterator of indexes and items would be garbage for every list of every write.
    for (let index = 0; index < value.length; index++) {
      const item = value[index] ?? null;
      const cleaned = serialized(type.items, item, options);
      if (cleaned !== item) (items ??= [...value])[index] = cleaned;
    }
    return items ?? value;
  }
  if (type.values.kind === 'scalar' || Array.isArray(value)) return value;
  let members: JsonObject | undefined;
  for (const key in value) {
    const item = value[key];
    if (item === undefined) continue;
    const cleaned = serialized(type.values, item, options);
    if (cleaned !== item) setMember((members ??= { ...value }), key, cleaned);
  }
  return members ?? value;
}
