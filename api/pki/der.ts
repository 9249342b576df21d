/**
 * Reads and writes the few DER types (Distinguished Encoding Rules) that X.509 needs.
 *
 * The writer returns buffers that can be nested. The reader returns views, and throws `DerError` for invalid lengths.
 */
import { isUtf8 } from 'node:buffer';
import { utcDate } from '../schema/time.ts';

/** The bytes are not valid DER, or not of the expected type. */
export class DerError extends Error {
  override readonly name = 'DerError';
}

/** The universal tags that certificates use. */
export const TAG = {
  boolean: 0x01,
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  null: 0x05,
  oid: 0x06,
  utf8String: 0x0c,
  printableString: 0x13,
  ia5String: 0x16,
  utcTime: 0x17,
  generalizedTime: 0x18,
  sequence: 0x30,
  set: 0x31,
} as const;

/** Returns the tag `[n]` of an element that contains other elements. */
export const contextTag = (n: number): number => 0xa0 | n;

/** Returns the tag `[n]` of an element that contains a value. */
export const primitiveContextTag = (n: number): number => 0x80 | n;

/** Encodes tag, length and contents. */
export function tlv(tag: number, ...contents: readonly Uint8Array[]): Buffer {
  let length = 0;
  for (const part of contents) length += part.length;
  const header = [tag];
  if (length < 0x80) header.push(length);
  else {
    const bytes: number[] = [];
    for (let remaining = length; remaining > 0; remaining = Math.floor(remaining / 256)) bytes.unshift(remaining % 256);
    header.push(0x80 | bytes.length, ...bytes);
  }
  return Buffer.concat([Buffer.from(header), ...contents]);
}

/** Encodes a SEQUENCE of encoded elements. */
export const sequence = (...contents: readonly Uint8Array[]): Buffer => tlv(TAG.sequence, ...contents);
/** Encodes an OCTET STRING. */
export const octetString = (content: Uint8Array): Buffer => tlv(TAG.octetString, content);
/** Encodes a BOOLEAN. */
export const boolean = (value: boolean): Buffer => tlv(TAG.boolean, Buffer.from([value ? 0xff : 0]));
/** Encodes a UTF8String. */
export const utf8String = (text: string): Buffer => tlv(TAG.utf8String, Buffer.from(text, 'utf8'));
/** Encodes a NULL. */
export const nullValue = (): Buffer => tlv(TAG.null);

/** Encodes a SET OF, whose elements DER orders by their bytes. */
export function setOf(...contents: readonly Buffer[]): Buffer {
  return tlv(TAG.set, ...[...contents].sort(Buffer.compare));
}

/** Encodes a BIT STRING, with 0 unused bits by default. */
export function bitString(content: Uint8Array, unusedBits = 0): Buffer {
  return tlv(TAG.bitString, Buffer.from([unusedBits]), content);
}

/** Encodes an INTEGER, given as the bytes of an unsigned big-endian number or as a number below 2^48. */
export function integer(value: Uint8Array | number): Buffer {
  let bytes = typeof value === 'number' ? numberBytes(value) : Buffer.from(value);
  while (bytes.length > 1 && bytes[0] === 0) bytes = bytes.subarray(1);
  const first = bytes[0];
  if (first === undefined) return tlv(TAG.integer, Buffer.from([0]));
  return first >= 0x80 ? tlv(TAG.integer, Buffer.from([0]), bytes) : tlv(TAG.integer, bytes);
}

function numberBytes(value: number): Buffer {
  const out = Buffer.alloc(6);
  out.writeUIntBE(value, 0, 6);
  return out;
}

/** Encodes an OBJECT IDENTIFIER that is given in its dotted form. */
export function oid(dotted: string): Buffer {
  const [first = 0, second = 0, ...remaining] = dotted.split('.').map(Number);
  const bytes: number[] = [];
  for (const part of [first * 40 + second, ...remaining]) {
    const group = [part % 128];
    for (let left = Math.floor(part / 128); left > 0; left = Math.floor(left / 128)) group.unshift((left % 128) | 0x80);
    bytes.push(...group);
  }
  return tlv(TAG.oid, Buffer.from(bytes));
}

/** Encodes UTCTime through 2049 and GeneralizedTime after that (RFC 5280, 4.1.2.5). */
export function time(epochMs: number): Buffer {
  const digits = new Date(epochMs).toISOString().replace(/[-:T]|\.\d+/g, '');
  return Number(digits.slice(0, 4)) < 2050
    ? tlv(TAG.utcTime, Buffer.from(digits.slice(2), 'ascii'))
    : tlv(TAG.generalizedTime, Buffer.from(digits, 'ascii'));
}

/** A decoded element; the buffers are views. */
export interface DerElement {
  readonly tag: number;
  readonly content: Buffer;
  /** The header and the content. */
  readonly whole: Buffer;
}

