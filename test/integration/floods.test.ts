/** Floods the ports of the API server and of the agent with connections, streams and resets, while other clients are served. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect as connectHttp2, constants } from 'node:http2';
import { connect as connectTcp, type Socket } from 'node:net';
import { Duplex, type Readable } from 'node:stream';
import { connect as connectTls } from 'node:tls';
import { after, before, test } from 'node:test';
import { constants as zlibConstants, createDeflate } from 'node:zlib';
import { WebSocket } from 'ws';
import type { PodHost } from '../../agent/server/pod-host.ts';
import type { StreamIo } from '../../agent/runtime/runtime.ts';
import { SpdyConnection } from '../../agent/base/protocols/spdy/connection.ts';
import { DICTIONARY } from '../../agent/base/protocols/spdy/dictionary.ts';
import { controlFrame, encodeHeaders, FRAME } from '../../agent/base/protocols/spdy/frames.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { type ServerUnderTest, startServerUnderTest } from '../unit/agent/server/server-under-test.ts';

const CONNECTIONS = 2000;
const RESETS = 100_000;
/** Much longer than a response takes, because the test shares its processor and event loop with both servers. */
const MAX_ANSWER_MS = 15_000;
const MAX_GROWTH_BYTES = 300 << 20;

/** The input that waits in the agent for each command. No command reads it. */
const inputs: Readable[] = [];
const host = {
  syncLoopHealth: () => '',
  devicePluginHealth: () => '',
  runningContainer: async () => 'id',
  async exec(_id: string, _command: readonly string[], { stdin, signal }: StreamIo): Promise<number> {
    inputs.push(stdin as Readable);
    await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
    return 0;
  },
} as unknown as PodHost;

let plane: ControlPlane;
let agent: ServerUnderTest;

before(async () => {
  plane = await startControlPlane({ memory: true, flags: { controllers: ['-*'], scheduler: false } });
  agent = await startServerUnderTest({ host });
});

after(async () => {
  await agent.close();
  await plane.close();
});

/** Returns how long a client waits for a response on a new connection. */
async function answerMs(port: number): Promise<number> {
  const start = performance.now();
  await askedForHealth(port);
  return performance.now() - start;
}

/** Resolves when the server has responded to `GET /healthz` over HTTP/1.1 with any status. */
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
    let connected = 0;
    await Promise.all(
      Array.from(
        { length: CONNECTIONS },
        () =>
          new Promise<void>((resolve) => {
            const socket = connectTcp(portOf(), '127.0.0.1', () => {
              connected += 1;
              resolve();
            });
            socket.on('error', () => resolve());
            sockets.push(socket);
          }),
      ),
    );
    assert.equal(connected, CONNECTIONS);
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
  await once(session, 'connect');
  let end: string | undefined;
  session.on('goaway', (code) => (end ??= `GOAWAY ${code}`));
  session.on('error', (error) => (end ??= error.message));
  session.on('close', () => (end ??= 'closed'));
  let opened = 0;
  let longest = 0;
  while (end === undefined && opened < RESETS) {
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
    `${end} after ${opened} streams; the longest answer took ${Math.round(longest)} ms, ${Math.round(grown / 1048576)} MiB more`,
  );
  // The HTTP/2 library of the server ends a session with this code if there are too many resets.
  assert.equal(end, `GOAWAY ${constants.NGHTTP2_INTERNAL_ERROR}`);
  assert.ok(longest < MAX_ANSWER_MS);
  assert.ok(grown < MAX_GROWTH_BYTES);
});

class Wire extends Duplex {
  writtenBytes = 0;

  override _read(): void {
    // All data is pushed at once.
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

const SOCKETS = 50;
const MESSAGE = Buffer.alloc(64 * 1024);
/** The size of the buffers of a stream and its socket. */
const MAX_WAITING_BYTES = 3 << 20;

test('WebSocket clients that send without end to commands that do not read are held back', async (t) => {
  const sockets = await Promise.all(
    Array.from({ length: SOCKETS }, async () => {
      const socket = new WebSocket(
        `wss://127.0.0.1:${agent.port}/exec/ns/p/c?input=1&command=hang`,
        'v5.channel.k8s.io',
        {
          rejectUnauthorized: false,
        },
      );
      await once(socket, 'open');
      return socket;
    }),
  );
  for (let rounds = 0; rounds < 100; rounds += 1) {
    for (const socket of sockets) if (socket.bufferedAmount < MESSAGE.length) socket.send(MESSAGE);
    await new Promise((resolve) => setImmediate(resolve));
  }
  const waited = await answerMs(agent.port);
  const most = Math.max(...inputs.map(({ readableLength }) => readableLength));
  for (const socket of sockets) socket.terminate();
  t.diagnostic(`${inputs.length} commands, at most ${most} bytes wait, an answer in ${Math.round(waited)} ms`);
  assert.equal(inputs.length, SOCKETS);
  assert.ok(most < MAX_WAITING_BYTES);
  assert.ok(waited < MAX_ANSWER_MS);
});

test('a WebSocket message of more than four megabytes ends its connection', async () => {
  const socket = new WebSocket(`wss://127.0.0.1:${agent.port}/exec/ns/p/c?input=1&command=hang`, 'v5.channel.k8s.io', {
    rejectUnauthorized: false,
  });
  await once(socket, 'open');
  socket.on('error', () => undefined);
  const closed = once(socket, 'close');
  socket.send(Buffer.alloc((4 << 20) + 1));
  const [code] = (await closed) as [number];
  assert.ok([1006, 1009].includes(code), `closed with ${code}`);
});
