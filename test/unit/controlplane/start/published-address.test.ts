import assert from 'node:assert/strict';
import type { NetworkInterfaceInfo } from 'node:os';
import { test } from 'node:test';
import {
  defaults6Of,
  defaultsOf,
  type HostNetwork,
  PublishedAddress,
} from '../../../../controlplane/start/published-address.ts';

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
    routed: new Set(routed),
  };
}

const LO = { lo: ['127.0.0.1', '::1'] };

for (const [what, found, wanted] of [
  ['a host without a network has none', network(LO), undefined],
  ['a link-local address is none', network({ ...LO, eth0: ['fe80::1'] }), undefined],
  ['the interface with the default route is first', network({ a: ['10.0.0.1'], b: ['10.1.0.1'] }, 'b'), '10.1.0.1'],
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

test('default routes are read from the tables of the kernel', () => {
  const four = [
    'Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT',
    'eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0',
    'eth1\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0',
    'tun0\t00000000\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0',
  ];
  assert.deepEqual(defaultsOf(four.join('\n')), ['eth0']);
  const zero = '0'.repeat(32);
  const six = [
    `${zero} 00 ${zero} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth0`,
    `fd000000000000000000000000000000 40 ${zero} 00 ${zero} 00000100 00000001 00000000 00000001     eth1`,
    `${zero} 00 ${zero} 00 ${zero} ffffffff 00000001 00000000 00200200       lo`,
  ];
  assert.deepEqual(defaults6Of(six.join('\n')), ['eth0']);
  assert.deepEqual([...defaultsOf(''), ...defaults6Of('')], []);
});
