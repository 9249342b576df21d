/** A node keeps its address while its host has no network, and follows the one that comes next. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { NodeAddresses } from '../../../../../agent/node/status/node-addresses.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

it('an address that is lost stays until another one comes', () => {
  let found = ['127.0.0.1'];
  const addresses = new NodeAddresses({ clock: new FakeClock(), configured: [], found: () => found });
  assert.deepEqual(addresses.read(), ['127.0.0.1'], 'a host that never had a network has loopback');
  for (const [has, reports] of [
    [['10.0.0.1'], ['10.0.0.1']],
    [['127.0.0.1'], ['10.0.0.1']],
    [['10.0.0.2'], ['10.0.0.2']],
  ] as const) {
    found = [...has];
    assert.deepEqual(addresses.read(), reports);
  }
});
