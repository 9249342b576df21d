/** Encodes OpenAPI documents as protobuf by the tables of `protobuf.ts`, whole or in the pieces that run through the server. */
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
  isObject,
} from './protobuf.ts';

/** The bytes of a document. */
export function encodeDocument(message: Message, document: JsonObject): Buffer {
  const writer = new ProtobufWriter();
  writer.reset();
  writeMessage(writer, message, document);
  return writer.take();
}

/** The number of a section of a document and that of its pairs, with the kind of their values. */
export interface PairSection {
  readonly number: number;
  readonly inner: number;
  readonly kind: Kind;
}

export const V2_PATHS: PairSection = { number: 8, inner: 2, kind: v2PathItem };
export const V2_DEFINITIONS: PairSection = { number: 9, inner: 1, kind: v2Schema };
export const V3_PATHS: PairSection = { number: 4, inner: 1, kind: v3PathItem };
export const V3_SCHEMAS: PairSection = { number: 1, inner: 1, kind: v3SchemaOrReference };
/** The field of an OpenAPI 3 document that has its schemas. */
export const V3_COMPONENTS = 5;

/** Pairs of a section, without its header: those of several calls can stand one after the other. */
export function encodePairs({ inner, kind }: PairSection, members: JsonObject): Buffer {
  const writer = new ProtobufWriter();
  writer.reset();
  writePairs(writer, inner, kind, members);
  return writer.take();
}

/** Throws if a document of OpenAPI 2 with these members has no binary form. */
export function checkEncodable(part: {
  readonly paths: JsonObject;
  readonly definitions: JsonObject;
  readonly parameters: JsonObject;
}): void {
  encodePairs(V2_PATHS, part.paths);
  encodePairs(V2_DEFINITIONS, part.definitions);
  encodeDocument(documentV2, { parameters: part.parameters });
}

/** The header of a field whose content has so many bytes. */
export function fieldHeader(number: number, sizeBytes: number): Buffer {
  const writer = new ProtobufWriter();
  writer.reset();
  writer.varint(sizeBytes);
  writer.varint(tagOf(number, BYTES));
  return writer.take();
}

/** Backwards, as the writer goes. */
function writeMessage(writer: ProtobufWriter, message: Message, value: JsonValue): void {
  if (message.pick !== undefined) {
    const [number, kind] = message.pick(value);
    writeValue(writer, number, kind, value);
    return;
  }
  if (!isObject(value)) throw new TypeError('a document has a value where an object belongs');
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
    } else throw new TypeError(`a document has the unknown member ${name}`);
  }
}

/** A member may have the name of a method of all objects. */
function fieldOf({ fields }: Message, name: string): FieldSpec | undefined {
  return fields !== undefined && Object.hasOwn(fields, name) ? fields[name] : undefined;
}

function writeField(writer: ProtobufWriter, spec: FieldSpec, value: JsonValue): void {
  const kind = spec.kind();
  if (spec.shape === 'one') writeValue(writer, spec.number, kind, value);
  else if (spec.shape === 'many') {
    if (!Array.isArray(value)) throw new TypeError('a document has a value where a list belongs');
    for (const item of value.toReversed()) writeValue(writer, spec.number, kind, item);
  } else if (isObject(value)) {
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
      // JSON is YAML.
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
