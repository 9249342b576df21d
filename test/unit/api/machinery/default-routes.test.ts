import assert from 'node:assert/strict';
import { test } from 'node:test';
import { defaults6Of, defaultsOf, isContainerInterface } from '../../../../api/machinery/default-routes.ts';

test('default routes are read from the tables of the kernel', () => {
  const four = [
    'Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT',
    'wlan0\t00000000\t0100A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0',
    'eth0\t00000000\t0100A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0',
    'eth1\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0',
    'tun0\t00000000\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0',
  ];
  assert.deepEqual(defaultsOf(four.join('\n')), ['eth0', 'wlan0']);
  const zero = '0'.repeat(32);
  const six = [
    `${zero} 00 ${zero} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth0`,
    `fd000000000000000000000000000000 40 ${zero} 00 ${zero} 00000100 00000001 00000000 00000001     eth1`,
    `${zero} 00 ${zero} 00 ${zero} ffffffff 00000001 00000000 00200200       lo`,
  ];
  assert.deepEqual(defaults6Of(six.join('\n')), ['eth0']);
  assert.deepEqual([...defaultsOf(''), ...defaults6Of('')], []);
});

test('interfaces of container networks are known by their names', () => {
  const names = [
    'docker0',
    'br-0a1b',
    'veth12',
    'cni0',
    'cbr0',
    'orchlet.pods',
    'orc0123456789',
    'eth0',
    'orca0',
    'bond0',
  ];
  assert.deepEqual(
    names.filter((name) => !isContainerInterface(name)),
    ['eth0', 'orca0', 'bond0'],
  );
});
