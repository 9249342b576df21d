/** Encodes OpenAPI documents as protobuf, whole or in parts, with the tables of `protobuf.ts`. */
import { isJsonObject } from '../../../api/meta/json-object.ts';
import { stringifyJson } from '../../../api/codec/json.ts';
import type { JsonObject, JsonValue } from '../../../api/meta/object.ts';
import { BYTES, FIXED64, ProtobufWriter, VARINT, tagOf } from '../../../api/codec/protobuf-wire.ts';
import {
  type Kind,
  type Message,
  type FieldSpec,
  documentV2,
  v2PathItem,
  v2Schema,
  v3PathItem,
  v3SchemaOrReference,
} from './protobuf.ts';

/** Encodes a whole document. */
export function encodeDocument(message: Message, document: JsonObject): Buffer {
  const writer = new ProtobufWriter();
  writer.reset();
  writeMessage(writer, message, document);
  return writer.take();
}

/** The field number of a section, the field number of its pairs, and the kind of their values. */
export interface PairSection {
  readonly number: number;
  readonly inner: number;
  readonly kind: Kind;
}

/** Where the paths stand in an encoded OpenAPI 2 document. */
export const V2_PATHS: PairSection = { number: 8, inner: 2, kind: v2PathItem };
/** Where the definitions stand in an encoded OpenAPI 2 document. */
export const V2_DEFINITIONS: PairSection = { number: 9, inner: 1, kind: v2Schema };
/** Where the paths stand in an encoded OpenAPI 3 document. */
export const V3_PATHS: PairSection = { number: 4, inner: 1, kind: v3PathItem };
/** Where the schemas stand in the encoded components of an OpenAPI 3 document. */
export const V3_SCHEMAS: PairSection = { number: 1, inner: 1, kind: v3SchemaOrReference };
/** The field of an OpenAPI 3 document that contains the schemas. */
export const V3_COMPONENTS = 5;

/** Encodes the pairs of a section without the header of the section. The results of several calls can be concatenated. */
export function encodePairs({ inner, kind }: PairSection, members: JsonObject): Buffer {
  const writer = new ProtobufWriter();
  writer.reset();
  writePairs(writer, inner, kind, members);
  return writer.take();
}

/** Throws if an OpenAPI 2 document with these members has no binary form. */
export function checkEncodable(part: {
  readonly paths: JsonObject;
  readonly definitions: JsonObject;
  readonly parameters: JsonObject;
}): void {
  encodePairs(V2_PATHS, part.paths);
  encodePairs(V2_DEFINITIONS, part.definitions);
  encodeDocument(documentV2, { parameters: part.parameters });
}

/** Encodes the header of a field with content of this size. */
export function fieldHeader(number: number, sizeBytes: number): Buffer {
  const writer = new ProtobufWriter();
  writer.reset();
  writer.varint(sizeBytes);
  writer.varint(tagOf(number, BYTES));
  return writer.take();
}

/** Writes the fields in reverse, because the writer fills its buffer from the end. */
function writeMessage(writer: ProtobufWriter, message: Message, value: JsonValue): void {
  if (message.pick !== undefined) {
    const [number, kind] = message.pick(value);
    writeValue(writer, number, kind, value);
    return;
  }
  if (!isJsonObject(value)) throw new TypeError('an OpenAPI document has a value where an object belongs');
  if (message.pairs !== undefined) {
    writePairs(writer, 1, message.pairs, value);
    return;
  }
  for (const [name, member] of Object.entries(value).toReversed()) {
    if (member === undefined) continue;
    const spec = fieldOf(message, name);
    if (spec !== undefined) writeField(writer, spec, member);
    else if (message.extensions !== undefined && name.startsWith('x-')) {
      writePairs(writer, message.extensions, 'any', { [name]: member });
    } else throw new TypeError(`an OpenAPI document has the unknown member ${name}`);
  }
}

/** Looks up a field. A member may have the name of an inherited method, so only own members count. */
function fieldOf({ fields }: Message, name: string): FieldSpec | undefined {
  return fields !== undefined && Object.hasOwn(fields, name) ? fields[name] : undefined;
}

function writeField(writer: ProtobufWriter, spec: FieldSpec, value: JsonValue): void {
  const kind = spec.kind();
  if (spec.shape === 'one') writeValue(writer, spec.number, kind, value);
  else if (spec.shape === 'many') {
    if (!Array.isArray(value)) throw new TypeError('an OpenAPI document has a value where a list belongs');
    for (const item of value.toReversed()) writeValue(writer, spec.number, kind, item);
  } else if (isJsonObject(value)) {
    const before = writer.length;
    writePairs(writer, spec.inner, kind, value);
    writer.header(tagOf(spec.number, BYTES), before);
  }
}

function writePairs(writer: ProtobufWriter, number: number, kind: Kind, value: JsonObject): void {
  for (const [name, member] of Object.entries(value).toReversed()) {
    if (member === undefined) continue;
    const before = writer.length;
    writeValue(writer, 2, kind, member);
    writer.string(name);
    writer.varint(tagOf(1, BYTES));
    writer.header(tagOf(number, BYTES), before);
  }
}

function writeValue(writer: ProtobufWriter, number: number, kind: Kind, value: JsonValue): void {
  switch (kind) {
    case 'string':
      // A default that is an object has no binary form.
      if (typeof value !== 'string') return;
      writer.string(value);
      writer.varint(tagOf(number, BYTES));
      return;
    case 'bool':
      writer.varint(value === true ? 1 : 0);
      writer.varint(tagOf(number, VARINT));
      return;
    case 'int':
      writer.integer(Number(value));
      writer.varint(tagOf(number, VARINT));
      return;
    case 'double':
      writer.double(Number(value));
      writer.varint(tagOf(number, FIXED64));
      return;
    case 'any': {
      const before = writer.length;
      // JSON is valid YAML.
      writer.string(`${stringifyJson(value)}\n`);
      writer.varint(tagOf(2, BYTES));
      writer.header(tagOf(number, BYTES), before);
      return;
    }
    case 'strings': {
      const before = writer.length;
      const list = Array.isArray(value) ? value : [value];
      for (const item of list.toReversed()) writeValue(writer, 1, 'string', item);
      writer.header(tagOf(number, BYTES), before);
      return;
    }
    default: {
      const before = writer.length;
      writeMessage(writer, kind, value);
      writer.header(tagOf(number, BYTES), before);
    }
  }
}
