/**
 * Gives objects of servers and files the shape that their readers rely on: the types of the schema, texts that are quantities
 * and times where it has those, and empty lists and maps instead of nulls.
 */
import { setMember } from '../meta/own-member.ts';
import { apiVersionOf, type JsonObject, type JsonValue, type KubeObject } from '../meta/object.ts';
import { decodeStruct } from './decode.ts';
import type { StructType, TypeNode } from './schema.ts';
import { loadSchema } from './table.ts';

/** Names a kind of the schema. */
interface Kind {
  readonly group: string;
  readonly version: string;
  readonly kind: string;
}

/** The maximum depth of an object: encoding a value of ten thousand levels would exhaust the stack. */
const MAX_LEVELS = 500;

/** Returns a copy without the fields that the schema lacks, as in Kubernetes. Throws an error with the first fault. */
export function shapedObject({ group, version, kind }: Kind, value: unknown): KubeObject {
  const struct = loadSchema().kind(group, version, kind);
  if (struct === undefined) throw new Error(`the schema has no ${kind} of ${apiVersionOf({ group, version })}`);
  const object = decodeStruct(struct, bounded(value)).value;
  withoutNulls(struct, object);
  return object as unknown as KubeObject;
}

/** Copies a JSON value. A whole number beyond the safe integers becomes the nearest of them. Throws for too many levels. */
function bounded(value: unknown, levels = 0): JsonValue {
  if (levels > MAX_LEVELS) throw new Error(`the object has more than ${MAX_LEVELS} levels`);
  if (typeof value === 'bigint') return nearest(Number(value));
  if (typeof value === 'number') return Number.isInteger(value) ? nearest(value) : value;
  if (Array.isArray(value)) return value.map((item) => bounded(item, levels + 1));
  if (typeof value !== 'object' || value === null) return value as JsonValue;
  const copy: { [key: string]: JsonValue } = {};
  for (const [key, member] of Object.entries(value))
    if (member !== undefined) setMember(copy, key, bounded(member, levels + 1));
  return copy;
}

const nearest = (number: number): number =>
  Math.min(Math.max(number, Number.MIN_SAFE_INTEGER), Number.MAX_SAFE_INTEGER);

/** Replaces the nulls of a decoded value in place: kube-apiserver sends them for empty lists, empty maps and absent values. */
function withoutNulls(struct: StructType, value: JsonObject): void {
  for (const name in value) {
    const type = struct.fields.get(name)?.type;
    const member = value[name];
    if (type === undefined || member === undefined) continue;
    if (member !== null) withoutNullsOf(type, member);
    else if (type.kind === 'list') value[name] = [];
    else if (type.kind === 'map') value[name] = {};
    else delete value[name];
  }
}

function withoutNullsOf(type: TypeNode, value: JsonValue): void {
  if (typeof value !== 'object' || value === null) return;
  if (type.kind === 'struct') withoutNulls(type.struct, value as JsonObject);
  else if (type.kind === 'list') {
    if (Array.isArray(value)) for (const item of value) withoutNullsOf(type.items, item);
  } else if (type.kind === 'map')
    for (const member of Object.values(value)) withoutNullsOf(type.values, member ?? null);
}
