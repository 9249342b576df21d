/**
 * Decodes a JSON value by the typed structs of kube-apiserver. It checks types, drops and reports unknown names, drops nulls,
 * converts times and quantities to their canonical form, and adds or drops zero values as the type requires (`Presence`).
 *
 * The same code serves every kind and knows no kind by name. Custom resources are pruned by other code. The registry calls this
 * for every body of a built-in kind, and for the results of defaulting and patches.
 */
import { Base64Error, canonicalBase64 } from './base64.ts';
import { QuantityError, storedQuantity } from '../meta/quantity.ts';
import { stringifyJson, setMember } from '../codec/json.ts';
import { conversionFault, convertedInteger } from './map-conversion.ts';
import { TimeError, canonicalMicroTime, canonicalTime } from './time.ts';
import type { JsonObject, JsonValue } from '../meta/object.ts';
import type { Field, Scalar, StructType, TypeNode } from './schema.ts';
import { isCollection, isEmptyCollection } from './empty-values.ts';
import { jsonKind, goType, goName } from './go-types.ts';

/** The error for a value that does not match its type. It has kube-apiserver's message. */
export class DecodeError extends Error {
  override readonly name = 'DecodeError';
}

interface Decoded {
  /** The decoded value. Except for free-form JSON, it shares nothing with the input that is modified later. */
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
}

/** Throws `DecodeError`. `value` is not modified. */
export function decodeStruct(struct: StructType, value: unknown, options: DecodeOptions = {}): Decoded {
  const walk = new Walk(options);
  if (value === null || value === undefined) return { value: walk.struct(struct, {}), unknown: [] };
  if (typeof value !== 'object' || Array.isArray(value)) {
    throw new DecodeError(`json: cannot unmarshal ${jsonKind(value)} into Go value of type ${goName(struct)}`);
  }
  return { value: walk.struct(struct, value as JsonObject), unknown: walk.unknown };
}

/**
 * Restores, in place, the fields that the type always serializes. It is for values that were modified after they were decoded,
 * such as an object whose strategy removed the status. Lists and maps that became empty are dropped or become null, as if they
 * had been read from the store.
 */
export function completeStruct(struct: StructType, value: JsonObject): void {
  const { fields } = struct;
  const isJson = STORED_AS_JSON.test(struct.name);
  // A type has many fields and an object has few of them, so this visits the members of the object.
  for (const name in value) {
    const field = fields.get(name);
    const member = value[name];
    if (field === undefined || member === undefined) continue;
    if (member !== null && keeps(field, member, isJson)) {
      complete(field.type, member);
      continue;
    }
    const wanted = printedValue(field);
    // A complete value is never modified, because it may be shared and frozen.
    if (wanted === undefined) delete value[name];
    else if (member !== wanted) value[name] = wanted;
  }
  for (const field of printedFields(struct)) {
    if (value[field.name] === undefined) value[field.name] = printedValue(field) ?? null;
  }
}

/** Returns the value of an absent field that is always serialized, and `undefined` for other fields. */
function printedValue({ presence, type }: Field): JsonValue | undefined {
  if (presence === 'null') return null;
  return presence === 'print' ? zeroValue(type) : undefined;
}

function complete(type: TypeNode, value: JsonValue): void {
  if (typeof value !== 'object' || value === null || type.kind === 'scalar') return;
  if (type.kind === 'struct') {
    if (!Array.isArray(value)) completeStruct(type.struct, value);
  } else if (type.kind === 'list') {
    if (type.items.kind !== 'scalar' && Array.isArray(value)) for (const item of value) complete(type.items, item);
  } else if (type.values.kind !== 'scalar' && !Array.isArray(value)) {
    for (const key in value) complete(type.values, value[key] ?? null);
  }
}

/** Returns the message of a `strict decoding error` for unknown names. */
export function unknownFieldErrors(unknown: readonly string[]): string[] {
  return unknown.map((path) => `unknown field "${path}"`);
}

/** Returns the zero value of a field that is always serialized. It is `null` for lists, maps and references. */
function zeroValue(type: TypeNode): JsonValue {
  if (type.kind === 'struct') return new Walk().struct(type.struct, {});
  return type.kind === 'scalar' ? ZEROS[type.scalar] : null;
}

