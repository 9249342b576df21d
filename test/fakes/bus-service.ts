/**
 * Implements a service on a D-Bus, with as much of the protocol as tests need to replace systemd on a private bus. It responds
 * with a string, an object path or nothing.
 */
import { connect, type Socket } from 'node:net';

export interface BusCall {
  readonly path: string;
  readonly member: string;
}

/** The answer to a call: a string (`s`) or an object path (`o`), in a variant if the method returns one, or nothing. */
export type BusAnswer = { readonly signature: 's' | 'o'; readonly value: string; readonly variant?: true } | undefined;

const METHOD_CALL = 1;
const METHOD_RETURN = 2;
const FIELD = { path: 1, interface: 2, member: 3, replySerial: 5, destination: 6, sender: 7, signature: 8 } as const;
const BUS = 'org.freedesktop.DBus';

/** Encodes values one after the other, each with its alignment. */
class Marshal {
  #bytes: Buffer = Buffer.alloc(0);

  align(to: number): this {
    const short = (to - (this.#bytes.length % to)) % to;
    this.#bytes = Buffer.concat([this.#bytes, Buffer.alloc(short)]);
    return this;
  }

  byte(value: number): this {
    this.#bytes = Buffer.concat([this.#bytes, Buffer.from([value])]);
    return this;
  }

  uint32(value: number): this {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32LE(value);
    this.align(4);
    this.#bytes = Buffer.concat([this.#bytes, bytes]);
    return this;
  }

  string(value: string): this {
    this.uint32(Buffer.byteLength(value));
    this.#bytes = Buffer.concat([this.#bytes, Buffer.from(`${value}\0`)]);
    return this;
  }

  signature(value: string): this {
    this.byte(value.length);
    this.#bytes = Buffer.concat([this.#bytes, Buffer.from(`${value}\0`)]);
    return this;
  }

  take(): Buffer {
    return this.#bytes;
  }
}

type HeaderField = readonly [code: number, signature: 's' | 'o' | 'g' | 'u', value: string | number];

function message(type: number, serial: number, fields: readonly HeaderField[], body: Buffer = Buffer.alloc(0)): Buffer {
  // The alignment counts from the start of the message, and the array follows sixteen bytes.
  const array = new Marshal();
  for (const [code, signature, value] of fields) {
    array.align(8).byte(code).signature(signature);
    if (typeof value === 'number') array.uint32(value);
    else if (signature === 'g') array.signature(value);
    else array.string(value);
  }
  const list = array.take();
  const head = new Marshal().byte(0x6c).byte(type).byte(0).byte(1).uint32(body.length).uint32(serial);
  const header = Buffer.concat([head.uint32(list.length).take(), list]);
  return Buffer.concat([header, Buffer.alloc((8 - (header.length % 8)) % 8), body]);
}

interface Received extends BusCall {
  readonly type: number;
  readonly serial: number;
  readonly sender: string;
}

/** Returns the first message and the remaining bytes, or `undefined` if the message is incomplete. */
function read(bytes: Buffer): { readonly received: Received; readonly rest: Buffer } | undefined {
  if (bytes.length < 16) return undefined;
  const fieldsEnd = 16 + bytes.readUInt32LE(12);
  const end = Math.ceil(fieldsEnd / 8) * 8 + bytes.readUInt32LE(4);
  if (bytes.length < end) return undefined;
  const texts: Record<number, string> = {};
  for (let at = 16; at < fieldsEnd;) {
    at = Math.ceil(at / 8) * 8;
    const code = bytes.readUInt8(at);
    const signature = bytes.toString('latin1', at + 2, at + 2 + bytes.readUInt8(at + 1));
    at += 3 + signature.length;
    if (signature === 'g') {
      at += 2 + bytes.readUInt8(at);
      continue;
    }
    at = Math.ceil(at / 4) * 4;
    const value = bytes.readUInt32LE(at);
    at += 4;
    if (signature !== 's' && signature !== 'o') continue;
    texts[code] = bytes.toString('utf8', at, at + value);
    at += value + 1;
  }
  const { [FIELD.path]: path = '', [FIELD.member]: member = '', [FIELD.sender]: sender = '' } = texts;
  const received = { type: bytes.readUInt8(1), serial: bytes.readUInt32LE(8), path, member, sender };
  return { received, rest: bytes.subarray(end) };
}

function bodyOf(answer: BusAnswer): { readonly signature: string; readonly body: Buffer } | undefined {
  if (answer === undefined) return undefined;
  const body = new Marshal();
  if (answer.variant === true) body.signature(answer.signature);
  return { signature: answer.variant === true ? 'v' : answer.signature, body: body.string(answer.value).take() };
}

/** Resolves when the service owns the name. The service ends with the socket. */
export async function serveOnBus(
  socketPath: string,
  name: string,
  answer: (call: BusCall) => BusAnswer,
): Promise<Socket> {
  const socket = connect(socketPath);
  let serial = 0;
  const call = (member: string, signature?: string, body?: Buffer): void => {
    const fields: HeaderField[] = [
      [FIELD.path, 'o', '/org/freedesktop/DBus'],
      [FIELD.interface, 's', BUS],
      [FIELD.member, 's', member],
      [FIELD.destination, 's', BUS],
      ...(signature === undefined ? [] : [[FIELD.signature, 'g', signature] as const]),
    ];
    socket.write(message(METHOD_CALL, ++serial, fields, body));
  };
  const uid = Buffer.from(String(process.getuid?.() ?? 0)).toString('hex');
  socket.write(`\0AUTH EXTERNAL ${uid}\r\n`);
  await new Promise<void>((resolve, reject) => {
    socket.once('error', reject);
    socket.once('data', () => resolve());
  });
  let pending: Buffer = Buffer.alloc(0);
  socket.on('data', (chunk: Buffer) => {
    pending = Buffer.concat([pending, chunk]);
    for (let next = read(pending); next !== undefined; next = read(pending)) {
      pending = next.rest;
      const { type, serial: replySerial, sender, path, member } = next.received;
      if (type !== METHOD_CALL) continue;
      const body = bodyOf(answer({ path, member }));
      const fields: HeaderField[] = [
        [FIELD.replySerial, 'u', replySerial],
        [FIELD.destination, 's', sender],
        ...(body === undefined ? [] : [[FIELD.signature, 'g', body.signature] as const]),
      ];
      socket.write(message(METHOD_RETURN, ++serial, fields, body?.body));
    }
  });
  socket.write('BEGIN\r\n');
  call('Hello');
  call('RequestName', 'su', new Marshal().string(name).uint32(0).take());
  return socket;
}
