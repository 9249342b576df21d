/** Tests responses of the agent that their clients do not take. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type TLSSocket } from 'node:tls';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import type { PodHost } from '../../../../agent/server/pod-host.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { until } from '../../../until.ts';
import { jane, startServerUnderTest } from './server-under-test.ts';

/** More than the buffers of a connection take. */
const LARGE_BYTES = 32 << 20;

test('a response that its client does not take is broken off, and a connection that waits for its next request stays', async (t) => {
  const clock = new FakeClock();
  let listed = 0;
  const host = {
    syncLoopHealth: () => '',
    devicePluginHealth: () => '',
    pods: () => {
      listed += 1;
      return [{ metadata: { name: 'p', annotations: { a: 'x'.repeat(LARGE_BYTES) } }, spec: { containers: [] } }];
    },
  } as unknown as PodHost;
  const access = { authenticate: () => Promise.resolve(jane), refusal: () => Promise.resolve('') };
  const server = await startServerUnderTest({ host, clock, access });
  t.after(() => server.close());
  const ask = async (path: string): Promise<TLSSocket> => {
    const socket = connect({ port: server.port, host: '127.0.0.1', rejectUnauthorized: false });
    t.after(() => socket.destroy());
    await once(socket, 'secureConnect');
    socket.on('error', () => undefined);
    socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`);
    return socket;
  };
  const stalled = await ask('/pods');
  const idle = await ask('/healthz');
  await once(idle, 'data');
  await until('the response', () => (listed === 1 ? true : undefined));
  for (let turn = 0; turn < 100; turn++) await setImmediate();
  for (const _period of [1, 2]) await clock.advance(60_000);
  let taken = 0;
  stalled.on('data', (chunk: Buffer) => {
    taken += chunk.length;
    if (taken >= LARGE_BYTES) stalled.destroy();
  });
  await once(stalled, 'close');
  assert.ok(taken < LARGE_BYTES, `${taken} bytes were taken`);
  idle.write('GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n');
  assert.match(String((await once(idle, 'data'))[0]), / 200 /);
});
