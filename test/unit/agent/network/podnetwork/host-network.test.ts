/**
 * The commands that reach the tools `ip`, `bridge` and `wg`, and what is read from their output, on kernels with and without
 * WireGuard. The tools are scripts here that answer as those of iproute2 6.1 and wireguard-tools 1.0 do.
 */
import assert from 'node:assert/strict';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, it } from 'node:test';
import type { Peer } from '../../../../../agent/network/podnetwork/cluster-nodes.ts';
import { desiredNetwork } from '../../../../../agent/network/podnetwork/desired-network.ts';
import { type HostNetwork, hostNetwork } from '../../../../../agent/network/podnetwork/host-network.ts';
import { commandsFor, isEmpty } from '../../../../../agent/network/podnetwork/network-difference.ts';
import { parseCidr, parseIp } from '../../../../../api/meta/ip-addresses.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const PEER_KEY = 'cGVlcmtleXBlZXJrZXlwZWVya2V5cGVlcmtleXBlMQ0=';
const OWN_KEY = 'b3dua2V5b3dua2V5b3dua2V5b3dua2V5b3dua2V5MQ0=';
const cidrs = (...texts: readonly string[]) => texts.flatMap((text) => parseCidr(text) ?? []);
const [address, peerAddress] = [parseIp('192.0.2.1'), parseIp('192.0.2.2')];

/** What a tool prints for arguments that match: standard output, standard error, exit code. */
type Answers = readonly (readonly [pattern: RegExp, stdout: string, stderr?: string, code?: number])[];

const folders: string[] = [];
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

/** Returns the network of a host whose tools give these answers, and a function that returns all commands so far. */
function host(answers: Answers): { readonly network: HostNetwork; readonly commands: () => readonly string[] } {
  const folder = temporaryFolder();
  folders.push(folder);
  const [script, log] = [join(folder, 'tool.cjs'), join(folder, 'log')];
  const rows = answers.map(([pattern, ...answer]) => [pattern.source, ...answer]);
  writeFileSync(
    script,
    `const { appendFileSync, readFileSync } = require('node:fs');
const line = process.argv.slice(2).join(' ');
const input = line.includes('-batch') ? readFileSync(0, 'utf8').trimEnd() : '';
appendFileSync(${JSON.stringify(log)}, (input === '' ? line : input.replace(/^/gm, line.split(' ')[0] + ' ')) + '\\n');
for (const [pattern, stdout, stderr = '', code = 0] of ${JSON.stringify(rows)})
  if (new RegExp(pattern).test(line)) {
    process.stdout.write(stdout);
    process.stderr.write(stderr);
    process.exitCode = code;
    break;
  }`,
  );
  return {
    network: hostNetwork([process.execPath, script]),
    commands: () => (existsSync(log) ? readFileSync(log, 'utf8').trimEnd().split('\n') : []),
  };
}

const PROBE = /^ip link add orchlet\.probe mtu \d+ type wireguard$/;
const UNKNOWN: Answers[number] = [/type wireguard$/, '', 'Error: Unknown device type.\n', 2];

describe('a host', () => {
  it('supports WireGuard if its kernel refuses the size of the link alone', async () => {
    const { network } = host([[PROBE, '', 'Error: mtu greater than device maximum.\n', 2]]);
    assert.deepEqual(await network.linkSupport('wireguard'), { problem: '', substitute: '' });
  });

  it('uses wireguard-go if its kernel does not know the kind of link', async () => {
    const { problem, substitute } = await host([UNKNOWN]).network.linkSupport('wireguard');
    assert.equal(problem, '');
    assert.match(substitute, /wireguard-go/);
  });

  it('may not be changed without CAP_NET_ADMIN', async () => {
    const { network } = host([[PROBE, '', 'RTNETLINK answers: Operation not permitted\n', 2]]);
    assert.match((await network.linkSupport('wireguard')).problem, /CAP_NET_ADMIN/);
  });
});

