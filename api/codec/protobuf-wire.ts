/**
 * Implements the wire format of protobuf: a writer that fills a buffer from its end, so that the length of a message is known
 * when its header is written, and a reader that never reads beyond the bytes that it was given.
 */
import { isUtf8 } from 'node:buffer';
import { newBadRequest, type StatusError } from '../meta/status-error.ts';
import { tooManyValues } from './limits.ts';

/** The wire type of integers and booleans, in groups of seven bits. */
export const VARINT = 0;
/** The wire type of eight bytes, little-endian. */
export const FIXED64 = 1;
/** A length and as many bytes. */
export const BYTES = 2;
const START_GROUP = 3;
const END_GROUP = 4;
const FIXED32 = 5;

const INITIAL_BYTES = 64 * 1024;
/** Lengths from here on are negative for Go. */
const TWO_63 = 2 ** 63;
/** The maximum number of messages within each other. */
const MAX_DEPTH = 500;
/** The maximum number of reads for one value. A map member takes three: its message, its key and its value. */
const READS_PER_VALUE = 3;

/** Writes one message at a time: call `reset`, write the last field first, and call `take`. */
export class ProtobufWriter {
  #buffer = Buffer.allocUnsafeSlow(INITIAL_BYTES);
  /** The offset at which the message begins so far. */
  #at = INITIAL_BYTES;

  reset(): void {
    this.#at = this.#buffer.length;
  }

