import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { it } from 'node:test';
import type { WebSocket } from 'ws';
import { forwardOverChannels } from '../../../../../agent/server/streaming/port-forward.ts';

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
  forwardOverChannels(
    socket as unknown as WebSocket,
    [80, 81],
    () => never,
    () => '',
  );
  const message = (channel: number): Buffer => Buffer.concat([Buffer.from([channel]), Buffer.alloc(600_000)]);
  socket.emit('message', message(0), true);
  assert.equal(pauses, 0);
  socket.emit('message', message(2), true);
  assert.equal(pauses, 1);
});
