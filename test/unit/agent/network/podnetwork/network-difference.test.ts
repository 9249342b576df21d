import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Peer } from '../../../../../agent/network/podnetwork/cluster-nodes.ts';
import {
  desiredNetwork,
  type DesiredNetwork,
  type NetworkInputs,
  NO_NETWORK,
  podMtu,
  tunnelMac,
  type Uplink,
} from '../../../../../agent/network/podnetwork/desired-network.ts';
import {
  commandsFor,
  isEmpty,
  type ObservedNetwork,
  removalCommands,
} from '../../../../../agent/network/podnetwork/network-difference.ts';
import { parseCidr, parseIp } from '../../../../../api/meta/ip-addresses.ts';

const cidrs = (...texts: readonly string[]) => texts.flatMap((text) => parseCidr(text) ?? []);
const ips = (...texts: readonly string[]) => texts.flatMap((text) => parseIp(text) ?? []);

function uplink(more: Partial<Uplink> = {}): Uplink {
  const [address] = ips('192.0.2.1');
  assert.ok(address);
  return { name: 'eth0', mtu: 1500, address, networks: cidrs('192.0.2.1/24', '2001:db8::1/64'), ...more };
}

function peer(name: string, number: number, more: Partial<Peer> = {}): Peer {
  return {
    name,
    ranges: cidrs(`10.244.${number}.0/24`),
    addresses: ips(`192.0.2.${number}`),
    publicKey: `key-of-${name}`,
    endpoint: `192.0.2.${number}:51820`,
    ...more,
  };
}

const B = peer('b', 2);
const C = peer('c', 3);
const KEYS = { publicKey: 'own-key', privateKeyFile: '/state/key' };

function inputs(more: Partial<NetworkInputs> = {}): NetworkInputs {
  return {
    mode: 'vxlan',
    port: 8472,
    ranges: cidrs('10.244.1.0/24'),
    uplink: uplink(),
    peers: [B],
    keys: KEYS,
    ...more,
  };
}

const NOTHING: ObservedNetwork = {
  ...{ links: [], routes: [], neighbors: [], forwarding: [], wireguard: undefined, wireguardPeers: [] },
};

/** Returns what the kernel has once the commands for the desired network have run. */
function made(network: DesiredNetwork): ObservedNetwork {
  const { link, addresses, routes, neighbors, forwarding, wireguardPeers } = network;
  const links =
    link === undefined
      ? []
      : [{ name: link.name, mtu: link.mtu, isUp: true, addresses, vxlan: link.kind === 'vxlan' ? link : undefined }];
  const wireguard = link?.kind === 'wireguard' ? { publicKey: link.keys.publicKey, port: link.port } : undefined;
  return { links, routes, neighbors, forwarding, wireguard, wireguardPeers };
}

const after = (from: NetworkInputs, to: NetworkInputs) =>
  commandsFor(desiredNetwork(to).network, made(desiredNetwork(from).network));

const B_MAC = tunnelMac(B.ranges);

describe('the first commands', () => {
  it('create a VXLAN link with routes, neighbors and forwarding entries', () => {
    const mac = tunnelMac(cidrs('10.244.1.0/24'));
    assert.deepEqual(commandsFor(desiredNetwork(inputs()).network, NOTHING), {
      before: [
        `link add orchlet.vxlan address ${mac} mtu 1450 type vxlan id 7842 dstport 8472 local 192.0.2.1 dev eth0 nolearning`,
      ],
      createsWireguard: false,
      ip: [
        'link set dev orchlet.vxlan up',
        'address add 10.244.1.1/32 dev orchlet.vxlan',
        `neighbor replace 10.244.2.1 lladdr ${B_MAC} dev orchlet.vxlan nud permanent`,
        'route add 10.244.2.0/24 via 10.244.2.1 dev orchlet.vxlan proto 111 onlink src 10.244.1.1',
      ],
      bridge: [`fdb replace ${B_MAC} dev orchlet.vxlan dst 192.0.2.2 self permanent`],
      wireguard: [],
    });
  });

  it('create a WireGuard link whose peers may send from their pod ranges only', () => {
    assert.deepEqual(commandsFor(desiredNetwork(inputs({ mode: 'wireguard', port: 51_820 })).network, NOTHING), {
      before: [],
      createsWireguard: true,
      ip: [
        'link set dev orchlet.wg mtu 1440 up',
        'address add 10.244.1.1/32 dev orchlet.wg',
        'route add 10.244.2.0/24 dev orchlet.wg proto 111 src 10.244.1.1',
      ],
      bridge: [],
      wireguard: [
        ...['listen-port', '51820', 'private-key', '/state/key'],
        ...['peer', 'key-of-b', 'endpoint', '192.0.2.2:51820', 'allowed-ips', '10.244.2.0/24'],
      ],
    });
  });

  it('add routes alone where nodes are on one link', () => {
    assert.deepEqual(commandsFor(desiredNetwork(inputs({ mode: 'routes' })).network, NOTHING), {
      ...{ before: [], createsWireguard: false, bridge: [], wireguard: [] },
      ip: ['route add 10.244.2.0/24 via 192.0.2.2 dev eth0 proto 111'],
    });
  });

  it('do nothing without peers', () => {
    for (const mode of ['vxlan', 'wireguard', 'routes'] as const)
      assert.ok(isEmpty(commandsFor(desiredNetwork(inputs({ mode, peers: [] })).network, NOTHING)));
  });
});

