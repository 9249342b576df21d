import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  choosePeers,
  clusterNode,
  type ClusterNode,
  type OwnClaims,
} from '../../../../../agent/network/podnetwork/cluster-nodes.ts';
import { formatCidr, formatIp, parseCidr, parseIp } from '../../../../../api/meta/ip-addresses.ts';

const KEY = `${'A'.repeat(42)}A=`;

const cidrs = (...texts: readonly string[]) => texts.flatMap((text) => parseCidr(text) ?? []);
const ips = (...texts: readonly string[]) => texts.flatMap((text) => parseIp(text) ?? []);

const OWN: OwnClaims = {
  name: 'own',
  ranges: cidrs('10.244.0.0/24', 'fd00:244::/64'),
  hostAddresses: ips('127.0.0.1', '192.0.2.1', '2001:db8::1', '10.244.0.1'),
  clusterRanges: cidrs('10.244.0.0/16', 'fd00:244::/48'),
};

function node(name: string, more: Partial<ClusterNode> = {}): ClusterNode {
  return {
    ...{ name, createdAt: '2026-01-02T00:00:00Z', ranges: ['10.244.1.0/24'], addresses: ['192.0.2.2'] },
    ...{ publicKey: '', endpoint: '' },
    ...more,
  };
}

const outcome = (nodes: readonly ClusterNode[], own: Partial<OwnClaims> = {}): readonly string[] => {
  const { peers, refusals } = choosePeers(nodes, { ...OWN, ...own });
  return [
    ...peers.map(({ name, ranges, addresses }) =>
      [name, ...ranges.map(formatCidr), ...addresses.map(formatIp)].join(' '),
    ),
    ...refusals.map(({ node: other, reason }) => `${other}: ${reason}`),
  ];
};

