import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { it } from 'node:test';
import { duplexPair } from 'node:stream';
import type { WebSocket } from 'ws';
import { SpdyConnection } from '../../../../../agent/protocols/spdy/connection.ts';
import { forwardOverChannels, forwardOverSpdy } from '../../../../../agent/server/streaming/port-forward.ts';

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
  forwardOverChannels(socket as unknown as WebSocket, [80, 81], { dial: () => never, describe: () => '' });
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
  forwardOverChannels(socket as unknown as WebSocket, [80, 81, 82, 83, 84, 85], {
    dial: () => never,
    describe: () => '',
  });
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(sent.map((message) => String(message).charAt(0)).join(''), '0123456789:;');
});

/** Connects a client to the agent's side. */
function connected(dial: () => Promise<never>): { client: SpdyConnection; served: Promise<void> } {
  const [near, far] = duplexPair();
  const served = forwardOverSpdy(far, Buffer.alloc(0), { dial, describe: () => 'failed' });
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