const ZEROS: Readonly<Record<Scalar, JsonValue>> = {
  string: '',
  boolean: false,
  int32: 0,
  int64: 0,
  double: 0,
  bytes: null,
  time: null,
  microTime: null,
  duration: '0s',
  quantity: '0',
  intOrString: 0,
  any: null,
  rawExtension: null,
  fieldsV1: null,
};

const INT32_MAX = 2 ** 31 - 1;
const INT32_MIN = -(2 ** 31);
const INT64_MAX = 2n ** 63n - 1n;
const INT64_MIN = -(2n ** 63n);
const MAX_UNKNOWN = 100;

/** The fields that are always serialized. They are computed once for each type. */
const printed = new WeakMap<StructType, readonly Field[]>();

function printedFields(struct: StructType): readonly Field[] {
  let fields = printed.get(struct);
  if (fields === undefined) {
    fields = [...struct.fields.values()].filter(({ presence }) => presence === 'print' || presence === 'null');
    printed.set(struct, fields);
  }
  return fields;
}

/** Maps that have a meaning even if they are empty: the `overhead` of a pod whose runtime class sets none is refused. */
const KEPT_EMPTY: ReadonlySet<string> = new Set(['overhead']);

const NO_DECIMALS: ReadonlyMap<string, string> = new Map();

class Walk {
  readonly unknown: string[] = [];
  /** The names and indexes down to the current value, for unknown names. Errors contain only the names. */
  readonly #path: (string | number)[] = [];
  /** The names of the fields without indexes, and the structs that contain them. */
  readonly #fields: string[] = [];
  #struct: StructType | undefined;
  readonly #decimals: ReadonlyMap<string, string>;
  readonly #isConversion: boolean;

  constructor({ decimals = NO_DECIMALS, isConversion = false }: DecodeOptions = {}) {
    this.#decimals = decimals;
    this.#isConversion = isConversion;
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
      this.#fields.push(key);
      const decoded = this.#node(field.type, member);
      this.#fields.pop();
      // Like a list that Go has decoded, an empty one differs from an absent one until the object is stored (`completeStruct`).
      if (field.presence !== 'omit' || !isZero(field.type, decoded)) out[key] = decoded;
    }
    this.#path.length = depth;
    this.#struct = around;
    for (const field of printedFields(struct)) {
      if (out[field.name] === undefined) out[field.name] = printedValue(field) ?? null;
    }
    return out;
  }

  #noteUnknown(): void {
    if (this.unknown.length < MAX_UNKNOWN) this.unknown.push(this.#here());
  }

  #here(): string {
    let path = '';
    for (const part of this.#path) {
      if (typeof part === 'number') path += `[${part}]`;
      else path += path === '' ? part : `.${part}`;
    }
    return path;
  }

  /** Decodes a value that is not null. */
  #node(type: TypeNode, value: JsonValue): JsonValue {
    switch (type.kind) {
      case 'scalar':
        return this.#scalar(type.scalar, value);
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
      return item === null ? zeroItem(items) : this.#node(items, item);
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
      this.#path[depth] = key;
      setMember(out, key, member === null ? zeroEntry(values) : this.#node(values, member));
    }
    this.#path.length = depth;
    return out;
  }

  #scalar(scalar: Scalar, value: JsonValue): JsonValue {
    switch (scalar) {
      case 'string':
        return typeof value === 'string' ? value : this.#wrong({ kind: 'scalar', scalar }, value);
      case 'boolean':
        return typeof value === 'boolean' ? value : this.#wrong({ kind: 'scalar', scalar }, value);
      case 'int32':
      case 'int64':
        return this.#integer(scalar, value);
      case 'double':
        return typeof value === 'number' || typeof value === 'bigint'
          ? value
          : this.#wrong({ kind: 'scalar', scalar }, value);
      case 'bytes':
        return typeof value === 'string' ? this.#bytes(value) : this.#wrong({ kind: 'scalar', scalar }, value);
      case 'time':
      case 'microTime':
        return time(scalar, value);
      case 'duration':
        return typeof value === 'string' ? value : foreign(value, 'string');
      case 'quantity':
        return quantity(value);
      case 'intOrString':
        return intOrString(value);
      case 'any':
      case 'rawExtension':
      case 'fieldsV1':
        return value;
    }
  }

  #bytes(text: string): string {
    try {
      return canonicalBase64(text);
    } catch (error) {
      if (!(error instanceof Base64Error)) throw error;
      const origin = this.#isConversion ? 'error decoding from json: ' : '';
      throw new DecodeError(`${origin}${error.message}`, { cause: error });
    }
  }

  #integer(scalar: 'int32' | 'int64', value: JsonValue): JsonValue {
    if (typeof value !== 'number' && typeof value !== 'bigint') return this.#wrong({ kind: 'scalar', scalar }, value);
    if (this.#isConversion) {
      const converted = convertedInteger(scalar, value);
      return converted ?? this.#wrong({ kind: 'scalar', scalar }, value);
    }
    const fits =
      typeof value === 'bigint'
        ? scalar === 'int64' && value <= INT64_MAX && value >= INT64_MIN
        : scalar === 'int64'
          ? Number.isSafeInteger(value)
          : Number.isInteger(value) && value <= INT32_MAX && value >= INT32_MIN;
    const decimal = this.#decimals.size === 0 ? undefined : this.#decimals.get(this.#here());
    if (!fits || decimal !== undefined)
      throw new DecodeError(
        `json: cannot unmarshal number ${decimal ?? String(value)} ${this.#into()} of type ${scalar}`,
      );
    return value;
  }

  #wrong(type: TypeNode, value: JsonValue): never {
    if (this.#isConversion) throw new DecodeError(conversionFault(type, value));
    throw new DecodeError(`json: cannot unmarshal ${jsonKind(value)} ${this.#into()} of type ${goType(type)}`);
  }

  #into(): string {
    return `into Go struct field ${this.#struct?.name.split('.').at(-1) ?? ''}.${this.#fields.join('.')}`;
  }
}