describe('the peers of the pod network', () => {
  const cases: readonly (readonly [name: string, nodes: readonly ClusterNode[], expected: readonly string[]])[] = [
    ['a node with a range and an address is a peer', [node('b')], ['b 10.244.1.0/24 192.0.2.2']],
    [
      'a node has an address of each family, of several the first',
      [
        node('b', {
          ranges: ['10.244.1.0/24', 'fd00:244:0:1::/64'],
          addresses: ['192.0.2.2', '192.0.2.3', '2001:DB8::2'],
        }),
      ],
      ['b 10.244.1.0/24 fd00:244:0:1::/64 192.0.2.2 2001:db8::2'],
    ],
    ['the own node is no peer', [node('own')], []],
    ['a node without a range is no peer yet', [node('b', { ranges: [] })], []],
    ['a range that is none', [node('b', { ranges: ['10.244.1.0'] })], ['b: its pod range "10.244.1.0" is not a range']],
    [
      'the range of this node',
      [node('b', { ranges: ['10.244.0.0/24'] })],
      ['b: its pod range "10.244.0.0/24" overlaps 10.244.0.0/24 of another node'],
    ],
    [
      'a part of the range of this node',
      [node('b', { ranges: ['fd00:244::/80'] })],
      ['b: its pod range "fd00:244::/80" overlaps fd00:244::/64 of another node'],
    ],
    [
      'the range of an older node, whatever the order of the list',
      [
        node('evil', { ranges: ['10.244.1.0/25'], addresses: ['192.0.2.9'], createdAt: '2026-01-03T00:00:00Z' }),
        node('b'),
      ],
      ['b 10.244.1.0/24 192.0.2.2', 'evil: its pod range "10.244.1.0/25" overlaps 10.244.1.0/24 of another node'],
    ],
    [
      'all addresses',
      [node('b', { ranges: ['0.0.0.0/0'] })],
      ['b: its pod range "0.0.0.0/0" has addresses that are not for pods'],
    ],
    [
      'public addresses',
      [node('b', { ranges: ['198.51.100.0/24'] })],
      ['b: its pod range "198.51.100.0/24" is not within the ranges of the cluster'],
    ],
    [
      'loopback, link-local and multicast ranges',
      ['127.1.0.0/24', '169.254.0.0/24', '224.1.0.0/24', 'fe80::/64', '::/64'].map((range, at) =>
        node(`b${at}`, { ranges: [range] }),
      ),
      ['127.1.0.0/24', '169.254.0.0/24', '224.1.0.0/24', 'fe80::/64', '::/64'].map(
        (range, at) => `b${at}: its pod range "${range}" has addresses that are not for pods`,
      ),
    ],
    [
      'more ranges than a node can have',
      [node('b', { ranges: ['10.244.1.0/24', '10.244.2.0/24', '10.244.3.0/24'] })],
      ['b: it has 3 pod ranges'],
    ],
    [
      'two ranges that overlap each other',
      [node('b', { ranges: ['10.244.1.0/24', '10.244.1.0/25'] })],
      ['b: its pod range "10.244.1.0/25" overlaps 10.244.1.0/24 of another node'],
    ],
    [
      'the address of this node',
      [node('b', { addresses: ['192.0.2.1'] })],
      ['b: its address "192.0.2.1" is the address of another node'],
    ],
    [
      'the address of an older node',
      [node('b'), node('evil', { ranges: ['10.244.2.0/24'], createdAt: '2026-01-03T00:00:00Z' })],
      ['b 10.244.1.0/24 192.0.2.2', 'evil: its address "192.0.2.2" is the address of another node'],
    ],
    [
      'loopback, link-local, multicast and unspecified addresses',
      ['127.0.0.5', '169.254.1.1', '224.0.0.1', '::'].map((address, at) =>
        node(`b${at}`, { ranges: [`10.244.${at + 1}.0/24`], addresses: [address] }),
      ),
      ['127.0.0.5', '169.254.1.1', '224.0.0.1', '::'].map(
        (address, at) => `b${at}: its address "${address}" cannot be the address of a node`,
      ),
    ],
    [
      'an address among the pods of this node',
      [node('b', { addresses: ['10.244.0.7'] })],
      ['b: its address "10.244.0.7" lies in the pod range 10.244.0.0/24'],
    ],
    ['no address', [node('b', { addresses: [] })], ['b: it has no address of type InternalIP']],
    [
      'text instead of an address, of which only the beginning is shown',
      [node('b', { addresses: [`x${'y'.repeat(200)}`] })],
      [`b: its address "x${'y'.repeat(59)}" is not an address`],
    ],
  ];
  const SINCE = '2026-01-05T00:00:00.000000Z';
  const LATER = '2026-01-06T00:00:00.000000Z';
  const newer = (more: Partial<ClusterNode> = {}): ClusterNode =>
    node('newer', { createdAt: '2026-01-04T00:00:00Z', claims: `192.0.2.2 ${SINCE}`, ...more });
  const refused = 'older: its address "192.0.2.2" is the address of another node';

  it('an older node that claims the address of a newer one loses to the requests that come from there', () => {
    const older = node('older', { ranges: ['10.244.2.0/24'] });
    assert.deepEqual(outcome([older, newer()]), ['newer 10.244.1.0/24 192.0.2.2', refused]);
    // The node may also send requests from there, for example by a pod on the other node, but later.
    const relayed = { ...older, claims: `192.0.2.2 ${LATER}` };
    assert.deepEqual(outcome([relayed, newer()]), ['newer 10.244.1.0/24 192.0.2.2', refused]);
    const first = { ...older, claims: `192.0.2.2 ${SINCE}` };
    assert.deepEqual(outcome([newer({ claims: `192.0.2.2 ${LATER}` }), first]), [
      'older 10.244.2.0/24 192.0.2.2',
      'newer: its address "192.0.2.2" is the address of another node',
    ]);
  });

  it('an older node that claims an address among the pods of a newer one does not take its range', () => {
    const older = node('older', { ranges: ['10.244.2.0/24'], addresses: ['10.244.1.7'] });
    assert.deepEqual(outcome([older, newer()]), [
      'newer 10.244.1.0/24 192.0.2.2',
      'older: its address "10.244.1.7" lies in the pod range 10.244.0.0/16',
    ]);
  });

  it('records count only in clusters that publish their ranges, since other API servers let nodes write them', () => {
    const older = node('older', { ranges: ['10.244.2.0/24'] });
    assert.deepEqual(outcome([older, newer()], { clusterRanges: [] }), [
      'older 10.244.2.0/24 192.0.2.2',
      'newer: its address "192.0.2.2" is the address of another node',
    ]);
  });

  for (const [name, nodes, expected] of cases) it(name, () => assert.deepEqual(outcome(nodes), expected));

  it('a range with an address of this host is refused, even within the ranges of the cluster', () => {
    const own = { hostAddresses: ips('10.244.9.9') };
    assert.deepEqual(outcome([node('b', { ranges: ['10.244.9.0/24'] })], own), [
      'b: its pod range "10.244.9.0/24" contains the node address 10.244.9.9',
    ]);
  });

  it('without the ranges of the cluster, only private ranges are accepted', () => {
    const own = { clusterRanges: [] };
    assert.deepEqual(outcome([node('b', { ranges: ['10.9.1.0/24'] })], own), ['b 10.9.1.0/24 192.0.2.2']);
    assert.deepEqual(outcome([node('b', { ranges: ['8.8.8.0/24'] })], own), [
      'b: its pod range "8.8.8.0/24" has public addresses',
    ]);
  });
});

