/** Decodes a JSON value by the typed structs of kube-apiserver. */
import { Base64Error, canonicalBase64 } from './base64.ts';
import { QuantityError, storedQuantity } from '../meta/quantity.ts';
import { setMember } from '../meta/own-member.ts';
import { conversionFault, convertedInteger } from './map-conversion.ts';
import { TimeError, canonicalMicroTime, canonicalTime } from './time.ts';
import type { JsonObject, JsonValue } from '../meta/object.ts';
import type { StructType, TypeNode } from './schema.ts';
import { addPrinted, addZeros, isZero, zeroValue, zeroWithoutNulls } from './complete.ts';
import { jsonKind, goType, goName } from './go-types.ts';
import { isJsonObject } from '../meta/json-object.ts';
import { jsonPath } from '../meta/json-path.ts';
import { INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN } from '../meta/integers.ts';

/** The error for a value that does not match its type. It has kube-apiserver's message. */
export class DecodeError extends Error {
  override readonly name = 'DecodeError';
}

interface Decoded {
  /** The decoded value. It shares free-form JSON with the input. */
  readonly value: JsonObject;
  /** The paths that the type does not have, in the order of the text: `spec.containers[0].colour`. */
  readonly unknown: readonly string[];
}

/** What the decoder needs to know about the source of the value. */
export interface DecodeOptions {
  /** The literals of whole numbers with a fraction or an exponent, by path. Integer fields refuse them. */
  readonly decimals?: ReadonlyMap<string, string> | undefined;
  /** The value is no text but the result of a strategic merge or an apply, which Go converts by other rules. */
  readonly isConversion?: boolean;
  /** Leaves out fields that are serialized as null if they are absent, so that absent fields have one form only. */
  readonly omitsNulls?: boolean;
}

/**
 * Decodes a value, which is not modified, by its type. An absent value or null decodes as an empty object does. Throws
 * `DecodeError` for a value that does not match its type.
 */
export function decodeStruct(struct: StructType, value: unknown, options: DecodeOptions = {}): Decoded {
  const walk = new Walk(options);
  if (value === null || value === undefined) return { value: walk.struct(struct, {}), unknown: [] };
  if (typeof value !== 'object' || Array.isArray(value)) {
    throw new DecodeError(`json: cannot unmarshal ${jsonKind(value)} into Go value of type ${goName(struct)}`);
  }
  return { value: walk.finish(walk.struct(struct, value as JsonObject)), unknown: walk.unknown };
}

/** Returns the part of a `strict decoding error` for each unknown name. */
export function unknownFieldErrors(unknown: readonly string[]): string[] {
  return unknown.map((path) => `unknown field "${path}"`);
}

/** The maximum number of unknown fields that are reported. */
const MAX_UNKNOWN = 100;

type ScalarNode = Extract<TypeNode, { readonly kind: 'scalar' }>;
type SchemaOr = NonNullable<ScalarNode['message']>;

const STRING: TypeNode = { kind: 'scalar', scalar: 'string' };

const NO_DECIMALS: ReadonlyMap<string, string> = new Map();

/**
 * Decodes one value. Like Go's decoder it reports the first value of a wrong type only at the end, because an error of a type
 * that decodes itself, such as a time, comes before it wherever it stands. A conversion stops at its first error.
 */
class Walk {
  readonly unknown: string[] = [];
  #firstError: DecodeError | undefined;
  /** The names and indexes down to the current value, for unknown names. Errors contain only the names. */
  readonly #path: (string | number)[] = [];
  /** The names of the fields without indexes, with those of the embedded Go structs around them, and the inner struct. */
  readonly #fields: string[] = [];
  #struct: StructType | undefined;
  /** The struct whose field is of a type that decodes itself, of which the current value is a part. Errors name it. */
  #decodesItself: StructType | undefined;
  readonly #decimals: ReadonlyMap<string, string>;
  readonly #isConversion: boolean;
  readonly #omitsNulls: boolean;

  constructor({ decimals = NO_DECIMALS, isConversion = false, omitsNulls = false }: DecodeOptions = {}) {
    this.#decimals = decimals;
    this.#isConversion = isConversion;
    this.#omitsNulls = omitsNulls;
  }

