/** Floods of connections, streams and resets, at the API server's port and at the agent's: others are served meanwhile. */
import assert from 'node:assert/strict';
import { connect as connectHttp2, constants } from 'node:http2';
import { connect as connectTcp, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { connect as connectTls } from 'node:tls';
import { after, before, test } from 'node:test';
import { constants as zlibConstants, createDeflate } from 'node:zlib';
import type { PodHost } from '../../agent/core-types.ts';
import { SpdyConnection } from '../../agent/server/spdy/connection.ts';
import { DICTIONARY } from '../../agent/server/spdy/dictionary.ts';
import { controlFrame, encodeHeaders, FRAME } from '../../agent/server/spdy/frames.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { type ServerUnderTest, startServerUnderTest } from '../unit/agent/server/server-under-test.ts';

const CONNECTIONS = 2000;
const RESETS = 100_000;
/** Many times what it takes, since the test shares its processor and its event loop with both servers. */
const MAX_ANSWER_MS = 15_000;
const MAX_GROWTH_BYTES = 300 << 20;

let plane: ControlPlane;
let agent: ServerUnderTest;

before(async () => {
  plane = await startControlPlane({ memory: true, flags: { controllers: ['-*'], scheduler: false } });
  agent = await startServerUnderTest({ host: {} as PodHost });
});

after(async () => {
  await agent.close();
  await plane.close();
});

/** How long a client on a connection of its own waits for an answer. */
async function answerMs(port: number): Promise<number> {
  const start = performance.now();
  await askedForHealth(port);
  return performance.now() - start;
}

/** Resolves when the server has answered `GET /healthz` over HTTP/1.1, whatever the status. */
function askedForHealth(port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connectTls({ host: '127.0.0.1', port, rejectUnauthorized: false, ALPNProtocols: ['http/1.1'] });
    socket.on('error', reject);
    socket.once('data', () => {
      socket.destroy();
      resolve();
    });
    socket.write('GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
  });
}

const ports = { 'the API server': () => plane.port, 'the agent': () => agent.port } as const;

for (const [name, portOf] of Object.entries(ports)) {
  test(`${CONNECTIONS} silent connections do not keep ${name} from others`, async (t) => {
    const before = process.memoryUsage().rss;
    const sockets: Socket[] = [];
    await Promise.all(
      Array.from(
        { length: CONNECTIONS },
        () =>
          new Promise<void>((resolve) => {
            const socket = connectTcp(portOf(), '127.0.0.1', resolve);
            socket.on('error', () => resolve());
            sockets.push(socket);
          }),
      ),
    );
    const waited = await answerMs(portOf());
    const grown = process.memoryUsage().rss - before;
    for (const socket of sockets) socket.destroy();
    t.diagnostic(`an answer in ${Math.round(waited)} ms, ${Math.round(grown / 1048576)} MiB more`);
    assert.ok(waited < MAX_ANSWER_MS);
    assert.ok(grown < MAX_GROWTH_BYTES);
  });
}

test('a client that opens and resets streams without end is cut off, and others are served', async (t) => {
  const before = process.memoryUsage().rss;
  const session = connectHttp2(plane.url, { ca: plane.ca });
  const cut = new Promise<void>((resolve) => {
    session.on('error', () => resolve());
    session.on('goaway', () => resolve());
    session.on('close', () => resolve());
  });
  let opened = 0;
  let isCut = false;
  void cut.then(() => (isCut = true));
  let longest = 0;
  while (!isCut && opened < RESETS) {
    for (let left = 500; left > 0 && !session.destroyed && !session.closed; left -= 1) {
      const stream = session.request({ ':path': '/api/v1/namespaces/default/pods' });
      stream.on('error', () => undefined);
      stream.close(constants.NGHTTP2_CANCEL);
      opened += 1;
    }
    longest = Math.max(longest, await answerMs(plane.port));
    await new Promise((resolve) => setImmediate(resolve));
  }
  session.destroy();
  const grown = process.memoryUsage().rss - before;
  t.diagnostic(
    `cut after ${opened} streams; the longest answer took ${Math.round(longest)} ms, ${Math.round(grown / 1048576)} MiB more`,
  );
  assert.ok(isCut, `${opened} streams were opened and reset`);
  assert.ok(longest < MAX_ANSWER_MS);
  assert.ok(grown < MAX_GROWTH_BYTES);
});

class Wire extends Duplex {
  writtenBytes = 0;

  override _read(): void {
    // Everything is pushed at once.
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.writtenBytes += chunk.length;
    done();
  }
}

test('a SPDY peer that opens streams without end gets a thousand', async (t) => {
  const deflate = createDeflate({ dictionary: DICTIONARY });
  const wire = new Wire();
  let streams = 0;
  const connection = new SpdyConnection(wire, Buffer.alloc(0), () => (streams += 1));
  const compress = (block: Buffer): Promise<Buffer> =>
    new Promise((resolve) => {
      const parts: Buffer[] = [];
      const collect = (part: Buffer): void => void parts.push(part);
      deflate.on('data', collect);
      deflate.write(block);
      deflate.flush(zlibConstants.Z_SYNC_FLUSH, () => {
        deflate.removeListener('data', collect);
        resolve(Buffer.concat(parts));
      });
    });
  for (let index = 0; index < 5000; index += 1) {
    const fixed = Buffer.alloc(10);
    fixed.writeUInt32BE(index * 2 + 1);
    const block = await compress(encodeHeaders({ streamtype: 'data', port: '80' }));
    wire.push(controlFrame(FRAME.synStream, 0, Buffer.concat([fixed, block])));
  }
  const start = performance.now();
  wire.push(null);
  await connection.closed;
  deflate.close();
  t.diagnostic(
    `${streams} streams, ${wire.writtenBytes} bytes of answers in ${Math.round(performance.now() - start)} ms`,
  );
  assert.equal(streams, 1000);
  assert.equal(connection.streamCount, 0);
});
