import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { test, type TestContext } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { SpdyConnection } from '../../../../../agent/base/protocols/spdy/connection.ts';
import type { PodHost } from '../../../../../agent/server/pod-host.ts';
import { HeldMemory } from '../../../../../agent/server/streaming/held-memory.ts';
import { createUpgrades, streamTarget } from '../../../../../agent/server/streaming/upgrade.ts';
import { parseTarget } from '../../../../../agent/server/request-target.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { until } from '../../../../until.ts';

test('beyond the limit, the owner who holds most loses the connection that holds most', () => {
  const memory = new HeldMemory(100);
  const evicted: string[] = [];
  const open = (owner: string, name: string) => {
    const holder = memory.open(owner, () => void evicted.push(name));
    return { ...holder, set: holder.part(), more: holder.part() };
  };
  const [one, two, three] = [open('a', 'one'), open('a', 'two'), open('b', 'three')];
  one.set(30);
  two.set(20);
  two.more(5);
  three.set(45);
  assert.deepEqual(evicted, []);
  three.set(46);
  assert.deepEqual(evicted, ['one'], 'the namespace a holds 55 bytes');
  one.set(1000);
  assert.deepEqual(evicted, ['one'], 'a connection that was closed counts no more');
  three.set(0);
  two.close();
  open('c', 'four').set(100);
  assert.deepEqual(evicted, ['one']);
});

/** Serves commands that never read, for which 1 MiB may wait. */
async function serve(t: TestContext): Promise<number> {
  const host = {
    runningContainer: () => Promise.resolve('id'),
    exec: (_id: string, _command: string[], { signal }: { signal: AbortSignal }) =>
      new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(new Error('gone')))),
  } as unknown as PodHost;
  const options = { host, clock: new FakeClock(), logger: silentLogger, idleTimeoutMs: 0 };
  const upgrade = createUpgrades(options, 1 << 20);
  const server = createServer().on('upgrade', (request, socket, head) => {
    const target = streamTarget(parseTarget(request.url ?? ''));
    assert.ok(target !== undefined);
    upgrade(request, socket, head, target).catch(() => socket.destroy());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  return (server.address() as AddressInfo).port;
}

/** Opens a command of a namespace, and returns its connection after the head of the response. */
async function open(t: TestContext, port: number, namespace: string, headers: string) {
  const socket = connect(port, '127.0.0.1');
  t.after(() => socket.destroy());
  socket.on('error', () => undefined);
  const method = headers.includes('websocket') ? 'GET' : 'POST';
  socket.write(
    `${method} /exec/${namespace}/p/c?input=1&command=x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n${headers}\r\n\r\n`,
  );
  const [head] = (await once(socket, 'data')) as [Buffer];
  assert.match(head.toString('latin1'), /^HTTP\/1.1 101/);
  return socket;
}

const WEBSOCKET = [
  ...['Upgrade: websocket', 'Sec-WebSocket-Version: 13', 'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=='],
  'Sec-WebSocket-Protocol: v5.channel.k8s.io',
].join('\r\n');

test('messages without an end on many WebSockets of a namespace are bounded together, and others stay', async (t) => {
  const port = await serve(t);
  // The head of a masked message of 4 MiB, which is never completed.
  const head = Buffer.from([0x82, 0xff, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0]);
  const other = await open(t, port, 'other', WEBSOCKET);
  other.write(Buffer.concat([head, Buffer.alloc(1000)]));
  const sockets: Socket[] = [];
  for (let i = 0; i < 6; i += 1) {
    const socket = await open(t, port, 'flood', WEBSOCKET);
    socket.write(Buffer.concat([head, Buffer.alloc(300_000)]));
    sockets.push(socket);
  }
  await until('three closed connections', () => sockets.filter((socket) => socket.closed).length >= 3);
  assert.equal(other.closed, false);
});

test('what waits for commands on many SPDY connections of a namespace is bounded together', async (t) => {
  const port = await serve(t);
  const sockets: Socket[] = [];
  for (let i = 0; i < 6; i += 1) {
    const socket = await open(t, port, 'flood', 'Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io');
    const connection = new SpdyConnection(socket, Buffer.alloc(0));
    await connection.open({ streamtype: 'error' });
    const stdin = await connection.open({ streamtype: 'stdin' });
    for (let part = 0; part < 8; part += 1) stdin.write(Buffer.alloc(1 << 16));
    sockets.push(socket);
  }
  await until('closed connections', () => sockets.filter((socket) => socket.closed).length >= 1);
  assert.ok(sockets.some((socket) => !socket.closed));
});

test('a message of many fragments, each of which would keep the chunk in which it came, ends its connection', async (t) => {
  const socket = await open(t, await serve(t), 'flood', WEBSOCKET);
  socket.resume();
  const fragment = (first: boolean): Buffer => Buffer.from([first ? 0x02 : 0x00, 0x81, 0, 0, 0, 0, 1]);
  socket.write(Buffer.concat(Array.from({ length: 200 }, (_, index) => fragment(index === 0))));
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.equal(socket.readableEnded, false);
  socket.write(Buffer.concat(Array.from({ length: 200 }, () => fragment(false))));
  await until('a closed connection', () => socket.readableEnded || socket.closed);
});
