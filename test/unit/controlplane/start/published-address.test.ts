import assert from 'node:assert/strict';
import type { NetworkInterfaceInfo } from 'node:os';
import { test } from 'node:test';
import { type HostNetwork, PublishedAddress } from '../../../../controlplane/start/published-address.ts';

const entry = (address: string, internal = false): NetworkInterfaceInfo => ({
  address,
  internal,
  netmask: '',
  mac: '',
  cidr: null,
  family: 'IPv4',
});
function network(interfaces: Readonly<Record<string, readonly string[]>>, ...routed: readonly string[]): HostNetwork {
  const found = Object.entries(interfaces).map(([name, all]) => [name, all.map((one) => entry(one, name === 'lo'))]);
  return {
    interfaces: Object.fromEntries(found) as HostNetwork['interfaces'],
    routed,
  };
}

const LO = { lo: ['127.0.0.1', '::1'] };

for (const [what, found, wanted] of [
  ['a host without a network has none', network(LO), undefined],
  ['a link-local address is none', network({ ...LO, eth0: ['fe80::1'] }), undefined],
  ['the interface with the default route is first', network({ a: ['10.0.0.1'], b: ['10.1.0.1'] }, 'b'), '10.1.0.1'],
  [
    'of two default routes the preferred one counts',
    network({ a: ['10.0.0.1'], b: ['10.1.0.1'] }, 'b', 'a'),
    '10.1.0.1',
  ],
  ['without a route it is the first', network({ a: ['10.0.0.1'], b: ['10.1.0.1'] }), '10.0.0.1'],
  ['networks of containers are last', network({ docker0: ['172.17.0.1'], eth0: ['10.0.0.1'] }), '10.0.0.1'],
  ['they are better than nothing', network({ ...LO, docker0: ['172.17.0.1'] }), '172.17.0.1'],
] as const) {
  test(`the published address: ${what}`, () => assert.equal(new PublishedAddress('', () => found).current(), wanted));
}

test('the published address of a host that loses its network is not one of the bridge of pods', () => {
  const bridge = { orc0123456789: ['10.244.0.1'] };
  let found = network({ ...LO, ...bridge, eth0: ['10.0.0.1'] });
  const address = new PublishedAddress('', () => found);
  assert.equal(address.current(), '10.0.0.1');
  found = network({ ...LO, ...bridge });
  assert.equal(address.current(), '10.0.0.1');
  found = network({ ...LO, ...bridge, eth0: ['10.0.0.2'] });
  assert.equal(address.current(), '10.0.0.2');
});

test('an advertised address counts, whatever the host has', () =>
  assert.equal(new PublishedAddress('10.9.9.9', () => network(LO)).current(), '10.9.9.9'));

test('the published address comes late, stays while the host has it, and follows the default route', () => {
  let found = network(LO);
  const address = new PublishedAddress('', () => found);
  assert.equal(address.current(), undefined);
  found = network({ ...LO, eth1: ['10.1.0.1'] });
  assert.equal(address.current(), '10.1.0.1');
  found = network({ ...LO, eth0: ['10.0.0.1'], eth1: ['10.1.0.1'] });
  assert.equal(address.current(), '10.1.0.1', 'another address is no reason to change');
  found = network({ ...LO, eth0: ['10.0.0.1'], eth1: ['10.1.0.1'] }, 'eth0');
  assert.equal(address.current(), '10.0.0.1');
  found = network({ ...LO, eth0: ['10.0.0.7'], eth1: ['10.1.0.1'] }, 'eth0');
  assert.equal(address.current(), '10.0.0.7');
  found = network(LO);
  assert.equal(address.current(), '10.0.0.7', 'a host that loses its network keeps what it published');
});
