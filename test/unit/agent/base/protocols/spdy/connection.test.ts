import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type Duplex, duplexPair } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { describe, it, type TestContext } from 'node:test';
import { SpdyConnection } from '../../../../../../agent/base/protocols/spdy/connection.ts';
import type { SpdyStream } from '../../../../../../agent/base/protocols/spdy/stream.ts';
import {
  controlFrame,
  decodeHeaders,
  encodeHeaders,
  FRAME,
  FrameReader,
} from '../../../../../../agent/base/protocols/spdy/frames.ts';

/** Returns a transport that passes data on in pieces of a few bytes. */
function fragmenting(inner: Duplex, size: number): Duplex {
  const whole = inner[Symbol.asyncIterator]();
  const pieces = async function* (): AsyncGenerator<Buffer> {
    for await (const chunk of { [Symbol.asyncIterator]: () => whole })
      for (let at = 0; at < (chunk as Buffer).length; at += size) yield (chunk as Buffer).subarray(at, at + size);
  };
  return Object.assign(inner, { [Symbol.asyncIterator]: pieces });
}

function pair(t: TestContext, onStream: (stream: SpdyStream) => void, wrap: (side: Duplex) => Duplex = (side) => side) {
  const [left, right] = duplexPair();
  const server = new SpdyConnection(wrap(left), Buffer.alloc(0), onStream);
  const client = new SpdyConnection(right, Buffer.alloc(0));
  t.after(() => {
    client.close();
    server.close();
  });
  return { server, client, raw: right };
}

const echo = (stream: SpdyStream): void => void stream.pipe(stream);

