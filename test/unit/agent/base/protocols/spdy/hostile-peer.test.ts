/** Tests malicious peers that try to block the connection or exhaust its memory. */
import assert from 'node:assert/strict';
import { Duplex, duplexPair } from 'node:stream';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { constants, deflateSync } from 'node:zlib';
import { SpdyConnection } from '../../../../../../agent/base/protocols/spdy/connection.ts';
import type { SpdyStream } from '../../../../../../agent/base/protocols/spdy/stream.ts';
import { DICTIONARY } from '../../../../../../agent/base/protocols/spdy/dictionary.ts';
import { until } from '../../../../../until.ts';
import {
  controlFrame,
  dataHeader,
  encodeHeaders,
  FLAG_FIN,
  FRAME,
  FrameReader,
} from '../../../../../../agent/base/protocols/spdy/frames.ts';

function open(id: number, headers: Buffer, flags = 0): Buffer {
  const fixed = Buffer.alloc(10);
  fixed.writeUInt32BE(id);
  const block = deflateSync(headers, { dictionary: DICTIONARY, finishFlush: constants.Z_SYNC_FLUSH });
  return controlFrame(FRAME.synStream, flags, Buffer.concat([fixed, block]));
}

const data = (id: number, text: string): Buffer =>
  Buffer.concat([dataHeader(id, false, text.length), Buffer.from(text)]);

class Transport extends Duplex {
  readonly #bytes: Buffer;

  constructor(bytes: Buffer) {
    super();
    this.#bytes = bytes;
  }