describe('a WireGuard link', () => {
  assert.ok(address && peerAddress);
  const peer: Peer = {
    ...{ name: 'b', publicKey: PEER_KEY, endpoint: '192.0.2.2:51820' },
    ...{ ranges: cidrs('10.244.2.0/24', 'fd00:2::/64'), addresses: [peerAddress] },
  };
  const { network: desired } = desiredNetwork({
    ...{ mode: 'wireguard', port: 51_820, ranges: cidrs('10.244.1.0/24', 'fd00:1::/64'), peers: [peer] },
    uplink: { name: 'eth0', mtu: 1500, address, networks: [] },
    keys: { publicKey: OWN_KEY, privateKeyFile: '/state/wireguard.key' },
  });
  const WANTED = [
    `wg set orchlet.wg listen-port 51820 private-key /state/wireguard.key peer ${PEER_KEY} endpoint 192.0.2.2:51820 allowed-ips 10.244.2.0/24,fd00:2::/64`,
    'ip link set dev orchlet.wg mtu 1440 up',
    'ip address add 10.244.1.1/32 dev orchlet.wg',
    'ip address add fd00:1::1/128 dev orchlet.wg nodad',
    'ip route add 10.244.2.0/24 dev orchlet.wg proto 111 src 10.244.1.1',
    'ip route add fd00:2::/64 dev orchlet.wg proto 111 src fd00:1::1',
  ];

  it('is created in a kernel that has WireGuard, with its keys before it is up', async () => {
    const { network, commands } = host([
      [/address show dev orchlet\.wg/, '', 'Device "orchlet.wg" does not exist.\n', 1],
    ]);
    await network.change(commandsFor(desired, await network.observe()));
    const changes = commands().filter((line) => !/ show|^bridge -j/.test(line));
    assert.deepEqual(changes, ['ip link add orchlet.wg type wireguard', ...WANTED]);
  });

  it('is created by wireguard-go where the kernel has none', async () => {
    const { network, commands } = host([
      UNKNOWN,
      [/address show dev orchlet\.wg/, '', 'Device "orchlet.wg" does not exist.\n', 1],
    ]);
    await network.change(commandsFor(desired, await network.observe()));
    const changes = commands().filter((line) => !/ show|^bridge -j/.test(line));
    assert.deepEqual(changes, ['ip link add orchlet.wg type wireguard', 'wireguard-go orchlet.wg', ...WANTED]);
  });

  it('is not touched if the kernel and the tool wg show it as it is desired', async () => {
    const link = {
      ...{ ifname: 'orchlet.wg', mtu: 1440, flags: ['POINTOPOINT', 'NOARP', 'UP', 'LOWER_UP'], link_type: 'none' },
      linkinfo: { info_kind: 'wireguard' },
      addr_info: [
        { family: 'inet', local: '10.244.1.1', prefixlen: 32, scope: 'global' },
        { family: 'inet6', local: 'fd00:1::1', prefixlen: 128, scope: 'global' },
      ],
    };
    const dump = [
      `(hidden)\t${OWN_KEY}\t51820\toff`,
      `${PEER_KEY}\t(none)\t192.0.2.2:51820\t10.244.2.0/24,fd00:2::/64\t1764270000\t92\t148\toff`,
    ];
    const route = { protocol: '111', dev: 'orchlet.wg', flags: [], scope: 'link' };
    const { network } = host([
      [/address show dev orchlet\.wg/, JSON.stringify([link])],
      [/^wg show orchlet\.wg dump$/, `${dump.join('\n')}\n`],
      [
        /route show table all proto 111/,
        JSON.stringify([
          { ...route, dst: '10.244.2.0/24', prefsrc: '10.244.1.1' },
          { ...route, dst: 'fd00:2::/64', prefsrc: 'fd00:1::1', metric: 1024 },
        ]),
      ],
    ]);
    assert.ok(isEmpty(commandsFor(desired, await network.observe())));
  });

  it('gets a new key of a peer in place of the old one, and its port again', async () => {
    const dump = `(hidden)\t${OWN_KEY}\t40000\toff\nold\t(none)\t192.0.2.2:51820\t10.244.2.0/24\t0\t0\t0\toff\n`;
    const { network, commands } = host([
      [/address show dev orchlet\.wg/, JSON.stringify([{ ifname: 'orchlet.wg', mtu: 1440, flags: ['UP'] }])],
      [/^wg show orchlet\.wg dump$/, dump],
    ]);
    await network.change(commandsFor(desired, await network.observe()));
    const set = commands().find((line) => line.startsWith('wg set'));
    assert.equal(
      set,
      `wg set orchlet.wg listen-port 51820 peer old remove peer ${PEER_KEY} endpoint 192.0.2.2:51820 allowed-ips 10.244.2.0/24,fd00:2::/64`,
    );
  });
});

it('a command of a batch that fails is named with the reason, and the others are run', async () => {
  const { network, commands } = host([
    [/^ip -force -batch -/, '', 'Error: any valid prefix is expected.\nCommand failed -:1\n', 1],
  ]);
  await assert.rejects(
    network.change({
      before: [],
      createsWireguard: false,
      ip: ['route add x dev y'],
      bridge: ['fdb del z'],
      wireguard: [],
    }),
    /any valid prefix is expected\. \(route add x dev y\)/,
  );
  assert.deepEqual(commands(), ['ip route add x dev y', 'bridge fdb del z']);
});
