/**
 * The protobuf form of the built-in types: `application/vnd.kubernetes.protobuf`.
 *
 * A body is the magic `k8s\0` and a `runtime.Unknown` that names the type and holds the message. Messages of single objects
 * can be kept and spliced into lists and watch events: nothing is encoded twice. Custom resources have no protobuf form.
 */
import { parseApiVersion, type JsonObject } from '../meta/object.ts';
import { newBadRequest } from '../meta/status-error.ts';
import type { Schema, StructType } from '../schema/schema.ts';
import { MessageTypes, hasMessage } from './protobuf-messages.ts';
import { BYTES, ProtobufReader, ProtobufWriter, malformed, tagOf } from './protobuf-wire.ts';

const MAGIC = Buffer.from('k8s\0', 'latin1');
const FIRST = tagOf(1, BYTES);
const SECOND = tagOf(2, BYTES);
const FOURTH = tagOf(4, BYTES);
/** A struct that an envelope's raw bytes may be nested in: a bound for objects inside of objects. */
const MAX_ENVELOPES = 16;

export interface ProtobufCodec {
  /** Whether the kind has a message. */
  has(group: string, version: string, kind: string): boolean;
  /** The message of an object, by its `apiVersion` and `kind`, without envelope. */
  encode(object: object): Buffer;
  /** `k8s\0` and the message with its type. */
  envelop(apiVersion: string, kind: string, message: Buffer): Buffer;
  /** The message of an object as a list has it, its length before it. */
  encodeItem(object: object): Buffer;
  /** A list in its envelope, in pieces: the items are those of `encodeItem`, and they are not copied. */
  list(apiVersion: string, kind: string, metadata: object, items: readonly Buffer[]): Buffer[];
  /** Any object of a type that the schema knows, with its envelope. */
  encodeEnveloped(object: object): Buffer;
  /** One `WatchEvent`, without the length before it. */
  watchEvent(type: string, envelopedObject: Buffer): Buffer;
  /** Opens the envelope. Throws 400 for anything that is not one of ours, and for more than `maxValues`. */
  decode(bytes: Uint8Array, maxValues?: number): JsonObject;
  /** What `watchEvent` made. */
  decodeWatchEvent(bytes: Uint8Array): { readonly type: string; readonly object: JsonObject };
}

