/**
 * Encodes and decodes the protobuf form of the built-in types: `application/vnd.kubernetes.protobuf`.
 *
 * A body consists of the magic number `k8s\0` and a `runtime.Unknown` that names the type and contains the message. Custom
 * resources have no protobuf form.
 */
import { parseApiVersion, type JsonObject } from '../meta/object.ts';
import { StatusError, newBadRequest } from '../meta/status-error.ts';
import type { Schema, StructType } from '../schema/schema.ts';
import { MessageTypes, hasMessage, type MessageOptions } from './protobuf-messages.ts';
import { BYTES, ProtobufReader, ProtobufWriter, malformed, tagOf, type MessageNames } from './protobuf-wire.ts';

const MAGIC = Buffer.from('k8s\0', 'latin1');
const FIRST = tagOf(1, BYTES);
const SECOND = tagOf(2, BYTES);
const THIRD = tagOf(3, BYTES);
const FOURTH = tagOf(4, BYTES);
/** The maximum depth of nested envelopes. Objects can contain other objects as raw bytes. */
const MAX_ENVELOPES = 16;

/**
 * The codec for the kinds of one schema. Encoding throws a `TypeError` for a kind without a message. Decoding throws a
 * `StatusError` with code 400.
 */
export interface ProtobufCodec {
  /** Whether the kind has a message. */
  has(group: string, version: string, kind: string): boolean;
  /** Encodes an object by its `apiVersion` and `kind`, without an envelope. */
  encode(object: object): Buffer;
  /** Returns `k8s\0` and the message with its type, in parts. The message is not copied. */
  envelop(apiVersion: string, kind: string, message: Buffer): Buffer[];
  /** Encodes an object as an item of a list, with its tag and length. */
  encodeItem(object: object): Buffer;
  /** Returns a list in its envelope, in pieces. The items are results of `encodeItem` and are not copied. */
  list(apiVersion: string, kind: string, metadata: object, items: readonly Buffer[]): Buffer[];
  /** Encodes an object of any type of the schema, with its envelope. */
  encodeEnveloped(object: object): Buffer;
  /** Returns a `WatchEvent` without its length prefix, in parts. Those of the object are not copied. */
  watchEvent(type: string, envelopedObject: readonly Buffer[]): Buffer[];
  /** Decodes an enveloped object. Throws a 400 if it is malformed, of an unknown kind, or has more than `maxValues` values. */
  decode(bytes: Uint8Array, maxValues?: number): JsonObject;
  /**
   * Decodes the body of a request, whose envelope may leave out version or kind. Returns only these two for a kind without a
   * message. Throws a `MessageError` for a message that cannot be decoded, and a 400 for bytes that are no envelope.
   */
  decodeBody(bytes: Uint8Array, options: { readonly expected: TypeMeta; readonly maxValues: number }): JsonObject;
  /** Decodes the joined bytes that `watchEvent` returns. */
  decodeWatchEvent(bytes: Uint8Array): { readonly type: string; readonly object: JsonObject };
}

/** What an envelope says of its message. */
export interface TypeMeta {
  readonly apiVersion: string;
  readonly kind: string;
}

/** The error for a message that cannot be decoded although its envelope can: 400. */
export class MessageError extends StatusError {
  readonly typeMeta: TypeMeta;

  constructor(typeMeta: TypeMeta, cause: StatusError) {
    super(cause.status, { cause });
    this.typeMeta = typeMeta;
  }
}

/** Creates a codec. */
export function createProtobufCodec(schema: Schema, options: MessageOptions = {}): ProtobufCodec {
  return new SchemaProtobufCodec(schema, options);
}

class SchemaProtobufCodec implements ProtobufCodec {
  readonly #schema: Schema;
  readonly #types: MessageTypes;
  readonly #writer = new ProtobufWriter();
  /** The number of envelopes around the one that is being decoded. */
  #envelopes = 0;
  /** The limit of values of the outermost `decode`. */
  #bound = Infinity;

  constructor(schema: Schema, options: MessageOptions) {
    this.#schema = schema;
    const open = (bytes: Buffer): JsonObject | undefined => (startsWithMagic(bytes) ? this.decode(bytes) : undefined);
    this.#types = new MessageTypes(schema, open, options);
  }

