import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { it } from 'node:test';
import { duplexPair } from 'node:stream';
import { text } from 'node:stream/consumers';
import type { WebSocket } from 'ws';
import { SpdyConnection } from '../../../../../agent/base/protocols/spdy/connection.ts';
import {
  forwardOverChannels,
  forwardOverSpdy,
  type PodPorts,
} from '../../../../../agent/server/streaming/port-forward.ts';
import { until } from '../../../../until.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

function portsOf(more: Pick<PodPorts, 'dial'> & Partial<PodPorts>): PodPorts {
  return {
    clock: new FakeClock(),
    hold: () => () => undefined,
    onHeld: () => undefined,
    describe: () => 'failed',
    ...more,
  };
}

it('a client that sends to ports which do not answer is held back after a megabyte', () => {
  let pauses = 0;
  const socket = Object.assign(new EventEmitter(), {
    protocol: 'v4.channel.k8s.io',
    readyState: 1,
    OPEN: 1,
    send: (_message: Buffer, done: () => void) => done(),
    pause: () => void (pauses += 1),
    resume: () => undefined,
    close: () => undefined,
  });
  const never = new Promise<never>(() => undefined);
  forwardOverChannels(socket as unknown as WebSocket, [80, 81], portsOf({ dial: () => never }));
  const message = (channel: number): Buffer => Buffer.concat([Buffer.from([channel]), Buffer.alloc(600_000)]);
  socket.emit('message', message(0), true);
  assert.equal(pauses, 0);
  socket.emit('message', message(2), true);
  assert.equal(pauses, 1);
});

it('the channels of many ports differ in base64 as well', async () => {
  const sent: (string | Buffer)[] = [];
  const socket = Object.assign(new EventEmitter(), {
    protocol: 'v4.base64.channel.k8s.io',
    readyState: 1,
    OPEN: 1,
    send: (message: string | Buffer, done: () => void) => {
      sent.push(message);
      done();
    },
  });
  const never = new Promise<never>(() => undefined);
  forwardOverChannels(socket as unknown as WebSocket, [80, 81, 82, 83, 84, 85], portsOf({ dial: () => never }));
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(sent.map((message) => String(message).charAt(0)).join(''), '0123456789:;');
});

/** Connects a client to the agent's side. */
function connected(
  dial: PodPorts['dial'],
  more: Partial<PodPorts> = {},
): { client: SpdyConnection; served: Promise<void> } {
  const [near, far] = duplexPair();
  const served = forwardOverSpdy(far, Buffer.alloc(0), portsOf({ dial, ...more }));
  return { client: new SpdyConnection(near, Buffer.alloc(0)), served };
}

it('a stream that the client resets before its counterpart arrives is dropped', async () => {
  let dialed = 0;
  const { client, served } = connected(() => {
    dialed += 1;
    return Promise.reject(new Error('nobody listens'));
  });
  const headers = { port: '80', requestid: '7' };
  const lonely = await client.open({ ...headers, streamtype: 'data' });
  lonely.destroy();
  const error = await client.open({ ...headers, streamtype: 'error' });
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(dialed, 0);
  // The pair is complete, and one of its streams exists already.
  await client.open({ ...headers, streamtype: 'data' });
  error.resume();
  await new Promise((resolve) => error.once('end', resolve));
  assert.equal(dialed, 1);
  client.abandon();
  await served;
});

it('of each pair, a stream alone waits for 30 seconds, and all of a client count together', async () => {
  const clock = new FakeClock();
  let held = 0;
  const hold = () => {
    if (held === 3) return undefined;
    held += 1;
    return () => void (held -= 1);
  };
  const { client, served } = connected(() => Promise.reject(new Error('never')), { clock, hold });
  const open = (id: number) => client.open({ port: '80', requestid: String(id), streamtype: 'data' });
  const ended = [];
  for (let id = 0; id < 10; id += 1) {
    const stream = await open(id);
    stream.resume();
    ended.push(new Promise((resolve) => stream.once('end', resolve)));
  }
  await Promise.all(ended.slice(3));
  assert.equal(held, 3);
  await clock.advance(31_000);
  await Promise.all(ended);
  assert.equal(held, 0);
  client.abandon();
  await served;
});

it('pairs that failed leave nothing behind, also if the client never ends its side', async () => {
  let held = 0;
  const { client, served } = connected(() => Promise.reject(new Error('nobody listens')), {
    hold: () => {
      held += 1;
      return () => void (held -= 1);
    },
  });
  const messages = [];
  for (let id = 0; id < 20; id += 1) {
    const headers = { port: '80', requestid: String(id) };
    const error = await client.open({ ...headers, streamtype: 'error' });
    await client.open({ ...headers, streamtype: 'data' });
    messages.push(text(error));
  }
  assert.deepEqual(new Set(await Promise.all(messages)), new Set(['failed']));
  await until('no pairs', () => held === 0);
  client.abandon();
  await served;
});

it('single bytes for a port are joined, and the last ones arrive although their chunks are gone', async () => {
  const { near, write, paused } = forwardedChannel();
  for (let i = 0; i < 100_000; i += 1) write(Buffer.from([0, i & 255]));
  const received: Buffer[] = [];
  near.on('data', (chunk: Buffer) => received.push(chunk));
  await until('all bytes', () => received.reduce((sum, chunk) => sum + chunk.length, 0) === 100_000);
  const whole = Buffer.concat(received);
  for (let i = 0; i < 100_000; i += 1) assert.equal(whole[i], i & 255);
  assert.ok(received.length < 1000, `${received.length} chunks`);
  assert.equal(paused(), false);
});

it('a client is held back while a port reads nothing, and goes on afterwards', async () => {
  const { near, write, paused } = forwardedChannel();
  for (let i = 0; i < 20; i += 1) write(Buffer.concat([Buffer.from([0]), Buffer.alloc(100_000)]));
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(paused(), true);
  near.resume();
  await until('room', () => !paused());
});

/** Forwards one port over channels. `write` is a message of the client, and `near` the server of the port. */
function forwardedChannel() {
  const socket = Object.assign(new EventEmitter(), {
    ...{ protocol: 'v4.channel.k8s.io', readyState: 1, OPEN: 1, isPaused: false },
    send: (_message: Buffer, done: () => void) => done(),
    pause: () => void (socket.isPaused = true),
    resume: () => void (socket.isPaused = false),
    close: () => undefined,
  });
  const [near, far] = duplexPair();
  forwardOverChannels(socket as unknown as WebSocket, [80], portsOf({ dial: () => Promise.resolve(far) }));
  return {
    near,
    write: (message: Buffer) => void socket.emit('message', message, true),
    paused: () => socket.isPaused,
  };
}
