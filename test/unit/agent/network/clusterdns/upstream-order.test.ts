/** A name server that does not answer is asked last for a while, and tried again by one query at a time. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { UpstreamOrder } from '../../../../../agent/network/clusterdns/upstream-order.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

const SERVERS = ['192.0.2.1', '192.0.2.2', '192.0.2.3'] as const;

it('a server is asked last after two queries without an answer, until one query tries it again', async () => {
  const clock = new FakeClock();
  const order = new UpstreamOrder(clock);
  order.failed('192.0.2.1');
  assert.deepEqual(order.of(SERVERS), SERVERS, 'one name may resolve slowly');
  order.failed('192.0.2.1');
  assert.deepEqual(order.of(SERVERS), ['192.0.2.2', '192.0.2.3', '192.0.2.1']);
  await clock.advance(10_000);
  assert.deepEqual(order.of(SERVERS), SERVERS, 'one query tries it again');
  assert.deepEqual(order.of(SERVERS), ['192.0.2.2', '192.0.2.3', '192.0.2.1'], 'others do not wait for it');
  order.answered('192.0.2.1');
  assert.deepEqual(order.of(SERVERS), SERVERS);
});

it('servers that all fail keep their order', () => {
  const order = new UpstreamOrder(new FakeClock());
  for (const server of [...SERVERS, ...SERVERS]) order.failed(server);
  assert.deepEqual(order.of(SERVERS), SERVERS);
});