/** kube-apiserver stores these types as JSON, in which an empty list that is always serialized differs from null. */
const STORED_AS_JSON = /^io\.k8s\.(?:apiextensions-apiserver|kube-aggregator)\./;

/** Whether a decoded value, which is not null, is kept. `isJson`: whether the type is one of `STORED_AS_JSON`. */
function keeps(field: Field, value: JsonValue, isJson: boolean): boolean {
  if (KEPT_EMPTY.has(field.name)) return true;
  // Stored objects have no empty lists and maps. They are null after decoding, and are serialized only if the type requires it.
  if (
    isCollection(field.type) &&
    (field.presence === 'omit' || (field.presence === 'print' && field.name !== 'items' && !isJson))
  ) {
    return !isEmptyCollection(value);
  }
  return field.presence !== 'omit' || !isZero(field.type, value);
}

function isZero(type: TypeNode, value: JsonValue): boolean {
  if (type.kind === 'scalar') {
    if (type.scalar === 'any' || type.scalar === 'rawExtension' || type.scalar === 'fieldsV1') return false;
    return value === '' || value === 0 || value === false || value === 0n;
  }
  return false;
}

function zeroItem(type: TypeNode): JsonValue {
  return zeroValue(type);
}

/** Returns the value for a null in a map. kube-apiserver stores absent bytes as an empty text. */
function zeroEntry(type: TypeNode): JsonValue {
  return type.kind === 'scalar' && type.scalar === 'bytes' ? '' : zeroValue(type);
}

function time(scalar: 'time' | 'microTime', value: JsonValue): JsonValue {
  if (typeof value !== 'string') return foreign(value, 'string');
  try {
    return scalar === 'time' ? canonicalTime(value) : canonicalMicroTime(value);
  } catch (error) {
    if (error instanceof TimeError) throw new DecodeError(error.message, { cause: error });
    throw error;
  }
}

function quantity(value: JsonValue): JsonValue {
  const text =
    typeof value === 'string' || typeof value === 'number' || typeof value === 'bigint' ? value : stringifyJson(value);
  try {
    return storedQuantity(text);
  } catch (error) {
    if (error instanceof QuantityError) throw new DecodeError(error.message, { cause: error });
    throw error;
  }
}

function intOrString(value: JsonValue): JsonValue {
  if (typeof value === 'string') return value;
  if (typeof value !== 'number') return foreign(value, 'int32');
  if (Number.isInteger(value) && value <= INT32_MAX && value >= INT32_MIN) return value;
  throw new DecodeError(`json: cannot unmarshal number ${value} into Go value of type int32`);
}

/** Throws the error of a type that decodes itself. Its message does not name the field. */
function foreign(value: JsonValue, goType: string): never {
  throw new DecodeError(`json: cannot unmarshal ${jsonKind(value)} into Go value of type ${goType}`);
}