describe('a SPDY connection', () => {
  it('carries headers and data of several streams, in whatever pieces bytes come', async (t) => {
    const seen: Readonly<Record<string, string>>[] = [];
    const { client } = pair(
      t,
      (stream) => {
        seen.push({ ...stream.headers });
        echo(stream);
      },
      (side) => fragmenting(side, 3),
    );
    const texts = await Promise.all(
      ['stdin', 'stdout', 'a name that is longer than those before'.repeat(50)].map(async (streamtype) => {
        const stream = await client.open({ streamType: streamtype, port: '80' });
        stream.end(streamtype);
        return (await buffer(stream)).toString();
      }),
    );
    assert.deepEqual(
      seen.map((headers) => headers['streamtype']),
      texts,
    );
    assert.deepEqual(
      seen.map((headers) => headers['port']),
      ['80', '80', '80'],
    );
  });

  it('carries much data unchanged', async (t) => {
    const { client } = pair(t, echo);
    const data = Buffer.alloc(3 << 20, 'abcdefg');
    const stream = await client.open({});
    stream.end(data);
    assert.equal((await buffer(stream)).equals(data), true);
  });

  it('closes one direction and keeps the other', async (t) => {
    const { client } = pair(t, (stream) => {
      let size = 0;
      stream.on('data', (chunk: Buffer) => (size += chunk.length)).on('end', () => stream.end(`got ${size}`));
    });
    const stream = await client.open({});
    stream.end('12345');
    assert.equal((await buffer(stream)).toString(), 'got 5');
  });

  it('holds a writer back whose reader is slow', async (t) => {
    const streams: SpdyStream[] = [];
    const { client } = pair(t, (stream) => void streams.push(stream));
    const stream = await client.open({});
    const chunk = Buffer.alloc(1 << 16);
    let written = 0;
    let full = false;
    for (let count = 0; count < 200 && !full; count++) {
      full = await new Promise<boolean>((resolve) => {
        let done = false;
        stream.write(chunk, () => {
          done = true;
          written += chunk.length;
          resolve(false);
        });
        let turns = 0;
        const wait = (): void => {
          if (done) return;
          if (++turns > 50) resolve(true);
          else setImmediate(wait);
        };
        wait();
      });
    }
    assert.equal(full, true);
    assert.ok(written < 4 << 20);
    streams[0]?.resume();
    await new Promise((resolve) => stream.end(resolve));
  });

  it('ends a stream that is reset, does not answer with a reset, and keeps the others', async (t) => {
    const streams: SpdyStream[] = [];
    const { server, client, raw } = pair(t, (stream) => void streams.push(stream));
    const first = await client.open({});
    const second = await client.open({});
    const frames: number[] = [];
    const reader = new FrameReader();
    raw.on('data', (chunk: Buffer) => {
      for (const frame of reader.push(chunk)) if (frame.type === 'control') frames.push(frame.kind);
    });
    first.destroy();
    await new Promise((resolve) => streams[0]?.once('close', resolve));
    assert.equal(server.streamCount, 1);
    streams[1]?.end('still here');
    assert.equal((await buffer(second)).toString(), 'still here');
    assert.equal(frames.includes(FRAME.rstStream), false);
  });

  it('does not keep a stream that the peer refuses', async (t) => {
    const [left, right] = duplexPair();
    const client = new SpdyConnection(left, Buffer.alloc(0));
    t.after(() => client.close());
    const opening = client.open({});
    await once(right, 'data');
    right.write(controlFrame(FRAME.rstStream, 0, Buffer.from([0, 0, 0, 1, 0, 0, 0, 3])));
    await assert.rejects(opening, /the stream was refused/);
    assert.equal(client.streamCount, 0);
  });

  it('answers pings with their own number', async (t) => {
    const { raw } = pair(t, echo);
    const ping = controlFrame(FRAME.ping, 0, Buffer.from([0, 0, 0, 7]));
    const answer = new Promise<Buffer>((resolve) => raw.once('data', resolve));
    raw.write(ping);
    assert.deepEqual(await answer, ping);
  });

  it('ends its streams when the peer is gone, also while one of them is full', async (t) => {
    const streams: SpdyStream[] = [];
    const { server, client, raw } = pair(t, (stream) => void streams.push(stream));
    const stream = await client.open({});
    stream.on('error', () => undefined);
    stream.write(Buffer.alloc(1 << 20));
    while ((streams[0]?.readableLength ?? 0) < 1 << 18) await new Promise((resolve) => setImmediate(resolve));
    const closed = new Promise((resolve) => streams[0]?.once('close', resolve));
    client.close();
    raw.destroy();
    server.close();
    await Promise.all([server.closed, closed]);
    assert.equal(server.streamCount, 0);
  });

  const nonsense: [string, Buffer][] = [
    ['another version', Buffer.from([0x80, 0x02, 0, 1, 0, 0, 0, 0])],
    [
      'a frame that is too large',
      Buffer.from([0, 0, 0, 1, 0, 0xff, 0xff, 0xff].map((byte, at) => (at === 4 ? 0 : byte))),
    ],
    [
      'headers that are not compressed',
      controlFrame(FRAME.synStream, 0, Buffer.from([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 2, 3])),
    ],
    ['plain HTTP', Buffer.from('GET / HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(3))],
  ];
  for (const [what, bytes] of nonsense) {
    it(`survives ${what}`, async (t) => {
      const { server, raw } = pair(t, echo);
      raw.on('error', () => undefined);
      raw.end(bytes);
      await server.closed;
      assert.equal(server.streamCount, 0);
    });
  }
});

describe('SPDY headers', () => {
  it('are read as they were written, names in lower case', () => {
    assert.deepEqual(
      { ...decodeHeaders(encodeHeaders({ StreamType: 'error', ['__proto__']: 'x', empty: '' })) }['streamtype'],
      'error',
    );
  });

  it('that are cut off or too many are refused', () => {
    const whole = encodeHeaders({ a: 'b' });
    assert.throws(() => decodeHeaders(whole.subarray(0, whole.length - 1)), /cut off/);
    assert.throws(() => decodeHeaders(Buffer.from([0x7f, 0, 0, 0])), /too many/);
  });
});
