import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { it } from 'node:test';
import { ForwardedConnections } from '../../../../../agent/server/streaming/forwarded-connections.ts';

it('clients of a namespace forward as many connections as the node may have, and lose one to another namespace', async () => {
  const forwarded = new ForwardedConnections(3);
  const { signal } = new AbortController();
  const opened: PassThrough[] = [];
  const dial = (namespace: string): Promise<NodeJS.ReadWriteStream> =>
    forwarded.dial(namespace, signal, () => {
      const stream = new PassThrough();
      opened.push(stream);
      return Promise.resolve(stream);
    });
  for (let count = 0; count < 3; count++) await dial('greedy');
  await assert.rejects(dial('greedy'), /the node forwards 3 connections, which is its limit/);
  assert.equal(opened.length, 3);
  await dial('other');
  assert.deepEqual(
    opened.map(({ destroyed }) => destroyed),
    [false, false, true, false],
  );
  const [first] = opened;
  first?.destroy();
  await new Promise((resolve) => setImmediate(resolve));
  await dial('greedy');
});

it('a connection that cannot be opened counts no longer', async () => {
  const forwarded = new ForwardedConnections(1);
  const { signal } = new AbortController();
  const refused = (): Promise<never> => Promise.reject(new Error('nobody listens'));
  await assert.rejects(forwarded.dial('a', signal, refused), /nobody listens/);
  await forwarded.dial('b', signal, () => Promise.resolve(new PassThrough()));
});