/** Reads one element at the start of `data` and ignores the rest. */
export function readElement(data: Buffer): DerElement {
  const tag = data[0];
  const short = data[1];
  if (tag === undefined || short === undefined) throw new DerError('data is truncated');
  if ((tag & 0x1f) === 0x1f) throw new DerError('tags above 30 are not supported');
  let start = 2;
  let length = short;
  if (short === 0x80) throw new DerError('an indefinite length is not DER');
  if (short > 0x80) {
    const count = short & 0x7f;
    if (count > 4 || data.length < 2 + count) throw new DerError('a length is invalid');
    length = data.readUIntBE(2, count);
    if (length < 0x80 || (count > 1 && data[2] === 0)) throw new DerError('a length is not minimal');
    start += count;
  }
  const end = start + length;
  if (end > data.length) throw new DerError('data is truncated');
  return { tag, content: data.subarray(start, end), whole: data.subarray(0, end) };
}

/** Reads a sequence of elements that fills `content`. */
export function readAll(content: Buffer): DerElement[] {
  const elements: DerElement[] = [];
  for (let remaining = content; remaining.length > 0;) {
    const element = readElement(remaining);
    elements.push(element);
    remaining = remaining.subarray(element.whole.length);
  }
  return elements;
}

/** Reads the only element of `data`. Throws `DerError` if it has another tag or does not fill `data`. */
export function readSingle(data: Buffer, tag: number): DerElement {
  const element = readElement(data);
  if (element.tag !== tag) throw new DerError(`found tag ${element.tag}, expected ${tag}`);
  if (element.whole.length !== data.length) throw new DerError('trailing data');
  return element;
}

/** Returns the element. Throws `DerError` if it is missing or has another tag. */
export function expect(element: DerElement | undefined, tag: number): DerElement {
  if (element === undefined) throw new DerError('an element is missing');
  if (element.tag !== tag) throw new DerError(`found tag ${element.tag}, expected ${tag}`);
  return element;
}

/** Returns an object identifier in its dotted form. Throws `DerError` for another tag or invalid content. */
export function readOid(element: DerElement): string {
  expect(element, TAG.oid);
  if (((element.content.at(-1) ?? 0x80) & 0x80) !== 0) throw new DerError('an object identifier is truncated');
  const parts: number[] = [];
  let value = 0;
  for (const byte of element.content) {
    value = value * 128 + (byte & 0x7f);
    if (value > Number.MAX_SAFE_INTEGER / 256) throw new DerError('an object identifier is too large');
    if ((byte & 0x80) === 0) {
      parts.push(value);
      value = 0;
    }
  }
  const [head = 0, ...remaining] = parts;
  const first = Math.min(Math.floor(head / 40), 2);
  return [first, head - first * 40, ...remaining].join('.');
}

/** Returns the value of a BOOLEAN. Throws `DerError` unless the element is one with one byte. */
export function readBoolean(element: DerElement): boolean {
  expect(element, TAG.boolean);
  if (element.content.length !== 1) throw new DerError('a BOOLEAN must have one byte');
  return element.content[0] !== 0;
}

const PRINTABLE = /^[A-Za-z0-9 '()+,\-./:=?*&]*$/;

/** Reads text of any string type that names use. Throws `DerError` for another type or invalid characters. */
export function readText(element: DerElement): string {
  switch (element.tag) {
    case TAG.printableString: {
      const text = element.content.toString('latin1');
      if (!PRINTABLE.test(text)) throw new DerError('a PrintableString contains invalid characters');
      return text;
    }
    case TAG.utf8String: {
      if (!isUtf8(element.content)) throw new DerError('a UTF8String contains invalid bytes');
      return element.content.toString();
    }
    case TAG.ia5String:
    case 0x12: // NumericString
    case 0x14: // TeletexString
    case 0x1a: // VisibleString
      return element.content.toString('latin1');
    case 0x1e: {
      if (element.content.length % 2 !== 0) throw new DerError('a BMPString has an odd length');
      return Buffer.from(element.content).swap16().toString('utf16le');
    }
    default:
      throw new DerError(`tag ${element.tag} is not a string type`);
  }
}

/** Returns the milliseconds since the epoch of a UTCTime or GeneralizedTime. Throws `DerError` for anything else. */
export function readTime(element: DerElement): number {
  const text = element.content.toString('latin1');
  let full: string;
  if (element.tag === TAG.utcTime) full = `${Number(text.slice(0, 2)) >= 50 ? '19' : '20'}${text}`;
  else if (element.tag === TAG.generalizedTime) full = text;
  else throw new DerError(`tag ${element.tag} is not a time type`);
  const match = /^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z$/.exec(full);
  if (match === null) throw new DerError('a time is malformed');
  const [year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0] = match.slice(1).map(Number);
  const date = utcDate(year, month, day);
  if (date === undefined || hour > 23 || minute > 59 || second > 59) throw new DerError('a time is malformed');
  return (date + hour * 3600 + minute * 60 + second) * 1000;
}
