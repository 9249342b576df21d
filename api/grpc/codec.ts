/**
 * Implements the wire codec of message tables (`messages.ts`), over the writer and the reader of the API's protobuf. It follows
 * proto3: a field with the default of its type is not written, and a message that was read has every scalar, list and map.
 */
import { BYTES, malformed, ProtobufReader, ProtobufWriter, tagOf, VARINT } from '../codec/protobuf-wire.ts';
import { setMember } from '../meta/own-member.ts';
import type { MessageTables } from './messages.ts';

/** The codec of one message. */
export interface MessageCodec {
  /** Ignores members that the table does not have, and those that are null or undefined. */
  encode(value: object): Buffer;
  /**
   * Skips fields that the table does not have, or that have another wire type there. Bytes are views of `bytes`. Throws for
   * anything that is not a message, and for one with more than 150,000 values.
   */
  decode(bytes: Uint8Array): object;
}

type Members = Record<string, unknown>;
type Scalar = 'int32' | 'int64' | 'uint32' | 'uint64' | 'decimal' | 'bool' | 'string' | 'bytes';

interface Field {
  readonly name: string;
  readonly number: number;
  readonly tag: number;
  readonly type: Scalar | 'map' | Message;
  readonly isList: boolean;
}

interface Message {
  /** The last field comes first, which is the order of writing. */
  readonly fields: readonly Field[];
  readonly byNumber: ReadonlyMap<number, Field>;
  /** The members of a message without any field, except for lists and maps. */
  readonly empty: Readonly<Members>;
  readonly collections: readonly Field[];
}

const WIRE_TYPES: Readonly<Record<Scalar, number>> = {
  int32: VARINT,
  int64: VARINT,
  uint32: VARINT,
  uint64: VARINT,
  decimal: VARINT,
  bool: VARINT,
  string: BYTES,
  bytes: BYTES,
};
const KEY = tagOf(1, BYTES);
const VALUE = tagOf(2, BYTES);
/** The maximum number of values of a message. An empty object takes two bytes in a message, and much more in memory. */
const MAX_VALUES = 150_000;
/** The smallest tag. Field numbers begin at 1, and tags have 32 bits. */
const FIRST_TAG = 8;
const TAG_END = 2 ** 32;

/** A message is written in one turn, so that all messages share the buffer. */
const writer = new ProtobufWriter();

/** Returns the codecs of the messages of a table by their names. */
export function buildCodecs(tables: MessageTables): (message: string) => MessageCodec {
  const messages = new Map<string, Message>();
  const messageOf = (name: string): Message => {
    const existing = messages.get(name);
    if (existing !== undefined) return existing;
    const table = tables[name];
    if (table === undefined) throw new Error(`no message table has ${name}`);
    const fields: Field[] = [];
    const byNumber = new Map<number, Field>();
    const empty: Members = {};
    const collections: Field[] = [];
    const message = { fields, byNumber, empty, collections };
    // Messages can contain themselves.
    messages.set(name, message);
    for (const [field, text] of Object.entries(table)) fields.push(fieldOf(field, text, messageOf));
    fields.sort((one, other) => other.number - one.number);
    for (const field of fields) {
      byNumber.set(field.number, field);
      if (field.isList || field.type === 'map') collections.push(field);
      else empty[field.name] = typeof field.type === 'string' ? DEFAULTS[field.type] : null;
    }
    return message;
  };
  return (name) => {
    const message = messageOf(name);
    return {
      encode(value) {
        writer.reset();
        writeFields(message, value as Members);
        return writer.take();
      },
      decode: (bytes) => readFields(message, new ProtobufReader(bytes, MAX_VALUES), emptyOf(message)),
    };
  };
}

function fieldOf(name: string, text: string, messageOf: (name: string) => Message): Field {
  const [number = '0', kind = ''] = text.split(' ');
  const isList = kind.endsWith('[]');
  const typeName = isList ? kind.slice(0, -2) : kind;
  const isScalar = Object.hasOwn(WIRE_TYPES, typeName);
  const type = isScalar ? (typeName as Scalar) : typeName === 'map' ? typeName : messageOf(typeName);
  const wireType = isScalar && !isPacked(type, isList) ? WIRE_TYPES[typeName as Scalar] : BYTES;
  return { name, number: Number(number), tag: tagOf(Number(number), wireType), type, isList };
}

/** Whether a list is one payload with all its numbers, as proto3 writes them. */
function isPacked(type: Field['type'], isList: boolean): type is Scalar {
  return isList && typeof type === 'string' && type !== 'map' && WIRE_TYPES[type] === VARINT;
}

function writeFields(message: Message, value: Members): void {
  for (const field of message.fields) {
    const member = value[field.name];
    if (member === undefined || member === null) continue;
    if (field.isList) writeList(field, member as readonly unknown[]);
    else if (field.type === 'map') writeMap(field.tag, member as Readonly<Record<string, string>>);
    else if (!isDefault(field.type, member)) writeOne(field.tag, field.type, member);
  }
}

