/**
 * Checks the apply configuration that a mutating policy's expression returns: it must be an `Object{}` with inner types named
 * after their paths, its fields must be fields of the kind, and it must not contain parts of atomic fields.
 */
import { isJsonObject } from '../../../../api/meta/json-object.ts';
import { setMember } from '../../../../api/meta/own-member.ts';
import { quoteText } from '../../../../api/meta/quote.ts';
import { toJson } from '../../../../api/cel/json-value.ts';
import {
  adapt,
  CelError,
  type CelValue,
  Duration,
  entriesOf,
  MessageValue,
  Optional,
  Timestamp,
  typeNameOf,
} from '../../../../api/cel/values.ts';
import { mergeTypeOf } from '../../../../api/codec/structured-merge/merge-types.ts';
import { typeErrors } from '../../../../api/codec/structured-merge/typed-value.ts';
import type { JsonValue } from '../../../../api/meta/object.ts';
import type { StructType, TypeNode } from '../../../../api/schema/schema.ts';

/** An apply configuration as plain JSON. */
interface Configuration {
  readonly value: JsonValue;
  /** The paths of the fields to remove: those that the expression sets to `optional.none()` or null. */
  readonly removed: readonly string[][];
}

/**
 * Converts the result of an expression into an apply configuration. `struct` is the type of the kind. Throws `CelError` if the
 * result is no object, does not fit the type, or changes a part of an atomic field.
 */
export function configurationOf(result: CelValue, struct: StructType): Configuration {
  if (!(result instanceof MessageValue)) {
    throw new CelError(`unsupported return type from ApplyConfiguration expression: ${typeNameOf(result)}`);
  }
  const removed: string[][] = [];
  const value = plain(result, [], removed);
  if (!isJsonObject(value)) return { value, removed };
  const unknown: string[] = [];
  const atomic: string[] = [];
  const { apiVersion: _apiVersion, kind: _kind, ...members } = value;
  inspectStruct(struct, members, '', { unknown, atomic });
  const [first] = unknown;
  if (first !== undefined) {
    const why = `failed to convert patch object to typed object: ${first}: field not declared in schema`;
    throw new CelError(`error applying patch: ${why}`);
  }
  const [mismatch] = typeErrors(mergeTypeOf(struct), members as JsonValue);
  if (mismatch !== undefined)
    throw new CelError(`error applying patch: failed to convert patch object to typed object: ${mismatch}`);
  if (atomic.length > 0) {
    const why = `may not mutate atomic arrays, maps or structs: ${atomic.join(', ')}`;
    throw new CelError(`error applying patch: invalid ApplyConfiguration: ${why}`);
  }
  return { value, removed };
}

/** Converts a value to JSON, and adds the paths of the fields that it removes to `removed`. Throws `CelError`. */
function plain(value: CelValue, path: readonly string[], removed: string[][]): JsonValue {
  if (Array.isArray(value)) return value.map((item) => plain(adapt(item), path, removed));
  if (value instanceof Optional) return value.value === undefined ? null : plain(value.value, path, removed);
  if (value instanceof MessageValue) {
    const wanted = ['Object', ...path].join('.');
    if (value.typeName !== wanted) {
      throw new CelError(
        `type mismatch: unexpected type name ${quoteText(value.typeName)}, expected ${quoteText(wanted)}, which matches field name path from root Object type`,
      );
    }
  }
  const entries = entriesOf(value);
  if (value instanceof Timestamp || value instanceof Duration || value instanceof Uint8Array)
    throw new CelError(`unsupported conversion of ${typeNameOf(value)} to JSON`);
  if (entries === undefined) return toJson(value) as JsonValue;
  const out: Record<string, JsonValue> = {};
  for (const [key, inner] of entries) {
    const at = [...path, String(key)];
    if (inner === null || (inner instanceof Optional && inner.value === undefined)) removed.push(at);
    else setMember(out, String(key), plain(inner, at, removed));
  }
  return out;
}

interface Violations {
  readonly unknown: string[];
  readonly atomic: string[];
}

function inspectStruct(
  struct: StructType,
  value: Readonly<Record<string, JsonValue | undefined>>,
  path: string,
  violations: Violations,
): void {
  for (const [name, inner] of Object.entries(value)) {
    const at = `${path}.${name}`;
    const field = struct.fields.get(name);
    if (inner === undefined) continue;
    if (field === undefined) {
      if (struct.preserveUnknown !== true) violations.unknown.push(at);
      continue;
    }
    const ownType = field.type.kind === 'struct' ? field.type.struct.mapType : undefined;
    if (isJsonObject(inner) && (field.mapType ?? ownType) === 'atomic') violations.atomic.push(at);
    if (Array.isArray(inner) && (field.listType ?? 'atomic') === 'atomic') violations.atomic.push(at);
    inspect(field.type, inner, at, violations);
  }
}

function inspect(type: TypeNode, value: JsonValue, path: string, violations: Violations): void {
  if (type.kind === 'struct' && isJsonObject(value)) inspectStruct(type.struct, value, path, violations);
  else if (type.kind === 'list' && Array.isArray(value)) {
    value.forEach((item, index) => {
      const at = `${path}[${index}]`;
      const isAtomic = type.items.kind === 'struct' && type.items.struct.mapType === 'atomic' && isJsonObject(item);
      if (isAtomic) violations.atomic.push(at);
      inspect(type.items, item, at, violations);
    });
  } else if (type.kind === 'map' && isJsonObject(value)) {
    for (const [key, inner] of Object.entries(value)) {
      if (inner !== undefined) inspect(type.values, inner, `${path}.${key}`, violations);
    }
  }
}