  override _read(): void {
    this.push(this.#bytes);
    this.push(null);
  }

  override _write(_chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    done();
  }
}

/** Resolves to the number of opened streams when the connection has read everything and has ended. */
async function serve(bytes: Buffer): Promise<number> {
  let streams = 0;
  const connection = new SpdyConnection(new Transport(bytes), Buffer.alloc(0), (stream) => {
    streams += 1;
    stream.resume();
  });
  await connection.closed;
  return streams;
}

test('data after the end of a stream does not hold the connection', async () => {
  const headers = encodeHeaders({ a: 'b' });
  assert.equal(await serve(Buffer.concat([open(1, headers, FLAG_FIN), data(1, 'late'), data(1, 'later')])), 1);
});

test('headers that unpack to megabytes end the connection', async () => {
  const bomb = encodeHeaders({ a: 'x'.repeat(20_000_000) });
  assert.equal(await serve(open(1, bomb)), 0);
});

test('headers that cannot be unpacked end the connection', async () => {
  const fixed = Buffer.alloc(10, 1);
  assert.equal(await serve(controlFrame(FRAME.synStream, 0, Buffer.concat([fixed, Buffer.from('nonsense')]))), 0);
});

test('pings without end from a peer that reads no answer end the connection', async () => {
  let writtenBytes = 0;
  const pings = Buffer.concat(Array.from({ length: 50_000 }, () => controlFrame(FRAME.ping, 0, Buffer.alloc(4))));
  const transport = new Transport(pings);
  // Written data is never accepted.
  transport._write = (): void => undefined;
  const write = transport.write.bind(transport) as (chunk: Buffer, done?: () => void) => boolean;
  transport.write = ((chunk: Buffer, done?: () => void) => {
    writtenBytes += chunk.length;
    return write(chunk, done);
  }) as typeof transport.write;
  await new SpdyConnection(transport, Buffer.alloc(0), () => undefined).closed;
  assert.ok(transport.destroyed);
  assert.ok(writtenBytes <= 1 << 18, `${writtenBytes} bytes wait for the peer`);
});

test('a data frame is passed on in the pieces in which it comes, because it may have 16 MiB', () => {
  const reader = new FrameReader();
  const payload = Buffer.alloc((1 << 24) - 1, 7);
  const bytes = Buffer.concat([dataHeader(1, true, payload.length), payload, data(3, 'next')]);
  const frames = [];
  for (let at = 0; at < bytes.length; at += 1024) {
    const pieces = [...reader.push(bytes.subarray(at, at + 1024))];
    assert.equal(pieces.length > 0, true);
    frames.push(...pieces);
  }
  assert.ok(Buffer.concat(frames.slice(0, -1).map((frame) => frame.payload)).equals(payload));
  const ends = frames.map((frame) => frame.type === 'data' && frame.fin);
  assert.deepEqual([ends.indexOf(true), ends.lastIndexOf(true)], [ends.length - 2, ends.length - 2]);
  assert.equal(frames.at(-1)?.payload.toString(), 'next');
});

test('frames are the same in chunks of any size', () => {
  const block = encodeHeaders({ a: 'b' });
  const wire = Buffer.concat([
    open(1, block),
    data(1, 'text'),
    dataHeader(1, true, 0),
    controlFrame(FRAME.ping, 0, block),
  ]);
  for (let size = 1; size <= wire.length; size += 1) {
    const reader = new FrameReader();
    const kinds: (number | string)[] = [];
    let received = '';
    for (let at = 0; at < wire.length; at += size)
      for (const frame of reader.push(wire.subarray(at, at + size))) {
        if (frame.type === 'control') kinds.push(frame.kind);
        else if (frame.fin) kinds.push('fin');
        if (frame.type === 'data') received += frame.payload.toString();
      }
    assert.deepEqual([kinds, received], [[FRAME.synStream, 'fin', FRAME.ping], 'text'], `${size} bytes`);
  }
});

test('a control frame of megabytes ends the connection before it is received', () => {
  const head = controlFrame(FRAME.synStream, 0, Buffer.alloc(1 << 17)).subarray(0, 100);
  assert.throws(() => [...new FrameReader().push(head)], /control frame/);
});

test('a byte that waits for a reader does not keep the chunk in which it came', async () => {
  const chunks: WeakRef<ArrayBufferLike>[] = [];
  const transport = new Duplex({ read: () => undefined, write: (_chunk, _encoding, done) => done() });
  const streams: SpdyStream[] = [];
  const connection = new SpdyConnection(
    transport,
    open(1, encodeHeaders({ a: 'b' })),
    (stream) => void streams.push(stream),
  );
  for (let i = 0; i < 100; i += 1) {
    const chunk = Buffer.allocUnsafeSlow(65_536);
    const at = dataHeader(1, false, 1).copy(chunk) + 1;
    // Data of streams that do not exist is dropped.
    dataHeader(77, false, chunk.length - at - 8).copy(chunk, at);
    chunks.push(new WeakRef(chunk.buffer));
    transport.push(chunk);
    await new Promise((resolve) => setImmediate(resolve));
  }
  await until('all bytes', () => streams[0]?.readableLength === 100);
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  collect();
  await new Promise((resolve) => setImmediate(resolve));
  collect();
  const kept = chunks.filter((chunk) => chunk.deref() !== undefined).length;
  assert.ok(kept < 5, `${kept} chunks are in memory`);
  connection.abandon();
});

for (const [what, count, payload] of [
  ['as much as each may hold', 1, Buffer.alloc(200_000)],
  ['single bytes', 600, Buffer.alloc(1)],
] as const)
  test(`a hundred streams that nobody reads hold a few megabytes together, of ${what}`, async () => {
    const [near, far] = duplexPair();
    const streams: SpdyStream[] = [];
    const server = new SpdyConnection(far, Buffer.alloc(0), (stream) => void streams.push(stream));
    const client = new SpdyConnection(near, Buffer.alloc(0));
    const own: SpdyStream[] = [];
    for (let id = 0; id < 100; id += 1) own.push(await client.open({ streamtype: String(id) }));
    const sent = own.flatMap((stream) =>
      Array.from({ length: count }, () => new Promise<void>((resolve) => stream.write(payload, () => resolve()))),
    );
    const heldBytes = (): number => streams.reduce((sum, stream) => sum + stream.readableLength, 0);
    for (let before = -1; before !== heldBytes();) {
      before = heldBytes();
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    assert.ok(heldBytes() > 0 && heldBytes() <= 5_000_000, `${heldBytes()} bytes`);
    // Each chunk needs more than a hundred bytes in addition to its content.
    if (payload.length === 1) assert.ok(heldBytes() <= 40_000, `${heldBytes()} chunks`);
    // Reading makes room for the remaining data.
    let readBytes = 0;
    for (const stream of streams) stream.on('data', (chunk: Buffer) => (readBytes += chunk.length));
    await Promise.all(sent);
    while (readBytes < 100 * count * payload.length) await new Promise((resolve) => setImmediate(resolve));
    client.abandon();
    server.abandon();
  });
