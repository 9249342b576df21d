/** Frames of SPDY/3.1 (draft-mbelshe-httpbis-spdy-00): as much as the streaming protocols of the node agent use. */

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
export const FLAG_FIN = 1;
export const STATUS = { protocolError: 1, invalidStream: 2, refusedStream: 3, cancel: 5 } as const;

const VERSION = 3;
const HEADER_BYTES = 8;
/** Frames of clients are small; a larger one is an attack or another protocol. */
const MAX_FRAME_BYTES = 1 << 24;

export type Frame =
  | { readonly type: 'data'; readonly streamId: number; readonly fin: boolean; readonly payload: Buffer }
  | { readonly type: 'control'; readonly kind: number; readonly flags: number; readonly payload: Buffer };

/** Cuts bytes into frames, whatever pieces they come in. Throws on what is no SPDY/3. */
export class FrameReader {
  #pending: Buffer = Buffer.alloc(0);

  *push(chunk: Buffer): Generator<Frame> {
    this.#pending = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    while (this.#pending.length >= HEADER_BYTES) {
      const first = this.#pending.readUInt32BE(0);
      const flags = this.#pending.readUInt8(4);
      const length = this.#pending.readUIntBE(5, 3);
      if (length > MAX_FRAME_BYTES) throw new Error(`a SPDY frame of ${length} bytes is too large`);
      if (this.#pending.length < HEADER_BYTES + length) return;
      const payload = this.#pending.subarray(HEADER_BYTES, HEADER_BYTES + length);
      this.#pending = this.#pending.subarray(HEADER_BYTES + length);
      if (first >>> 31 === 0) {
        yield { type: 'data', streamId: first & 0x7fffffff, fin: (flags & FLAG_FIN) !== 0, payload };
        continue;
      }
      const version = (first >>> 16) & 0x7fff;
      if (version !== VERSION) throw new Error(`SPDY version ${version} is not spoken here`);
      yield { type: 'control', kind: first & 0xffff, flags, payload };
    }
  }
}

export function controlFrame(kind: number, flags: number, payload: Buffer): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt32BE((0x80000000 | (VERSION << 16) | kind) >>> 0, 0);
  header.writeUInt8(flags, 4);
  header.writeUIntBE(payload.length, 5, 3);
  return Buffer.concat([header, payload]);
}

/** Header and payload apart, so that the payload is not copied. */
export function dataHeader(streamId: number, fin: boolean, length: number): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt32BE(streamId & 0x7fffffff, 0);
  header.writeUInt8(fin ? FLAG_FIN : 0, 4);
  header.writeUIntBE(length, 5, 3);
  return header;
}

/** Names are lower case; several values stand with NUL between them. */
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
  if (count > 1000) throw new Error('a SPDY header block has too many headers');
  for (let index = 0; index < count; index++) {
    const name = text();
    headers[name] = text();
  }
  return headers;
}