describe('later commands', () => {
  it('change nothing if nothing has changed', () => {
    for (const mode of ['vxlan', 'wireguard', 'routes'] as const)
      assert.ok(isEmpty(after(inputs({ mode }), inputs({ mode }))), mode);
  });

  it('add a node and leave the others alone', () => {
    const mac = tunnelMac(C.ranges);
    assert.deepEqual(after(inputs(), inputs({ peers: [B, C] })), {
      ...{ before: [], createsWireguard: false, wireguard: [] },
      ip: [
        `neighbor replace 10.244.3.1 lladdr ${mac} dev orchlet.vxlan nud permanent`,
        'route add 10.244.3.0/24 via 10.244.3.1 dev orchlet.vxlan proto 111 onlink src 10.244.1.1',
      ],
      bridge: [`fdb replace ${mac} dev orchlet.vxlan dst 192.0.2.3 self permanent`],
    });
  });

  it('remove a node', () => {
    assert.deepEqual(after(inputs({ peers: [B, C] }), inputs({ peers: [C] })), {
      before: ['route del 10.244.2.0/24 via 10.244.2.1 dev orchlet.vxlan proto 111'],
      createsWireguard: false,
      ip: ['neighbor del 10.244.2.1 dev orchlet.vxlan'],
      bridge: [`fdb del ${B_MAC} dev orchlet.vxlan dst 192.0.2.2 self`],
      wireguard: [],
    });
    assert.deepEqual(
      after(inputs({ mode: 'wireguard', peers: [B, C] }), inputs({ mode: 'wireguard', peers: [C] })).wireguard,
      [...['peer', 'key-of-b', 'remove']],
    );
  });

  it('follow a changed address of a node', () => {
    const moved = inputs({ peers: [{ ...B, addresses: ips('192.0.2.99') }] });
    assert.deepEqual(after(inputs(), moved).bridge, [
      `fdb del ${B_MAC} dev orchlet.vxlan dst 192.0.2.2 self`,
      `fdb replace ${B_MAC} dev orchlet.vxlan dst 192.0.2.99 self permanent`,
    ]);
    assert.deepEqual(after(inputs(), moved).ip, []);
  });

  it('recreate the link when the address of this node has changed', () => {
    const [address] = ips('192.0.2.50');
    assert.ok(address);
    const { before, ip, bridge } = after(inputs(), inputs({ uplink: uplink({ address }) }));
    assert.deepEqual(
      before.map((line) => line.split(' ').slice(0, 3).join(' ')),
      ['link del dev', 'link add orchlet.vxlan'],
    );
    assert.ok(ip.some((line) => line.startsWith('route add 10.244.2.0/24')));
    assert.equal(bridge.length, 1);
  });

  it('set another MTU on the link that is there', () => {
    assert.deepEqual(after(inputs(), inputs({ uplink: uplink({ mtu: 9000 }) })).ip, [
      'link set dev orchlet.vxlan mtu 8950',
    ]);
    assert.deepEqual(after(inputs(), inputs({ uplink: uplink({ mtu: 9000 }) })).before, []);
  });

  it('replace one mode by another', () => {
    const { before, ip } = after(inputs(), inputs({ mode: 'routes' }));
    assert.deepEqual(before, ['link del dev orchlet.vxlan']);
    assert.deepEqual(ip, ['route add 10.244.2.0/24 via 192.0.2.2 dev eth0 proto 111']);
    assert.deepEqual(after(inputs({ mode: 'routes' }), inputs()).before.slice(0, 1), [
      'route del 10.244.2.0/24 via 192.0.2.2 dev eth0 proto 111',
    ]);
  });

  it('restore what another program has removed', () => {
    const { network } = desiredNetwork(inputs());
    const whole = made(network);
    const [link] = whole.links;
    assert.ok(link);
    const down = commandsFor(network, { ...whole, links: [{ ...link, isUp: false, addresses: [] }], routes: [] });
    assert.deepEqual(down.ip, [
      'link set dev orchlet.vxlan up',
      'address add 10.244.1.1/32 dev orchlet.vxlan',
      'route add 10.244.2.0/24 via 10.244.2.1 dev orchlet.vxlan proto 111 onlink src 10.244.1.1',
    ]);
    assert.equal(commandsFor(network, { ...whole, forwarding: [] }).bridge.length, 1);
  });

  it('take a new WireGuard key of this node, and of a peer', () => {
    const first = inputs({ mode: 'wireguard' });
    assert.deepEqual(after(first, { ...first, keys: { publicKey: 'new', privateKeyFile: '/state/key' } }).wireguard, [
      ...['private-key', '/state/key'],
    ]);
    assert.deepEqual(after(first, { ...first, peers: [{ ...B, publicKey: 'new' }] }).wireguard, [
      ...['peer', 'key-of-b', 'remove'],
      ...['peer', 'new', 'endpoint', '192.0.2.2:51820', 'allowed-ips', '10.244.2.0/24'],
    ]);
  });

  it('remove everything', () => {
    assert.deepEqual(commandsFor(NO_NETWORK, made(desiredNetwork(inputs()).network)).before, [
      'link del dev orchlet.vxlan',
    ]);
    assert.deepEqual(removalCommands(made(desiredNetwork(inputs({ mode: 'routes' })).network)), [
      'route del 10.244.2.0/24 via 192.0.2.2 dev eth0 proto 111',
    ]);
    assert.deepEqual(removalCommands(made(desiredNetwork(inputs()).network)), ['link del dev orchlet.vxlan']);
  });
});