  /** Returns a copy of the written bytes. */
  take(): Buffer {
    return Buffer.from(this.#buffer.subarray(this.#at));
  }

  /** The number of bytes so far. Two values show whether something was written in between. */
  get length(): number {
    return this.#buffer.length - this.#at;
  }

  #reserve(bytes: number): void {
    if (this.#at >= bytes) return;
    const used = this.length;
    const larger = Buffer.allocUnsafeSlow(Math.max(this.#buffer.length * 2, used + bytes));
    this.#buffer.copy(larger, larger.length - used, this.#at);
    this.#buffer = larger;
    this.#at = larger.length - used;
  }

  /** Writes an unsigned number below 2^53. */
  varint(value: number): void {
    this.#reserve(10);
    if (value < 128) {
      this.#at -= 1;
      this.#buffer[this.#at] = value;
      return;
    }
    let size = 1;
    for (let remaining = value; remaining >= 128; remaining = Math.floor(remaining / 128)) size += 1;
    this.#at -= size;
    let at = this.#at;
    let remaining = value;
    while (remaining >= 128) {
      this.#buffer[at] = (remaining % 128) + 128;
      remaining = Math.floor(remaining / 128);
      at += 1;
    }
    this.#buffer[at] = remaining;
  }

  /** Writes a signed integer like int32 and int64. A negative one takes ten bytes. */
  integer(value: number | bigint): void {
    if (typeof value === 'number' && value >= 0) return this.varint(value);
    let remaining = BigInt.asUintN(64, BigInt(value));
    const bytes: number[] = [];
    while (remaining >= 128n) {
      bytes.push(Number(remaining & 127n) | 128);
      remaining >>= 7n;
    }
    bytes.push(Number(remaining));
    this.#reserve(bytes.length);
    this.#at -= bytes.length;
    this.#buffer.set(bytes, this.#at);
  }

  double(value: number): void {
    this.#reserve(8);
    this.#at -= 8;
    this.#buffer.writeDoubleLE(value, this.#at);
  }

  /** Writes a text with its length. */
  string(value: string): void {
    const { length } = value;
    if (length < 128) {
      this.#reserve(length + 1);
      const start = this.#at - length;
      let index = 0;
      for (; index < length; index += 1) {
        const code = value.charCodeAt(index);
        if (code > 127) break;
        this.#buffer[start + index] = code;
      }
      if (index === length) {
        this.#at = start - 1;
        this.#buffer[this.#at] = length;
        return;
      }
    }
    const size = Buffer.byteLength(value);
    this.#reserve(size);
    this.#at -= size;
    this.#buffer.write(value, this.#at);
    this.varint(size);
  }

  /** Writes bytes with their length. */
  bytes(value: Uint8Array): void {
    this.raw(value);
    this.varint(value.length);
  }

  /** Writes finished fields. */
  raw(value: Uint8Array): void {
    this.#reserve(value.length);
    this.#at -= value.length;
    this.#buffer.set(value, this.#at);
  }

  /** Turns what was written since `before` (a `length`) into the payload of a field. */
  header(tag: number, before: number): void {
    this.varint(this.length - before);
    this.varint(tag);
  }
}

/** Returns `(number << 3) | type`. */
export function tagOf(number: number, wireType: number): number {
  return number * 8 + wireType;
}

/** Returns the error for bytes that are no message: 400. */
export function malformed(why: string): StatusError {
  return newBadRequest(`the body is not a valid protobuf message: ${why}`);
}

/** The texts are those of Go's generated decoders, which kube-apiserver passes on to clients. */
const wireErrors = {
  end: () => newBadRequest('unexpected EOF'),
  overflow: () => newBadRequest('proto: integer overflow'),
  negativeLength: () => newBadRequest('proto: negative length found during unmarshaling'),
  endOfGroup: () => newBadRequest('proto: unexpected end of group'),
  wireType: (type: number) => newBadRequest(`proto: illegal wireType ${type}`),
} as const;

/** The Go names of a message and of its fields by number, for errors. */
export interface MessageNames {
  readonly message: string;
  readonly fields: ReadonlyMap<number, string>;
}

/** Reads a message. Throws a 400 for bytes that are truncated, too long or nested too deeply, and for too many values. */
export class ProtobufReader {
  readonly #bytes: Buffer;
  #at: number;
  #end: number;
  #depth = 0;
  readonly #maxValues: number;
  #left: number;

  /** `maxValues` limits the number of values of a message from a client. */
  constructor(bytes: Uint8Array, maxValues = Infinity) {
    this.#maxValues = maxValues;
    this.#left = READS_PER_VALUE * maxValues;
    this.#bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#at = 0;
    this.#end = bytes.byteLength;
  }

  /** Whether the open message has no more bytes. */
  get done(): boolean {
    return this.#at >= this.#end;
  }

  /** Reads a varint. One above 2^53 loses precision. */
  varint(): number {
    const first = this.#bytes[this.#at] ?? 0;
    if (first < 128 && this.#at < this.#end) {
      this.#at += 1;
      return first;
    }
    let value = 0;
    let factor = 1;
    for (let index = 0; index < 10; index += 1) {
      if (this.#at >= this.#end) throw wireErrors.end();
      const byte = this.#bytes[this.#at] ?? 0;
      this.#at += 1;
      value += (byte & 127) * factor;
      if (byte < 128) return value;
      factor *= 128;
    }
    throw wireErrors.overflow();
  }

  /** Reads an int32 field, which is encoded with 64 bits and truncated. */
  int32(): number {
    this.#count();
    return Number(BigInt.asIntN(32, this.#uint64()));
  }

  /** Reads an int64: a number if it is a safe integer, else a bigint. */
  int64(): number | bigint {
    this.#count();
    const value = BigInt.asIntN(64, this.#uint64());
    const number = Number(value);
    return Number.isSafeInteger(number) ? number : value;
  }

  #uint64(): bigint {
    const start = this.#at;
    const short = this.varint();
    if (this.#at - start <= 7) return BigInt(short);
    let value = 0n;
    for (let at = start; at < this.#at; at += 1)
      value |= BigInt((this.#bytes[at] ?? 0) & 127) << BigInt(7 * (at - start));
    return value;
  }

  bool(): boolean {
    this.#count();
    return this.varint() !== 0;
  }

  double(): number {
    this.#count();
    this.#need(8);
    this.#at += 8;
    return this.#bytes.readDoubleLE(this.#at - 8);
  }

  string(): string {
    const start = this.#passBytes();
    return this.#bytes.toString('utf8', start, this.#at);
  }

  /** Reads a text that must be valid UTF-8, as proto3 demands and Go checks. */
  validString(): string {
    const start = this.#passBytes();
    const text = this.#bytes.toString('utf8', start, this.#at);
    // Invalid bytes are read as this character, which can also be in the text itself.
    if (text.includes('\uFFFD') && !isUtf8(this.#bytes.subarray(start, this.#at))) throw malformed('invalid UTF-8');
    return text;
  }

  /** Returns a view of the bytes without a copy. */
  bytes(): Buffer {
    const start = this.#passBytes();
    return this.#bytes.subarray(start, this.#at);
  }

  /** Opens the following message, at whose end reads stop. Pass the result to `leave`. */
  enter(): number {
    this.#count();
    const size = this.varint();
    this.#need(size);
    this.#depth += 1;
    if (this.#depth > MAX_DEPTH) throw malformed('nested too deep');
    const around = this.#end;
    this.#end = this.#at + size;
    return around;
  }

  /** Ends a message that `enter` began: the reader goes on in the message around it, which ends at `around`. */
  leave(around: number): void {
    if (this.#at !== this.#end) throw malformed('wrong length');
    this.#end = around;
    this.#depth -= 1;
  }

  /**
   * Opens the following entry of a map and returns its end. Like Go's decoders, key and value may reach beyond the entry up to
   * the end of the message around it. Read while `isWithin(end)`, and pass the end to `leaveEntry`.
   */
  enterEntry(): number {
    this.#count();
    const size = this.varint();
    this.#need(size);
    return this.#at + size;
  }

  isWithin(end: number): boolean {
    return this.#at < end;
  }

  /** Goes on behind the map entry that ends at `end`. */
  leaveEntry(end: number): void {
    this.#at = end;
  }

  /** Skips a field of a map entry that is neither key nor value. */
  skipInEntry(tag: number, end: number): void {
    this.skip(tag);
    if (this.#at > end) throw wireErrors.end();
  }

  /** Skips a field that no branch of the reader took. Throws if the message has the field with another wire type. */
  skipUnknown(tag: number, names: MessageNames): void {
    const wireType = tag % 8;
    const number = Math.floor(tag / 8) | 0;
    if (wireType === END_GROUP) throw newBadRequest(`proto: ${names.message}: wiretype end group for non-group`);
    if (number <= 0) throw newBadRequest(`proto: ${names.message}: illegal tag ${number} (wire type ${tag})`);
    const field = names.fields.get(number);
    if (field !== undefined) throw newBadRequest(`proto: wrong wireType = ${wireType} for field ${field}`);
    this.skip(tag);
  }

  /** Skips the field whose tag was read, and with a group all its fields. Throws a 400 for a group that did not begin. */
  skip(tag: number): void {
    let depth = 0;
    for (let next = tag; ; next = this.varint()) {
      if (next % 8 === START_GROUP) depth += 1;
      else if (next % 8 === END_GROUP) depth -= 1;
      else this.#skipValue(next % 8);
      if (depth < 0) throw wireErrors.endOfGroup();
      if (depth === 0) return;
    }
  }

  #skipValue(wireType: number): void {
    switch (wireType) {
      case VARINT:
        this.varint();
        return;
      case FIXED64:
        this.#need(8);
        this.#at += 8;
        return;
      case BYTES:
        this.#passBytes();
        return;
      case FIXED32:
        this.#need(4);
        this.#at += 4;
        return;
      default:
        throw wireErrors.wireType(wireType);
    }
  }

  #count(): void {
    this.#left -= 1;
    if (this.#left < 0) throw malformed(tooManyValues(this.#maxValues));
  }

  /** Reads a length and moves on behind as many bytes. Returns the offset at which they begin. */
  #passBytes(): number {
    this.#count();
    const size = this.varint();
    this.#need(size);
    const start = this.#at;
    this.#at += size;
    return start;
  }

  #need(bytes: number): void {
    if (bytes >= TWO_63) throw wireErrors.negativeLength();
    if (bytes > this.#end - this.#at) throw wireErrors.end();
  }
}
