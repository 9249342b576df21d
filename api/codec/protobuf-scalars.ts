/**
 * Encodes the scalars of the API that JSON and protobuf represent differently: times, quantities, int-or-strings, base64,
 * free-form JSON, and the parts of custom resource schemas with one of several types.
 *
 * `write…` writes the payload of one field without its tag, and `read…` reads it.
 */
import { completeStruct } from '../schema/complete.ts';
import type { StructType } from '../schema/schema.ts';
import { canonicalMicroTime, canonicalTime, hasFourDigitYear } from '../schema/time.ts';
import type { JsonObject, JsonValue } from '../meta/object.ts';
import { escapeMarkup, JsonSyntaxError, parseJson, stringifyJson } from './json.ts';
import {
  BYTES,
  VARINT,
  malformed,
  tagOf,
  type MessageNames,
  type ProtobufReader,
  type ProtobufWriter,
} from './protobuf-wire.ts';

const FIRST_INTEGER = tagOf(1, VARINT);
const SECOND_INTEGER = tagOf(2, VARINT);
const FIRST_BYTES = tagOf(1, BYTES);
const SECOND_BYTES = tagOf(2, BYTES);
const THIRD_BYTES = tagOf(3, BYTES);

/** Returns the names of a message whose fields have the numbers 1, 2 and so on. */
function namesOf(message: string, ...fields: string[]): MessageNames {
  return { message, fields: new Map(fields.map((field, index) => [index + 1, field])) };
}

const TIMESTAMP = namesOf('Timestamp', 'Seconds', 'Nanos');
const QUANTITY = namesOf('Quantity', 'String_');
const INT_OR_STRING = namesOf('IntOrString', 'Type', 'IntVal', 'StrVal');
/** The messages whose only field is JSON. */
const JSON_MESSAGES = {
  any: namesOf('JSON', 'Raw'),
  rawExtension: namesOf('RawExtension', 'Raw'),
  fieldsV1: namesOf('FieldsV1', 'Raw'),
} as const;
const UNIONS = {
  none: namesOf('JSONSchemaPropsOrBool', 'Allows', 'Schema'),
  schemas: namesOf('JSONSchemaPropsOrArray', 'Schema', 'JSONSchemas'),
  strings: namesOf('JSONSchemaPropsOrStringArray', 'Schema', 'Property'),
} as const;

/** Writes the seconds since 1970, and the nanoseconds within the second. An invalid text is written as the zero time. */
export function writeTime(writer: ProtobufWriter, value: string): void {
  const before = writer.length;
  const milliseconds = Date.parse(value);
  if (!Number.isNaN(milliseconds)) {
    const fraction = /\.(\d{1,9})/.exec(value)?.[1] ?? '0';
    writer.integer(Number(fraction.padEnd(9, '0')));
    writer.varint(SECOND_INTEGER);
    writer.integer(Math.floor(milliseconds / 1000));
    writer.varint(FIRST_INTEGER);
  }
  writer.varint(writer.length - before);
}

function readTimestamp(reader: ProtobufReader): { seconds: number; nanos: number } | undefined {
  let seconds: number | undefined;
  let nanos = 0;
  const around = reader.enter();
  while (!reader.done) {
    const tag = reader.varint();
    if (tag === FIRST_INTEGER) seconds = Number(reader.int64());
    else if (tag === SECOND_INTEGER) nanos = reader.int32();
    else reader.skipUnknown(tag, TIMESTAMP);
  }
  reader.leave(around);
  if (seconds === undefined) return undefined;
  if (!hasFourDigitYear(seconds) || nanos < 0 || nanos > 999999999) throw malformed('time out of range');
  return { seconds, nanos };
}

/** Reads a `Time`; null for the zero time. */
export function readTime(reader: ProtobufReader): string | null {
  const stamp = readTimestamp(reader);
  return stamp === undefined ? null : canonicalTime(`${new Date(stamp.seconds * 1000).toISOString().slice(0, 19)}Z`);
}

/** Reads a `MicroTime`; null for the zero time. */
export function readMicroTime(reader: ProtobufReader): string | null {
  const stamp = readTimestamp(reader);
  if (stamp === undefined) return null;
  const micros = String(Math.floor(stamp.nanos / 1000)).padStart(6, '0');
  return canonicalMicroTime(`${new Date(stamp.seconds * 1000).toISOString().slice(0, 19)}.${micros}Z`);
}

/** Writes the text of a quantity as it is. */
export function writeQuantity(writer: ProtobufWriter, value: string | number | bigint): void {
  const before = writer.length;
  writer.string(String(value));
  writer.varint(FIRST_BYTES);
  writer.varint(writer.length - before);
}

/** Reads the text of a quantity; '0' if it is absent. */
export function readQuantity(reader: ProtobufReader): string {
  let text = '0';
  const around = reader.enter();
  while (!reader.done) {
    const tag = reader.varint();
    if (tag === FIRST_BYTES) text = reader.string();
    else reader.skipUnknown(tag, QUANTITY);
  }
  reader.leave(around);
  return text === '' ? '0' : text;
}

/** Writes all three fields, as Go does, although the type says which one counts. */
export function writeIntOrString(writer: ProtobufWriter, value: string | number): void {
  const before = writer.length;
  writer.string(typeof value === 'string' ? value : '');
  writer.varint(THIRD_BYTES);
  writer.integer(typeof value === 'string' ? 0 : value);
  writer.varint(SECOND_INTEGER);
  writer.varint(typeof value === 'string' ? 1 : 0);
  writer.varint(FIRST_INTEGER);
  writer.varint(writer.length - before);
}

