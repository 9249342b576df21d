/**
 * Generates objects of any type of the schema from a seed, for properties that hold for every built-in type. Every field can
 * occur, and recursion is limited. Lists and maps are never empty, because only JSON can represent empty ones.
 */
import type { JsonObject, JsonValue } from '../../api/meta/object.ts';
import type { Scalar, StructType, TypeNode } from '../../api/schema/schema.ts';

const MAX_DEPTH = 6;

/** Returns a random object of the type. The same seed generates the same object. */
export function generateObject(struct: StructType, seed: number): JsonObject {
  return new Generator(seed).struct(struct, 0);
}

class Generator {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** Returns a number from 0 to `below` - 1 (mulberry32). */
  #next(below: number): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  }

  struct(struct: StructType, depth: number): JsonObject {
    const out: JsonObject = {};
    for (const field of struct.fields.values()) {
      if (field.protobufNumber === undefined || this.#next(3) === 0) continue;
      const value = this.#value(field.type, depth + 1);
      if (value !== undefined) out[field.name] = value;
    }
    return out;
  }

  #value(type: TypeNode, depth: number): JsonValue | undefined {
    if (depth > MAX_DEPTH && type.kind !== 'scalar') return undefined;
    switch (type.kind) {
      case 'struct':
        return this.struct(type.struct, depth);
      case 'list': {
        const items = Array.from({ length: 1 + this.#next(3) }, () => this.#value(type.items, depth + 1));
        return items.some((item) => item === undefined) ? undefined : (items as JsonValue[]);
      }
      case 'map': {
        const out: JsonObject = {};
        for (let count = 1 + this.#next(3); count > 0; count -= 1) {
          const value = this.#value(type.values, depth + 1);
          if (value === undefined) return undefined;
          out[`${this.#text()}${count}`] = value;
        }
        return out;
      }
      case 'scalar':
        return type.message === undefined ? this.#scalar(type.scalar) : this.#union(type.message);
    }
  }

  #text(): string {
    return ['', 'a', 'value', 'ü', '日本', '💩', 'x'.repeat(200), 'quote"d'][this.#next(8)] ?? '';
  }

  #union(message: 'schemaOrBool' | 'schemaOrArray' | 'schemaOrStringArray'): JsonValue {
    const schema = { type: 'string' };
    if (this.#next(2) === 0) return schema;
    if (message === 'schemaOrBool') return this.#next(2) === 0;
    return message === 'schemaOrArray' ? [schema, schema] : ['a', 'b'];
  }

  #scalar(scalar: Scalar): JsonValue {
    switch (scalar) {
      case 'string':
      case 'duration':
        return this.#text();
      case 'boolean':
        return this.#next(2) === 0;
      case 'int32':
        return [0, 1, -1, 127, 128, 2147483647, -2147483648, 65535][this.#next(8)] ?? 0;
      case 'int64':
        return [0, -5, 2 ** 40, Number.MAX_SAFE_INTEGER, 2n ** 63n - 1n, -(2n ** 63n)][this.#next(6)] ?? 0;
      case 'double':
        return [0, 1.5, -2.25, 1e100][this.#next(4)] ?? 0;
      case 'bytes':
        return ['', 'YQ==', 'AP8='][this.#next(3)] ?? '';
      case 'time':
        return ['2024-01-02T03:04:05Z', '1970-01-01T00:00:00Z', '1969-12-31T23:59:59Z'][this.#next(3)] ?? null;
      case 'microTime':
        return (
          ['2024-01-02T03:04:05.678901Z', '1970-01-01T00:00:00.000000Z', '1969-12-31T23:59:59.000001Z'][
            this.#next(3)
          ] ?? null
        );
      case 'quantity':
        return ['1', '500m', '1Gi', '-1'][this.#next(4)] ?? '0';
      case 'intOrString':
        return [0, 8080, -1, '25%', ''][this.#next(5)] ?? 0;
      case 'any':
      case 'rawExtension':
        return { free: ['json', 1, true, { n: null }] };
      case 'fieldsV1':
        return { 'f:metadata': { 'f:labels': { '.': {} } } };
    }
  }
}