/** One a process: the functions of the messages are made on first use and kept. */
export function createProtobufCodec(schema: Schema): ProtobufCodec {
  const writer = new ProtobufWriter();
  let envelopes = 0;
  let bound = Infinity;

  const types = new MessageTypes(schema, (bytes) => (startsWithMagic(bytes) ? decode(bytes) : undefined));

  function structOf(apiVersion: unknown, kind: unknown): StructType | undefined {
    if (typeof apiVersion !== 'string' || typeof kind !== 'string') return undefined;
    const version = parseApiVersion(apiVersion);
    const struct = version === undefined ? undefined : schema.kind(version.group, version.version, kind);
    return struct !== undefined && hasMessage(struct) ? struct : undefined;
  }

  function write(object: object): void {
    const { apiVersion, kind } = object as JsonObject;
    const struct = structOf(apiVersion, kind);
    if (struct === undefined) throw new TypeError(`${String(apiVersion)} ${String(kind)} has no protobuf form`);
    writer.reset();
    types.of(struct).write(writer, object as JsonObject);
  }

  function encode(object: object): Buffer {
    write(object);
    return writer.take();
  }

  function encodeItem(object: object): Buffer {
    write(object);
    writer.header(SECOND, 0);
    return writer.take();
  }

  function envelop(apiVersion: string, kind: string, message: Buffer): Buffer {
    const { head, tail } = envelope(apiVersion, kind, message.length);
    return Buffer.concat([head, message, tail]);
  }

  function envelope(
    apiVersion: string,
    kind: string,
    length: number,
  ): { readonly head: Buffer; readonly tail: Buffer } {
    writer.reset();
    // contentEncoding and contentType, empty, as kube-apiserver writes them.
    writer.varint(0);
    writer.varint(FOURTH);
    writer.varint(0);
    writer.varint(tagOf(3, BYTES));
    const tail = writer.take();
    writer.reset();
    writer.varint(length);
    writer.varint(SECOND);
    const before = writer.length;
    writer.string(kind);
    writer.varint(SECOND);
    writer.string(apiVersion);
    writer.varint(FIRST);
    writer.header(FIRST, before);
    return { head: Buffer.concat([MAGIC, writer.take()]), tail };
  }

  function list(apiVersion: string, kind: string, metadata: object, items: readonly Buffer[]): Buffer[] {
    const listMeta = schema.struct('io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta');
    if (listMeta === undefined) throw new TypeError('the schema has no ListMeta');
    writer.reset();
    types.of(listMeta).write(writer, metadata as JsonObject);
    writer.header(FIRST, 0);
    const meta = writer.take();
    let length = meta.length;
    for (const item of items) length += item.length;
    const { head, tail } = envelope(apiVersion, kind, length);
    return [head, meta, ...items, tail];
  }

  function watchEvent(type: string, envelopedObject: Buffer): Buffer {
    writer.reset();
    writer.bytes(envelopedObject);
    writer.varint(FIRST);
    writer.header(SECOND, 0);
    writer.string(type);
    writer.varint(FIRST);
    return writer.take();
  }

  /** Within another one its bound holds. */
  function decode(bytes: Uint8Array, maxValues = bound): JsonObject {
    const unknown = openUnknown(bytes);
    const struct = structOf(unknown.apiVersion, unknown.kind);
    if (struct === undefined) {
      throw newBadRequest(`no kind "${unknown.kind}" is registered for version "${unknown.apiVersion}"`);
    }
    if (envelopes >= MAX_ENVELOPES) throw malformed('nested too deep');
    envelopes += 1;
    const around = bound;
    bound = maxValues;
    try {
      const message = types.of(struct).read(new ProtobufReader(unknown.raw, bound));
      return { apiVersion: unknown.apiVersion, kind: unknown.kind, ...message };
    } finally {
      bound = around;
      envelopes -= 1;
    }
  }

  function decodeWatchEvent(bytes: Uint8Array): { readonly type: string; readonly object: JsonObject } {
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
    return { type, object: decode(raw) };
  }

  return {
    has: (group, version, kind) => {
      const struct = schema.kind(group, version, kind);
      return struct !== undefined && hasMessage(struct);
    },
    encode,
    encodeItem,
    envelop,
    list,
    encodeEnveloped: (object) => {
      const { apiVersion, kind } = object as JsonObject;
      return envelop(String(apiVersion), String(kind), encode(object));
    },
    watchEvent,
    decode,
    decodeWatchEvent,
  };
}

/** The message in what `encodeItem` made. */
export function messageOfItem(item: Buffer): Buffer {
  let start = 1;
  while ((item[start] ?? 0) >= 128) start += 1;
  return item.subarray(start + 1);
}

function startsWithMagic(bytes: Uint8Array): boolean {
  return bytes.length >= MAGIC.length && MAGIC.every((byte, index) => bytes[index] === byte);
}

interface Unknown {
  readonly apiVersion: string;
  readonly kind: string;
  readonly raw: Buffer;
}

function openUnknown(bytes: Uint8Array): Unknown {
  if (!startsWithMagic(bytes)) {
    throw newBadRequest('provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]');
  }
  const reader = new ProtobufReader(bytes.subarray(MAGIC.length));
  let apiVersion = '';
  let kind = '';
  let raw: Buffer = Buffer.alloc(0);
  while (!reader.done) {
    const tag = reader.varint();
    if (tag === SECOND) raw = reader.bytes();
    else if (tag === FIRST) {
      const around = reader.enter();
      while (!reader.done) {
        const inner = reader.varint();
        if (inner === FIRST) apiVersion = reader.string();
        else if (inner === SECOND) kind = reader.string();
        else reader.skip(inner);
      }
      reader.leave(around);
    } else reader.skip(tag);
  }
  return { apiVersion, kind, raw };
}
