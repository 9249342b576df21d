/** The addresses that a node reports if it is given none. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { NetworkInterfaceInfo } from 'node:os';
import { hostAddresses } from '../../../../agent/host/host-facts.ts';

const on = (...addresses: readonly string[]): NetworkInterfaceInfo[] =>
  addresses.map((address) => ({
    ...{ address, internal: address.startsWith('127.'), netmask: '', mac: '', cidr: null, family: 'IPv4' as const },
  }));
const INTERFACES = {
  ...{ lo: on('127.0.0.1'), docker0: on('172.17.0.1'), 'orchlet.pods': on('10.244.0.1') },
  ...{ eth0: on('10.0.0.1', 'fe80::1', 'fd00::1'), eth1: on('10.1.0.1'), 'br-lan': on('10.2.0.1') },
};

for (const [what, routed, wanted] of [
  ['begin with those of the default route', ['eth1'], ['10.1.0.1', '10.0.0.1', 'fd00::1']],
  ['begin with those of the preferred one of two', ['eth1', 'eth0'], ['10.1.0.1', '10.0.0.1', 'fd00::1']],
  [
    'of a bridge with the default route count, whatever its name is',
    ['br-lan'],
    ['10.2.0.1', '10.0.0.1', 'fd00::1', '10.1.0.1'],
  ],
  ['without a default route are all but those of container networks', [], ['10.0.0.1', 'fd00::1', '10.1.0.1']],
] as const)
  test(`the addresses of a host ${what}`, () => assert.deepEqual(hostAddresses(INTERFACES, routed), wanted));

test('a host without a network has its loopback address', () =>
  assert.deepEqual(hostAddresses({ lo: on('127.0.0.1'), docker0: on('172.17.0.1') }, []), ['127.0.0.1']));