describe('the desired network', () => {
  it('has both families of pods over one family of nodes', () => {
    const dual = { ...B, ranges: cidrs('10.244.2.0/24', 'fd00:2::/64') };
    const { network } = desiredNetwork(inputs({ ranges: cidrs('10.244.1.0/24', 'fd00:1::/64'), peers: [dual] }));
    assert.deepEqual(network.addresses, ['10.244.1.1/32', 'fd00:1::1/128']);
    assert.deepEqual(
      network.routes.map(({ destination, gateway, source }) => [destination, gateway, source]),
      [
        ['10.244.2.0/24', '10.244.2.1', '10.244.1.1'],
        ['fd00:2::/64', 'fd00:2::1', 'fd00:1::1'],
      ],
    );
    assert.equal(network.forwarding.length, 1);
  });

  it('leaves out families that the pods of this node do not have', () => {
    const dual = { ...B, ranges: cidrs('10.244.2.0/24', 'fd00:2::/64') };
    assert.deepEqual(
      desiredNetwork(inputs({ peers: [dual] })).network.routes.map(({ destination }) => destination),
      ['10.244.2.0/24'],
    );
  });

  it('refuses peers that cannot be reached, with the reason', () => {
    const reasons = (more: Partial<NetworkInputs>) => desiredNetwork(inputs(more)).refusals.map(({ reason }) => reason);
    const six = { ...C, addresses: ips('2001:db8::3') };
    assert.deepEqual(reasons({ peers: [six] }), ['it has no IPv4 address, which this node uses between nodes']);
    assert.deepEqual(reasons({ mode: 'wireguard', peers: [{ ...B, publicKey: '', endpoint: '' }] }), [
      'it has published no valid WireGuard key and endpoint yet',
    ]);
    assert.deepEqual(reasons({ mode: 'wireguard', peers: [B, { ...C, publicKey: B.publicKey }] }), [
      'its WireGuard key is that of another node',
    ]);
    assert.deepEqual(reasons({ mode: 'wireguard', peers: [{ ...B, publicKey: 'own-key' }] }), [
      'its WireGuard key is that of another node',
    ]);
    assert.deepEqual(reasons({ mode: 'routes', peers: [{ ...B, addresses: ips('198.51.100.2') }] }), [
      'its address 198.51.100.2 is not on the network of eth0, so that routes cannot reach it',
    ]);
    assert.deepEqual(reasons({ mode: 'routes', peers: [six] }), [
      'it has no IPv4 address as the gateway of 10.244.3.0/24',
    ]);
  });

  it('has room for what an encapsulated packet adds', () => {
    const [six] = ips('2001:db8::1');
    assert.ok(six);
    const mtu = (mode: 'vxlan' | 'wireguard' | 'routes'): readonly number[] => [
      podMtu(mode, uplink()),
      podMtu(mode, uplink({ address: six })),
    ];
    assert.deepEqual(
      [mtu('vxlan'), mtu('wireguard'), mtu('routes')],
      [
        [1450, 1430],
        [1440, 1420],
        [1500, 1500],
      ],
    );
  });
});
