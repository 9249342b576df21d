/**
 * Reads and writes frames of SPDY/3.1 (draft-mbelshe-httpbis-spdy-00), as far as the streaming protocols of the node agent use
 * them.
 */

/** The types of control frames (SPDY/3.1, section 2.6). */
export const FRAME = {
  synStream: 1,
  synReply: 2,
  rstStream: 3,
  settings: 4,
  ping: 6,
  goAway: 7,
  headers: 8,
  windowUpdate: 9,
} as const;
/** The flag of a frame after which its sender sends no more on the stream. */
export const FLAG_FIN = 1;
/** The status codes of RST_STREAM frames. */
export const STATUS = { protocolError: 1, invalidStream: 2, refusedStream: 3, cancel: 5 } as const;

/** Separates the id of a stream from the bit before it. */
export const STREAM_ID_MASK = 0x7fffffff;
/** The number of bytes of a frame's payload before its header block. */
export const FIXED_BYTES = { synStream: 10, synReply: 4, headers: 4 } as const;

const VERSION = 3;
const HEADER_BYTES = 8;

/**
 * A decoded control frame, or a piece of a data frame, whose last one alone may have `fin`. `kind` is the type of a control
 * frame, such as 1 for SYN_STREAM.
 */
export type Frame =
  | { readonly type: 'data'; readonly streamId: number; readonly fin: boolean; readonly payload: Buffer }
  | { readonly type: 'control'; readonly kind: number; readonly flags: number; readonly payload: Buffer };

const MAX_HEADERS = 1000;
/** The longest control frame. */
const MAX_CONTROL_BYTES = 1 << 16;

/**
 * Splits received bytes into frames. The payload of a data frame comes in several pieces, as it arrives: a frame may have 16
 * MiB, and every connection could hold one that is incomplete. Throws for control frames that are not SPDY/3, or too long.
 */
export class FrameReader {
  /** The start of an incomplete header or control frame, in a buffer that grows by doubling. */
  #incomplete: Buffer = Buffer.alloc(0);
  #incompleteBytes = 0;
  #neededBytes = HEADER_BYTES;
  /** The data frame whose payload is being received. */
  #data: { readonly streamId: number; readonly fin: boolean; leftBytes: number } | undefined;

  /** Takes the next bytes, and yields the frames that they complete, and the pieces of data frames. */
  *push(chunk: Buffer): Generator<Frame> {
    let pending = chunk;
    for (;;) {
      if (this.#data !== undefined) {
        if (pending.length === 0 && this.#data.leftBytes > 0) return;
        const { data, payload } = this.#piece(this.#data, pending);
        pending = pending.subarray(payload.length);
        yield data;
        continue;
      }
      const joined = this.#joined(pending);
      if (joined === undefined) return;
      const first = joined.readUInt32BE(0);
      const flags = joined.readUInt8(4);
      const payloadBytes = joined.readUIntBE(5, 3);
      if (first >>> 31 === 0) {
        this.#data = { streamId: first & STREAM_ID_MASK, fin: (flags & FLAG_FIN) !== 0, leftBytes: payloadBytes };
        pending = joined.subarray(HEADER_BYTES);
        continue;
      }
      const version = (first >>> 16) & 0x7fff;
      if (version !== VERSION) throw new Error(`SPDY version ${version} is not supported`);
      if (payloadBytes > MAX_CONTROL_BYTES) throw new Error(`a SPDY control frame has ${payloadBytes} bytes`);
      const endBytes = HEADER_BYTES + payloadBytes;
      if (joined.length < endBytes) {
        this.#storeIncomplete(joined, endBytes);
        return;
      }
      pending = joined.subarray(endBytes);
      yield { type: 'control', kind: first & 0xffff, flags, payload: joined.subarray(HEADER_BYTES, endBytes) };
    }
  }

  #piece(
    frame: { readonly streamId: number; readonly fin: boolean; leftBytes: number },
    pending: Buffer,
  ): { readonly data: Frame; readonly payload: Buffer } {
    const payload = pending.subarray(0, frame.leftBytes);
    frame.leftBytes -= payload.length;
    const isLast = frame.leftBytes === 0;
    if (isLast) this.#data = undefined;
    return { data: { type: 'data', streamId: frame.streamId, fin: frame.fin && isLast, payload }, payload };
  }

  #storeIncomplete(bytes: Buffer, neededBytes: number): void {
    this.#incomplete = Buffer.from(bytes);
    this.#incompleteBytes = bytes.length;
    this.#neededBytes = neededBytes;
  }

  /** Returns the kept bytes with the chunk, or `undefined` while they are too few. */
  #joined(chunk: Buffer): Buffer | undefined {
    if (this.#incompleteBytes === 0 && chunk.length >= HEADER_BYTES) return chunk;
    const bytes = this.#incompleteBytes + chunk.length;
    if (bytes > this.#incomplete.length) {
      const grown = Buffer.alloc(Math.max(bytes, 2 * this.#incomplete.length));
      this.#incomplete.copy(grown, 0, 0, this.#incompleteBytes);
      this.#incomplete = grown;
    }
    chunk.copy(this.#incomplete, this.#incompleteBytes);
    this.#incompleteBytes = bytes;
    if (bytes < this.#neededBytes) return undefined;
    const joined = this.#incomplete.subarray(0, bytes);
    this.#incomplete = Buffer.alloc(0);
    this.#incompleteBytes = 0;
    this.#neededBytes = HEADER_BYTES;
    return joined;
  }
}

/** Encodes a control frame of version 3. The payload must be shorter than 16 MiB. */
export function controlFrame(kind: number, flags: number, payload: Buffer): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt32BE((0x80000000 | (VERSION << 16) | kind) >>> 0, 0);
  header.writeUInt8(flags, 4);
  header.writeUIntBE(payload.length, 5, 3);
  return Buffer.concat([header, payload]);
}

/** Encodes the header of a data frame. The payload is sent after it by itself, so that it is not copied. */
export function dataHeader(streamId: number, fin: boolean, length: number): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt32BE(streamId & STREAM_ID_MASK, 0);
  header.writeUInt8(fin ? FLAG_FIN : 0, 4);
  header.writeUIntBE(length, 5, 3);
  return header;
}

/**
 * Encodes a block of headers, before its compression. Header names are in lower case, and NUL separates several values of a
 * name.
 */
export function encodeHeaders(headers: Readonly<Record<string, string>>): Buffer {
  const word = (value: number): Buffer => {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32BE(value);
    return bytes;
  };
  const entries = Object.entries(headers);
  const parts: Buffer[] = [word(entries.length)];
  for (const [name, value] of entries) {
    const key = Buffer.from(name.toLowerCase());
    const text = Buffer.from(value);
    parts.push(word(key.length), key, word(text.length), text);
  }
  return Buffer.concat(parts);
}

/** Decodes a name/value header block of SPDY/3.1 (section 2.6.10). Throws if it is cut off or has more than 1000 headers. */
export function decodeHeaders(block: Buffer): Record<string, string> {
  const headers: Record<string, string> = Object.create(null) as Record<string, string>;
  let at = 0;
  const number = (): number => {
    const value = block.readUInt32BE(at);
    at += 4;
    return value;
  };
  const text = (): string => {
    const length = number();
    if (at + length > block.length) throw new Error('a SPDY header block is cut off');
    const value = block.toString('utf8', at, at + length);
    at += length;
    return value;
  };
  const count = number();
  if (count > MAX_HEADERS) throw new Error('a SPDY header block has too many headers');
  for (let index = 0; index < count; index++) {
    const name = text();
    headers[name] = text();
  }
  return headers;
}