/** Whether a scalar has the default of its type, which is not written. A nested message is written even if it is empty. */
function isDefault(type: Scalar | Message, value: unknown): boolean {
  if (typeof type !== 'string') return false;
  return type === 'bytes' ? (value as Uint8Array).length === 0 : value === DEFAULTS[type];
}

function writeList({ tag, type, isList }: Field, members: readonly unknown[]): void {
  if (type === 'map' || members.length === 0) return;
  const before = writer.length;
  for (let index = members.length - 1; index >= 0; index -= 1) {
    if (isPacked(type, isList)) writeScalar(type, members[index]);
    else writeOne(tag, type, members[index]);
  }
  if (isPacked(type, isList)) writer.header(tag, before);
}

function writeMap(tag: number, members: Readonly<Record<string, string>>): void {
  for (const [key, value] of Object.entries(members).toReversed()) {
    const before = writer.length;
    writer.string(value);
    writer.varint(VALUE);
    writer.string(key);
    writer.varint(KEY);
    writer.header(tag, before);
  }
}

function writeOne(tag: number, type: Scalar | Message, value: unknown): void {
  if (typeof type === 'string') {
    writeScalar(type, value);
    writer.varint(tag);
    return;
  }
  const before = writer.length;
  writeFields(type, value as Members);
  writer.header(tag, before);
}

function writeScalar(type: Scalar, value: unknown): void {
  switch (type) {
    case 'string':
      return writer.string(String(value));
    case 'bytes':
      return writer.bytes(value as Uint8Array);
    case 'bool':
      return writer.varint(value === true ? 1 : 0);
    case 'int32':
      return writer.integer(Number(value) | 0);
    case 'uint32':
      return writer.varint(Number(value) >>> 0);
    case 'int64':
    case 'uint64':
      return writer.integer(Math.trunc(Number(value)));
    case 'decimal':
      return writer.integer(BigInt.asIntN(64, BigInt(String(value))));
  }
}

const DEFAULTS: Readonly<Record<Scalar, unknown>> = {
  int32: 0,
  int64: 0,
  uint32: 0,
  uint64: 0,
  decimal: '0',
  bool: false,
  string: '',
  bytes: Buffer.alloc(0),
};

/** Returns the members of a message without fields. Its lists and maps are new ones, because the caller fills them. */
function emptyOf({ empty, collections }: Message): Members {
  const members: Members = { ...empty };
  for (const { name, isList } of collections) members[name] = isList ? [] : {};
  return members;
}

function readFields(message: Message, reader: ProtobufReader, into: Members): Members {
  while (!reader.done) {
    const tag = readTag(reader);
    const field = message.byNumber.get(Math.floor(tag / 8));
    if (field === undefined || !readField(field, tag, reader, into)) reader.skip(tag);
  }
  return into;
}

function readTag(reader: ProtobufReader): number {
  const tag = reader.varint();
  if (tag < FIRST_TAG || tag >= TAG_END) throw malformed(`illegal tag ${tag}`);
  return tag;
}

/** Returns false for a field of another wire type, of which nothing is read. */
function readField(
  { name, number, tag, type, isList }: Field,
  foundTag: number,
  reader: ProtobufReader,
  into: Members,
): boolean {
  if (isPacked(type, isList) && foundTag === tagOf(number, VARINT)) {
    (into[name] as unknown[]).push(readScalar(type, reader));
    return true;
  }
  if (foundTag !== tag) return false;
  if (isPacked(type, isList)) {
    const around = reader.enter();
    while (!reader.done) (into[name] as unknown[]).push(readScalar(type, reader));
    reader.leave(around);
  } else if (type === 'map') readEntry(reader, into[name] as Members);
  else if (typeof type === 'string') {
    const value = readScalar(type, reader);
    if (isList) (into[name] as unknown[]).push(value);
    else into[name] = value;
  } else {
    const around = reader.enter();
    // The parts of a message that comes more than once are merged.
    const part = readFields(type, reader, (isList ? undefined : (into[name] as Members | null)) ?? emptyOf(type));
    if (isList) (into[name] as unknown[]).push(part);
    else into[name] = part;
    reader.leave(around);
  }
  return true;
}

function readEntry(reader: ProtobufReader, into: Members): void {
  let key = '';
  let value = '';
  const around = reader.enter();
  while (!reader.done) {
    const tag = readTag(reader);
    if (tag === KEY) key = reader.validString();
    else if (tag === VALUE) value = reader.validString();
    else reader.skip(tag);
  }
  reader.leave(around);
  setMember(into, key, value);
}

function readScalar(type: Scalar, reader: ProtobufReader): unknown {
  switch (type) {
    case 'string':
      return reader.validString();
    case 'bytes':
      return reader.bytes();
    case 'bool':
      return reader.bool();
    case 'int32':
      return reader.int32();
    case 'uint32':
      return reader.int32() >>> 0;
    case 'int64':
      return Number(reader.int64());
    case 'uint64':
      return Number(BigInt.asUintN(64, BigInt(reader.int64())));
    case 'decimal':
      return String(BigInt.asUintN(64, BigInt(reader.int64())));
  }
}