  /** Returns the decoded value, or throws the first error that was noted. */
  finish(value: JsonObject): JsonObject {
    if (this.#firstError !== undefined) throw this.#firstError;
    return value;
  }

  struct(struct: StructType, value: JsonObject): JsonObject {
    const around = this.#struct;
    this.#struct = struct;
    const out: JsonObject = {};
    const depth = this.#path.length;
    for (const key in value) {
      const member = value[key];
      if (member === undefined) continue;
      const field = struct.fields.get(key);
      this.#path[depth] = key;
      if (field === undefined) {
        this.#noteUnknown();
        continue;
      }
      if (member === null) continue;
      this.#fields.push(field.goEmbedded === undefined ? key : `${field.goEmbedded}.${key}`);
      const decoded = this.#node(field.type, member);
      this.#fields.pop();
      if (decoded === null && field.type.kind === 'scalar' && field.type.message !== undefined) continue;
      // As in Go, an empty list or map differs from an absent one until the object is stored (`completeStruct`).
      if (field.presence !== 'omit' || !isZero(field.type, decoded)) out[key] = decoded;
    }
    this.#path.length = depth;
    this.#struct = around;
    return this.#omitsNulls ? addZeros(struct, out) : addPrinted(struct, out);
  }

  #noteUnknown(): void {
    if (this.unknown.length < MAX_UNKNOWN) this.unknown.push(jsonPath(this.#path));
  }

  /** Decodes a value that is not null. */
  #node(type: TypeNode, value: JsonValue): JsonValue {
    switch (type.kind) {
      case 'scalar':
        return this.#scalar(type, value);
      case 'struct':
        if (typeof value !== 'object' || value === null || Array.isArray(value)) return this.#wrong(type, value);
        return this.struct(type.struct, value);
      case 'list':
        if (!Array.isArray(value)) return this.#wrong(type, value);
        return this.#list(type.items, value);
      case 'map':
        if (typeof value !== 'object' || value === null || Array.isArray(value)) return this.#wrong(type, value);
        return this.#map(type.values, value);
    }
  }

  #list(items: TypeNode, value: readonly JsonValue[]): JsonValue {
    const depth = this.#path.length;
    const out = value.map((item, index) => {
      this.#path[depth] = index;
      return item === null ? this.#zero(items) : this.#node(items, item);
    });
    this.#path.length = depth;
    return out;
  }

  #map(values: TypeNode, value: JsonObject): JsonValue {
    const depth = this.#path.length;
    const out: JsonObject = {};
    for (const key in value) {
      const member = value[key];
      if (member === undefined) continue;
      // A conversion reports unknown names without the keys of the maps around them.
      if (!this.#isConversion) this.#path[depth] = key;
      setMember(out, key, member === null ? this.#zeroEntry(values) : this.#node(values, member));
    }
    this.#path.length = depth;
    return out;
  }

  #zero(type: TypeNode): JsonValue {
    return this.#omitsNulls ? zeroWithoutNulls(type) : zeroValue(type);
  }