describe('the WireGuard key of a peer', () => {
  const keyOf = (more: Partial<ClusterNode>): readonly string[] => {
    const [peer] = choosePeers([node('b', { addresses: ['192.0.2.2', '2001:db8::2'], ...more })], OWN).peers;
    return [peer?.publicKey ?? '', peer?.endpoint ?? ''];
  };

  it('goes with an endpoint at an address of the same node', () => {
    assert.deepEqual(keyOf({ publicKey: KEY, endpoint: '192.0.2.2:51820' }), [KEY, '192.0.2.2:51820']);
    assert.deepEqual(keyOf({ publicKey: KEY, endpoint: '[2001:DB8::2]:51820' }), [KEY, '[2001:db8::2]:51820']);
  });

  it('belongs to the node that published it first, and not to an older one that copied it', () => {
    const of = (name: string, number: number, more: Partial<ClusterNode>): ClusterNode =>
      node(name, {
        ranges: [`10.244.${number}.0/24`],
        addresses: [`192.0.2.${number + 1}`],
        ...{ publicKey: KEY, endpoint: `192.0.2.${number + 1}:51820`, ...more },
      });
    const { peers } = choosePeers(
      [
        of('older', 1, { createdAt: '2026-01-01T00:00:00Z' }),
        of('newer', 2, { claims: `192.0.2.3 2026-01-05T00:00:00Z,${KEY} 2026-01-05T00:00:00Z` }),
      ],
      OWN,
    );
    assert.deepEqual(
      peers.map(({ name, publicKey }) => [name, publicKey]),
      [
        ['older', ''],
        ['newer', KEY],
      ],
    );
  });

  it('is not used with an endpoint elsewhere, or one that is none', () => {
    for (const endpoint of [
      '192.0.2.1:51820',
      '127.0.0.1:51820',
      '192.0.2.2:0',
      '192.0.2.2:70000',
      '192.0.2.2',
      'b:1',
      '',
    ])
      assert.deepEqual(keyOf({ publicKey: KEY, endpoint }), ['', '']);
  });

  it('is not used if it is no key', () => {
    for (const publicKey of ['', 'AAAA', `${'A'.repeat(42)}B=`, `${'A'.repeat(43)}\n`, `${KEY} allowed-ips 0.0.0.0/0`])
      assert.deepEqual(keyOf({ publicKey, endpoint: '192.0.2.2:51820' }), ['', '']);
  });
});

it('a node object is reduced to what the network depends on', () => {
  const object = {
    metadata: {
      ...{ name: 'b', creationTimestamp: '2026-01-01T00:00:00Z' },
      annotations: {
        'orchlet.local/wireguard-public-key': KEY,
        'orchlet.local/wireguard-endpoint': 'e',
        'orchlet.local/claims': '192.0.2.2 2026-01-01T00:00:00Z',
        other: 'x',
      },
    },
    spec: { podCIDR: '10.244.1.0/24' },
    status: {
      addresses: [
        { type: 'InternalIP', address: '192.0.2.2' },
        { type: 'Hostname', address: 'b' },
        { type: 'ExternalIP', address: '203.0.113.2' },
      ],
    },
  };
  assert.deepEqual(clusterNode(object as never), {
    ...{ name: 'b', createdAt: '2026-01-01T00:00:00Z', ranges: ['10.244.1.0/24'], addresses: ['192.0.2.2'] },
    ...{ publicKey: KEY, endpoint: 'e', claims: '192.0.2.2 2026-01-01T00:00:00Z' },
  });
});
