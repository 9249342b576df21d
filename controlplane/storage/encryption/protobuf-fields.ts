/**
 * Reads and writes the few protobuf field types that key management needs: bytes, strings, maps and integers. Unknown fields of
 * these types are ignored.
 */

/** The encoded values by field number, in the order of the message. */
export type Fields = ReadonlyMap<number, readonly Buffer[]>;

/** The length of an encoded integer of 64 bits, of which a byte has 7. */
const MAX_VARINT_BYTES = 10;

function varint(value: number): Buffer {
  const bytes: number[] = [];
  let remaining = value;
  while (remaining > 127) {
    bytes.push((remaining % 128) | 128);
    remaining = Math.floor(remaining / 128);
  }
  bytes.push(remaining);
  return Buffer.from(bytes);
}

/** Writes a length-delimited field. Writes nothing for an empty value. */
export function bytesField(number: number, value: Buffer | string): Buffer {
  const bytes = typeof value === 'string' ? Buffer.from(value) : value;
  return bytes.length === 0 ? bytes : delimited(number, bytes);
}

function delimited(number: number, bytes: Buffer): Buffer {
  return Buffer.concat([varint(number * 8 + 2), varint(bytes.length), bytes]);
}

/** Encodes an enum or an integer. The zero value is left out, as proto3 requires. */
export function enumField(number: number, value: number): Buffer {
  return value === 0 ? Buffer.alloc(0) : Buffer.concat([varint(number * 8), varint(value)]);
}

/** Encodes a map from strings to bytes, one entry per field. */
export function mapField(number: number, map: ReadonlyMap<string, Buffer>): Buffer {
  return Buffer.concat(
    [...map].map(([key, value]) => delimited(number, Buffer.concat([bytesField(1, key), bytesField(2, value)]))),
  );
}

/**
 * Reads length-delimited fields by number, and varints as bytes. Throws if the message is truncated, or has a field of another
 * wire type or an integer of more than 64 bits.
 */
export function readFields(bytes: Buffer): Fields {
  const fields = new Map<number, Buffer[]>();
  let at = 0;
  const readVarint = (): number => {
    let value = 0;
    for (let count = 0; count < MAX_VARINT_BYTES; count += 1) {
      const byte = bytes[at++];
      if (byte === undefined) throw new Error('a message is truncated');
      value += (byte & 127) * 128 ** count;
      if (byte < 128) return value;
    }
    throw new Error('a message has an integer that is too long');
  };
  while (at < bytes.length) {
    const tag = readVarint();
    const number = Math.floor(tag / 8);
    let value: Buffer;
    if (tag % 8 === 2) {
      const length = readVarint();
      if (at + length > bytes.length) throw new Error('a message is truncated');
      value = bytes.subarray(at, at + length);
      at += length;
    } else if (tag % 8 === 0) value = varint(readVarint());
    else throw new Error('a message has a field of an unexpected type');
    const before = fields.get(number);
    if (before === undefined) fields.set(number, [value]);
    else before.push(value);
  }
  return fields;
}

/** Returns the last value of a field, because only this one counts in protobuf. It is empty if the field is absent. */
export const bytesOf = (fields: Fields, number: number): Buffer => fields.get(number)?.at(-1) ?? Buffer.alloc(0);
/** Returns the bytes of a field as UTF-8 text. */
export const textOf = (fields: Fields, number: number): string => bytesOf(fields, number).toString('utf8');

/** Decodes a map from strings to bytes. */
export function mapOf(fields: Fields, number: number): Map<string, Buffer> {
  return new Map(
    (fields.get(number) ?? []).map((entry) => {
      const pair = readFields(entry);
      return [textOf(pair, 1), bytesOf(pair, 2)];
    }),
  );
}