  /** Returns the value for a null in a map. kube-apiserver stores absent bytes as an empty text. */
  #zeroEntry(type: TypeNode): JsonValue {
    return type.kind === 'scalar' && type.scalar === 'bytes' ? '' : this.#zero(type);
  }

  #scalar(type: ScalarNode, value: JsonValue): JsonValue {
    const { scalar } = type;
    switch (scalar) {
      case 'string':
        return typeof value === 'string' ? value : this.#wrong(type, value);
      case 'boolean':
        return typeof value === 'boolean' ? value : this.#wrong(type, value);
      case 'int32':
      case 'int64':
        return this.#integer(type, scalar, value);
      case 'double':
        return typeof value === 'number' || typeof value === 'bigint' ? value : this.#wrong(type, value);
      case 'bytes':
        return this.#bytes(type, value);
      case 'time':
      case 'microTime':
        return typeof value === 'string' ? time(scalar, value) : this.#foreign(jsonKind(value), 'string');
      case 'duration':
        return typeof value === 'string' ? value : this.#foreign(jsonKind(value), 'string');
      case 'quantity':
        return quantity(value);
      case 'intOrString':
        return this.#intOrString(value);
      case 'any':
        return type.message === undefined ? value : this.#schemaOr(type.message, value);
      case 'rawExtension':
      case 'fieldsV1':
        return value;
    }
  }

  /**
   * Decodes a schema within a schema, or what may stand in its place. The type decodes itself, so its errors come before
   * others, and the names of unknown fields in it are not reported.
   */
  #schemaOr(message: SchemaOr, value: JsonValue): JsonValue {
    if (this.#struct === undefined) return value;
    const schema: TypeNode = { kind: 'struct', struct: this.#struct };
    const [error, around, unknown] = [this.#firstError, this.#decodesItself, this.unknown.length];
    this.#firstError = undefined;
    this.#decodesItself ??= this.#struct;
    const isObject = isJsonObject(value);
    if (message === 'schemaOrBool' && !isObject && typeof value !== 'boolean')
      throw new DecodeError('boolean or JSON schema expected');
    if (isObject) this.#node(schema, value);
    else if (Array.isArray(value)) this.#list(message === 'schemaOrArray' ? schema : STRING, value);
    if (this.#firstError !== undefined) throw this.#firstError;
    this.unknown.length = unknown;
    this.#decodesItself = around;
    this.#firstError = error;
    return isObject || Array.isArray(value) || message === 'schemaOrBool' ? value : null;
  }

  /** Decodes bytes, which Go reads from base64 or from a list of numbers. */
  #bytes(type: ScalarNode, value: JsonValue): JsonValue {
    if (Array.isArray(value)) return Buffer.from(value.map((item) => this.#byte(item))).toString('base64');
    if (typeof value !== 'string') return this.#wrong(type, value);
    try {
      return canonicalBase64(value);
    } catch (error) {
      if (!(error instanceof Base64Error)) throw error;
      const origin = this.#isConversion ? 'error decoding from json: ' : '';
      return this.#refuse(`${origin}${error.message}`);
    }
  }

  #byte(value: JsonValue): number {
    if (value === null || (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value < 256))
      return value ?? 0;
    if (this.#isConversion) return this.#convertedByte(value);
    const found = typeof value === 'number' || typeof value === 'bigint' ? `number ${value}` : jsonKind(value);
    this.#refuse(`json: cannot unmarshal ${found} ${this.#into()} of type uint8`);
    return 0;
  }

  /** Decodes a byte of a conversion, which cuts integers to the size of a byte. */
  #convertedByte(value: JsonValue): number {
    const isNumber = typeof value === 'number' || typeof value === 'bigint';
    if (typeof value === 'bigint' || Number.isInteger(value)) return Number(BigInt.asUintN(8, BigInt(value as bigint)));
    this.#refuse(isNumber ? 'cannot convert float64 to uint8' : 'unrecognized type: uint8');
    return 0;
  }

  #integer(type: ScalarNode, scalar: 'int32' | 'int64', value: JsonValue): JsonValue {
    if (typeof value !== 'number' && typeof value !== 'bigint') return this.#wrong(type, value);
    if (this.#isConversion) return convertedInteger(scalar, value) ?? this.#wrong(type, value);
    const found = this.#unfit(scalar, value);
    if (found === undefined) return value;
    return this.#refuse(`json: cannot unmarshal ${found} ${this.#into()} of type ${goType(type)}`);
  }

  /** Returns Go's words for a number that does not fit into the integer type, and `undefined` for one that fits. */
  #unfit(scalar: 'int32' | 'int64', value: number | bigint): string | undefined {
    const fits =
      typeof value === 'bigint'
        ? scalar === 'int64' && value <= INT64_MAX && value >= INT64_MIN
        : scalar === 'int64'
          ? Number.isSafeInteger(value)
          : Number.isInteger(value) && value <= INT32_MAX && value >= INT32_MIN;
    const decimal = this.#decimals.size === 0 ? undefined : this.#decimals.get(jsonPath(this.#path));
    return fits && decimal === undefined ? undefined : `number ${decimal ?? String(value)}`;
  }

  #intOrString(value: JsonValue): JsonValue {
    if (typeof value === 'string') return value;
    if (typeof value !== 'number' && typeof value !== 'bigint') return this.#foreign(jsonKind(value), 'int32');
    const found = this.#unfit('int32', value);
    return found === undefined ? value : this.#foreign(found, 'int32');
  }

  #wrong(type: TypeNode, value: JsonValue): null {
    if (this.#isConversion) return this.#refuse(conversionFault(type, value));
    return this.#refuse(`json: cannot unmarshal ${jsonKind(value)} ${this.#into()} of type ${goType(type)}`);
  }

  /** Notes the first error, which a conversion throws at once. The value that it returns is never used. */
  #refuse(message: string): null {
    this.#firstError ??= new DecodeError(message);
    if (this.#isConversion) throw this.#firstError;
    return null;
  }

  /** Throws the error of a type that decodes itself. `found` says in Go's words what stands in its place. */
  #foreign(found: string, wanted: string): never {
    const into = this.#isConversion ? 'into Go value' : this.#into();
    throw new DecodeError(`json: cannot unmarshal ${found} ${into} of type ${wanted}`);
  }

  #into(): string {
    return `into Go struct field ${(this.#decodesItself ?? this.#struct)?.name.split('.').at(-1) ?? ''}.${this.#fields.join('.')}`;
  }
}

function time(scalar: 'time' | 'microTime', value: string): JsonValue {
  try {
    return scalar === 'time' ? canonicalTime(value) : canonicalMicroTime(value);
  } catch (error) {
    if (error instanceof TimeError) throw new DecodeError(error.message, { cause: error });
    throw error;
  }
}

function quantity(value: JsonValue): JsonValue {
  // A boolean, an object and a list count as the empty text, which is no quantity.
  const text = typeof value === 'string' || typeof value === 'number' || typeof value === 'bigint' ? value : '';
  try {
    return storedQuantity(text);
  } catch (error) {
    if (error instanceof QuantityError) throw new DecodeError(error.message, { cause: error });
    throw error;
  }
}