/** Reads a number or a text, as its type field says. */
export function readIntOrString(reader: ProtobufReader): string | number {
  let isString = false;
  let number = 0;
  let text = '';
  const around = reader.enter();
  while (!reader.done) {
    const tag = reader.varint();
    if (tag === FIRST_INTEGER) isString = reader.varint() === 1;
    else if (tag === SECOND_INTEGER) number = reader.int32();
    else if (tag === THIRD_BYTES) text = reader.string();
    else reader.skipUnknown(tag, INT_OR_STRING);
  }
  reader.leave(around);
  return isString ? text : number;
}

/** Writes the bytes of a base64 text. */
export function writeBase64(writer: ProtobufWriter, value: string): void {
  writer.bytes(Buffer.from(value, 'base64'));
}

/** Reads bytes as a base64 text. */
export function readBase64(reader: ProtobufReader): string {
  return reader.bytes().toString('base64');
}

/** Writes RawExtension, FieldsV1 and free-form JSON: messages whose only field contains the text. */
export function writeJson(writer: ProtobufWriter, value: JsonValue): void {
  const before = writer.length;
  writer.bytes(Buffer.from(escapeMarkup(stringifyJson(value))));
  writer.varint(FIRST_BYTES);
  writer.varint(writer.length - before);
}

/**
 * Reads a free-form JSON value; null if it is absent or empty. `envelope` decodes raw bytes that are protobuf themselves.
 * Throws a 400 for bytes that are neither.
 */
export function readJson(
  reader: ProtobufReader,
  message: keyof typeof JSON_MESSAGES,
  envelope: (bytes: Buffer) => JsonValue | undefined,
): JsonValue {
  let raw: Buffer | undefined;
  const around = reader.enter();
  while (!reader.done) {
    const tag = reader.varint();
    if (tag === FIRST_BYTES) raw = reader.bytes();
    else reader.skipUnknown(tag, JSON_MESSAGES[message]);
  }
  reader.leave(around);
  if (raw === undefined || raw.length === 0) return null;
  const enveloped = envelope(raw);
  if (enveloped !== undefined) return enveloped;
  try {
    return parseJson(raw).value;
  } catch (error) {
    if (error instanceof JsonSyntaxError) throw malformed(error.message);
    throw error;
  }
}

/** Writes and reads a schema. The caller knows its type. */
export interface SchemaMessage {
  /** The struct of the message. */
  readonly struct: StructType;
  write(writer: ProtobufWriter, value: { [key: string]: JsonValue | undefined }): void;
  read(reader: ProtobufReader): JsonObject;
}

/** Writes a value with one of several types: `additionalProperties: false`, `items: {…}`, `dependencies: {a: ["b"]}`. */
export function writeUnion(
  writer: ProtobufWriter,
  value: JsonValue,
  schema: SchemaMessage,
  list: 'schemas' | 'strings' | 'none',
): void {
  const before = writer.length;
  if (Array.isArray(value)) {
    for (let index = value.length - 1; index >= 0; index -= 1) {
      const item = value[index];
      const inner = writer.length;
      if (list === 'strings' && typeof item === 'string') {
        writer.string(item);
        writer.varint(SECOND_BYTES);
      } else if (typeof item === 'object' && item !== null && !Array.isArray(item)) {
        schema.write(writer, item);
        writer.header(SECOND_BYTES, inner);
      }
    }
  } else if (typeof value === 'object' && value !== null) {
    schema.write(writer, value);
    writer.header(list === 'none' ? SECOND_BYTES : FIRST_BYTES, before);
    if (list === 'none') {
      writer.varint(1);
      writer.varint(FIRST_INTEGER);
    }
  } else if (typeof value === 'boolean') {
    writer.varint(value ? 1 : 0);
    writer.varint(FIRST_INTEGER);
  }
  writer.varint(writer.length - before);
}

/** Reads a member of a schema that is one value or a list of values: `items`, `additionalProperties`, `dependencies`. */
export function readUnion(
  reader: ProtobufReader,
  schema: SchemaMessage,
  list: 'schemas' | 'strings' | 'none',
): JsonValue {
  let single: JsonValue | undefined;
  let allows: boolean | undefined;
  const items: JsonValue[] = [];
  const around = reader.enter();
  while (!reader.done) {
    const tag = reader.varint();
    if (tag === FIRST_INTEGER && list === 'none') allows = reader.bool();
    else if (tag === FIRST_BYTES && list !== 'none') single = readMessage(reader, schema);
    else if (tag === SECOND_BYTES && list === 'none') single = readMessage(reader, schema);
    else if (tag === SECOND_BYTES) items.push(list === 'strings' ? reader.string() : readMessage(reader, schema));
    else reader.skipUnknown(tag, UNIONS[list]);
  }
  reader.leave(around);
  return single ?? (list === 'none' ? (allows ?? false) : items);
}

/** Reads a schema, and drops its fields with zero values, of which the binary form contains some. */
function readMessage(reader: ProtobufReader, schema: SchemaMessage): JsonValue {
  const around = reader.enter();
  const value = schema.read(reader);
  completeStruct(schema.struct, value);
  reader.leave(around);
  return value;
}