  has(group: string, version: string, kind: string): boolean {
    const struct = this.#schema.kind(group, version, kind);
    return struct !== undefined && hasMessage(struct);
  }

  encodeEnveloped(object: object): Buffer {
    const { apiVersion, kind } = object as JsonObject;
    return Buffer.concat(this.envelop(String(apiVersion), String(kind), this.encode(object)));
  }

  #structOf(apiVersion: unknown, kind: unknown): StructType | undefined {
    if (typeof apiVersion !== 'string' || typeof kind !== 'string') return undefined;
    const version = parseApiVersion(apiVersion);
    const struct = version === undefined ? undefined : this.#schema.kind(version.group, version.version, kind);
    return struct !== undefined && hasMessage(struct) ? struct : undefined;
  }

  #write(object: object): void {
    const { apiVersion, kind } = object as JsonObject;
    const struct = this.#structOf(apiVersion, kind);
    if (struct === undefined) throw new TypeError(`${String(apiVersion)} ${String(kind)} has no protobuf form`);
    this.#writer.reset();
    this.#types.of(struct).write(this.#writer, object as JsonObject);
  }

  encode(object: object): Buffer {
    this.#write(object);
    return this.#writer.take();
  }

  encodeItem(object: object): Buffer {
    this.#write(object);
    this.#writer.header(SECOND, 0);
    return this.#writer.take();
  }

  envelop(apiVersion: string, kind: string, message: Buffer): Buffer[] {
    const { head, tail } = this.#envelope(apiVersion, kind, message.length);
    return [head, message, tail];
  }

  #envelope(apiVersion: string, kind: string, length: number): { readonly head: Buffer; readonly tail: Buffer } {
    this.#writer.reset();
    // These are the empty contentEncoding and contentType, which kube-apiserver also writes.
    this.#writer.varint(0);
    this.#writer.varint(FOURTH);
    this.#writer.varint(0);
    this.#writer.varint(THIRD);
    const tail = this.#writer.take();
    this.#writer.reset();
    this.#writer.varint(length);
    this.#writer.varint(SECOND);
    const before = this.#writer.length;
    this.#writer.string(kind);
    this.#writer.varint(SECOND);
    this.#writer.string(apiVersion);
    this.#writer.varint(FIRST);
    this.#writer.header(FIRST, before);
    return { head: Buffer.concat([MAGIC, this.#writer.take()]), tail };
  }

  list(apiVersion: string, kind: string, metadata: object, items: readonly Buffer[]): Buffer[] {
    const listMeta = this.#schema.struct('io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta');
    if (listMeta === undefined) throw new TypeError('the schema has no ListMeta');
    this.#writer.reset();
    this.#types.of(listMeta).write(this.#writer, metadata as JsonObject);
    this.#writer.header(FIRST, 0);
    const meta = this.#writer.take();
    let length = meta.length;
    for (const item of items) length += item.length;
    const { head, tail } = this.#envelope(apiVersion, kind, length);
    return [head, meta, ...items, tail];
  }

  watchEvent(type: string, envelopedObject: readonly Buffer[]): Buffer[] {
    const length = envelopedObject.reduce((sum, part) => sum + part.length, 0);
    // The object is the last field, so that its fields before the bytes are the head of the whole message.
    this.#writer.reset();
    this.#writer.varint(length);
    this.#writer.varint(FIRST);
    const rawExtension = this.#writer.length + length;
    this.#writer.varint(rawExtension);
    this.#writer.varint(SECOND);
    this.#writer.string(type);
    this.#writer.varint(FIRST);
    return [this.#writer.take(), ...envelopedObject];
  }

  /** Decodes an object of any kind. A nested object has the same limit of values as the object around it. */
  decode(bytes: Uint8Array, maxValues = this.#bound): JsonObject {
    const { apiVersion, kind, raw } = openUnknown(bytes);
    const struct = this.#structOf(apiVersion, kind);
    if (struct === undefined) throw newBadRequest(`no kind "${kind}" is registered for version "${apiVersion}"`);
    return { apiVersion, kind, ...this.#readMessage(struct, raw, maxValues) };
  }

  decodeBody(bytes: Uint8Array, options: { readonly expected: TypeMeta; readonly maxValues: number }): JsonObject {
    const unknown = openUnknown(bytes);
    const { expected } = options;
    // An unreadable version counts as an absent one.
    const hasVersion = unknown.apiVersion !== '' && parseApiVersion(unknown.apiVersion) !== undefined;
    const apiVersion = hasVersion ? unknown.apiVersion : expected.apiVersion;
    const typeMeta = { apiVersion, kind: unknown.kind === '' ? expected.kind : unknown.kind };
    const struct = this.#structOf(apiVersion, typeMeta.kind);
    if (struct === undefined) return typeMeta;
    try {
      return { ...typeMeta, ...this.#readMessage(struct, unknown.raw, options.maxValues) };
    } catch (error) {
      throw error instanceof StatusError ? new MessageError(typeMeta, error) : error;
    }
  }

  #readMessage(struct: StructType, raw: Buffer, maxValues: number): JsonObject {
    if (this.#envelopes >= MAX_ENVELOPES) throw malformed('nested too deep');
    this.#envelopes += 1;
    const around = this.#bound;
    this.#bound = maxValues;
    try {
      return this.#types.of(struct).read(new ProtobufReader(raw, this.#bound));
    } finally {
      this.#bound = around;
      this.#envelopes -= 1;
    }
  }

  decodeWatchEvent(bytes: Uint8Array): { readonly type: string; readonly object: JsonObject } {
    const reader = new ProtobufReader(bytes);
    let type = '';
    let raw: Buffer | undefined;
    while (!reader.done) {
      const tag = reader.varint();
      if (tag === FIRST) type = reader.string();
      else if (tag === SECOND) {
        const around = reader.enter();
        while (!reader.done) {
          const inner = reader.varint();
          if (inner === FIRST) raw = reader.bytes();
          else reader.skip(inner);
        }
        reader.leave(around);
      } else reader.skip(tag);
    }
    if (raw === undefined) throw malformed('a watch event without an object');
    return { type, object: this.decode(raw) };
  }
}

/** Returns the message in the result of `encodeItem`. */
export function messageOfItem(item: Buffer): Buffer {
  let start = 1;
  while ((item[start] ?? 0) >= 128) start += 1;
  return item.subarray(start + 1);
}

function startsWithMagic(bytes: Uint8Array): boolean {
  return bytes.length >= MAGIC.length && MAGIC.every((byte, index) => bytes[index] === byte);
}

interface Unknown extends TypeMeta {
  readonly raw: Buffer;
}

const UNKNOWN: MessageNames = {
  message: 'Unknown',
  fields: new Map([
    [1, 'TypeMeta'],
    [2, 'Raw'],
    [3, 'ContentEncoding'],
    [4, 'ContentType'],
  ]),
};
const TYPE_META: MessageNames = {
  message: 'TypeMeta',
  fields: new Map([
    [1, 'APIVersion'],
    [2, 'Kind'],
  ]),
};

function openUnknown(bytes: Uint8Array): Unknown {
  if (bytes.length === 0) throw newBadRequest('empty data');
  if (!startsWithMagic(bytes)) {
    throw newBadRequest('provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]');
  }
  if (bytes.length === MAGIC.length) throw newBadRequest('empty body');
  const reader = new ProtobufReader(bytes.subarray(MAGIC.length));
  let typeMeta: TypeMeta = { apiVersion: '', kind: '' };
  let raw: Buffer = Buffer.alloc(0);
  while (!reader.done) {
    const tag = reader.varint();
    if (tag === SECOND) raw = reader.bytes();
    else if (tag === FIRST) typeMeta = { ...typeMeta, ...readTypeMeta(reader) };
    else if (tag === THIRD || tag === FOURTH) reader.bytes();
    else reader.skipUnknown(tag, UNKNOWN);
  }
  return { ...typeMeta, raw };
}

function readTypeMeta(reader: ProtobufReader): Partial<TypeMeta> {
  const typeMeta: { apiVersion?: string; kind?: string } = {};
  const around = reader.enter();
  while (!reader.done) {
    const tag = reader.varint();
    if (tag === FIRST) typeMeta.apiVersion = reader.string();
    else if (tag === SECOND) typeMeta.kind = reader.string();
    else reader.skipUnknown(tag, TYPE_META);
  }
  reader.leave(around);
  return typeMeta;
}
