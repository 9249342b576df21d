import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { takeNamespaceLock } from '../../../../../agent/network/namespace-lock.ts';
import type { ClusterNode } from '../../../../../agent/network/podnetwork/cluster-nodes.ts';
import type { HostNetwork } from '../../../../../agent/network/podnetwork/host-network.ts';
import type { Commands, ObservedNetwork } from '../../../../../agent/network/podnetwork/network-difference.ts';
import { PodNetwork, type PodNetworkOptions } from '../../../../../agent/network/podnetwork/pod-network.ts';
import { readKeys } from '../../../../../agent/network/podnetwork/wireguard-keys.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { Informers } from '../../../../../api/client/informer.ts';
import { nodes } from '../../../../../api/client/resources.ts';
import { parseCidr } from '../../../../../api/meta/ip-addresses.ts';
import { FakeClient } from '../../../../fakes/fake-client.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { until } from '../../../../until.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const root = temporaryFolder();

const NOTHING: ObservedNetwork = {
  ...{ links: [], routes: [], neighbors: [], forwarding: [], wireguard: undefined, wireguardPeers: [] },
};

const nodeObject = (name: string, number: number): never =>
  ({
    apiVersion: 'v1',
    kind: 'Node',
    metadata: { name },
    spec: { podCIDRs: [`10.244.${number}.0/24`] },
    status: { addresses: [{ type: 'InternalIP', address: `192.0.2.${number}` }] },
  }) as never;

/** No timer of a network at rest is as short. */
const GATHER_MS = 100;

function setUp({
  mode = 'vxlan',
  connected = true,
  cni = true,
  plugins = ['bridge', 'host-local', 'portmap', 'loopback'],
  lacking = '',
  remembered,
}: {
  readonly mode?: PodNetworkOptions['mode'];
  readonly connected?: boolean;
  readonly cni?: boolean;
  readonly plugins?: readonly string[];
  readonly lacking?: string;
  readonly remembered?: readonly ClusterNode[];
} = {}) {
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  const directory = mkdtempSync(join(root, 'd'));
  const informers = new Informers({
    // A server that never responds.
    client: connected ? client : ({ list: () => new Promise(() => {}), watch: () => new Promise(() => {}) } as never),
    // Another clock, so that all timers of the first are those of the network.
    clock: new FakeClock(),
    logger: silentLogger,
  });
  for (const plugin of plugins) writeFileSync(join(directory, plugin), '');
  const state = {
    ranges: ['10.244.1.0/24'] as readonly string[],
    addresses: ['192.0.2.1'] as readonly string[],
    changes: [] as Commands[],
    rules: [] as string[],
    removed: 0,
    intact: true,
    published: [] as Readonly<Record<string, string>>[],
    refusals: [] as string[],
    saved: undefined as readonly ClusterNode[] | undefined,
    removedAll: 0,
    guards: [] as string[],
    hasIptables: true,
  };
  const host: HostNetwork = {
    linkSupport: () => Promise.resolve({ problem: lacking, substitute: '' }),
    uplink: (address) =>
      Promise.resolve({
        name: 'eth0',
        mtu: 1500,
        address,
        networks: [parseCidr('192.0.2.0/24')].filter((one) => one !== undefined),
      }),
    observe: () => Promise.resolve(NOTHING),
    change: (commands) => Promise.resolve(void state.changes.push(commands)),
    removeLink: () => Promise.resolve(),
  };
  const places = {
    configurationDirectory: join(directory, 'net.d'),
    pluginDirectories: [join(directory, 'none'), directory],
  };
  const make = () =>
    new PodNetwork({
      ...{
        mode,
        port: 8472,
        nodeName: 'own',
        nodes: informers.for(nodes),
        hairpin: true,
        masqueradeBit: 14,
        host,
        clock,
        takeLock: () => takeNamespaceLock('lock', directory),
      },
      memory: { load: () => Promise.resolve(remembered), save: (known) => (state.saved = known()) },
      ranges: () => state.ranges,
      nodeAddresses: () => state.addresses,
      hostAddresses: () => state.addresses,
      clusterRanges: () => ['10.244.0.0/16'],
      cniPlaces: () => Promise.resolve(cni ? places : undefined),
      stateDirectory: join(directory, 'state'),
      keyLifetimeMs: 3_600_000,
      filter: {
        apply: (_family, rules) =>
          state.hasIptables
            ? Promise.resolve(void state.rules.push(rules))
            : Promise.reject(Object.assign(new Error('spawn iptables-restore ENOENT'), { code: 'ENOENT' })),
        ensureJumps: () => Promise.resolve(),
        intact: () => Promise.resolve(state.intact),
        remove: () => Promise.resolve(void state.removed++),
      },
      nft: {
        run: (script) => Promise.resolve(void state.guards.push(script)),
        hasTable: () => Promise.resolve(state.intact),
        remove: () => Promise.resolve(void state.guards.push('')),
      },
      prepareHost: () => Promise.resolve(),
      async publish(annotations) {
        state.published.push(annotations);
        await client.patch(nodes, '', 'own', { type: 'merge', body: { metadata: { annotations } } });
      },
      removeAll: () => Promise.resolve(void state.removedAll++),
      logger: silentLogger,
      onProblem: () => undefined,
      onRefusal: ({ node, reason }) => state.refusals.push(`${node}: ${reason}`),
    });
  const network = make();
  const stop = new AbortController();
  const file = join(places.configurationDirectory, '90-orchlet.conflist');
  return {
    clock,
    client,
    state,
    network,
    stop,
    file,
    places,
    directory,
    make,
    start: () => void network.run(stop.signal),
  };
}

type SetUp = ReturnType<typeof setUp>;

/**
 * Lets the network take its turns for `ms`. It is at rest while the next timer of the clock is that of its next inspection:
 * during a turn, which reads and writes files, it has none.
 */
async function settle({ clock }: SetUp, ms = 0): Promise<void> {
  const rest = (): Promise<boolean> =>
    until('rest', async () => {
      await clock.settle();
      const next = clock.nextTimerMs;
      if (next !== undefined && next <= GATHER_MS) await clock.advance(next);
      return next !== undefined && next > GATHER_MS;
    });
  await rest();
  if (ms > 0) await clock.advance(ms);
  await rest();
}

async function started(options: Parameters<typeof setUp>[0] = {}): Promise<SetUp> {
  const one = setUp(options);
  await one.client.create(nodes, '', nodeObject('own', 1));
  one.start();
  await settle(one);
  return one;
}

describe('the pod network of a node', () => {
  it('waits until the node has a pod range, and reports that', async () => {
    const one = setUp();
    one.state.ranges = [];
    one.start();
    await settle(one);
    assert.equal(one.network.problem(), 'no pod CIDR has been assigned to this node yet');
    assert.ok(!existsSync(one.file));
    one.state.ranges = ['10.244.1.0/24'];
    one.network.changed();
    await settle(one);
    assert.equal(one.network.problem(), '');
    assert.ok(existsSync(one.file));
    one.stop.abort();
  });

  it('configures the runtime before it knows other nodes, and connects them as they come', async () => {
    const one = await started();
    const { plugins } = JSON.parse(readFileSync(one.file, 'utf8')) as { plugins: readonly Record<string, unknown>[] };
    assert.deepEqual(
      plugins.map(({ type, mtu, hairpinMode, ipMasq }) => ({ type, mtu, hairpinMode, ipMasq })),
      [
        { type: 'bridge', mtu: 1450, hairpinMode: true, ipMasq: false },
        { type: 'portmap', mtu: undefined, hairpinMode: undefined, ipMasq: undefined },
      ],
    );
    assert.equal(one.state.changes.length, 0);
    await one.client.create(nodes, '', nodeObject('b', 2));
    await settle(one);
    assert.ok(one.state.changes.at(-1)?.ip.some((line) => line.startsWith('route add 10.244.2.0/24')));
    assert.ok(one.state.rules.at(-1)?.includes('-s 10.244.1.0/24 -d 10.244.2.0/24 -j ACCEPT'));
    one.stop.abort();
  });

  it('leaves Docker on a single host alone', async () => {
    const one = await started({ cni: false });
    assert.deepEqual([one.state.changes, one.state.rules, readdirSync(join(one.directory, 'state'))], [[], [], []]);
    await one.client.create(nodes, '', nodeObject('b', 2));
    await settle(one);
    assert.ok(one.state.rules.at(-1)?.startsWith('*raw'));
    one.stop.abort();
  });

  it('leaves the network to another CNI configuration, also to one that comes later', async () => {
    const one = await started();
    await one.client.create(nodes, '', nodeObject('b', 2));
    await settle(one);
    assert.ok(existsSync(one.file));
    writeFileSync(join(one.places.configurationDirectory, '10-flannel.conflist'), '{}');
    one.state.changes.splice(0);
    await settle(one, 31_000);
    assert.ok(!existsSync(one.file));
    assert.equal(one.state.removed, 2);
    assert.equal(one.network.problem(), '');
    one.stop.abort();
  });

  it('names the plugins that are missing', async () => {
    const one = await started({ plugins: ['bridge', 'loopback'] });
    assert.match(
      one.network.problem(),
      /^the CNI plugins host-local, portmap are not in .* \(apt-get install containernetworking-plugins\)$/,
    );
    assert.ok(!existsSync(one.file));
    one.stop.abort();
  });

  it('reports what the kernel lacks once there is another node', async () => {
    const one = await started({ lacking: 'the kernel has no VXLAN (modprobe vxlan)' });
    assert.equal(one.network.problem(), '');
    await one.client.create(nodes, '', nodeObject('b', 2));
    await settle(one);
    assert.equal(
      one.network.problem(),
      'the pod network vxlan does not work on this host: the kernel has no VXLAN (modprobe vxlan)',
    );
    one.stop.abort();
  });

  it('connects the last known nodes while the API server is not available', async () => {
    const known = {
      name: 'b',
      createdAt: '',
      ranges: ['10.244.2.0/24'],
      addresses: ['192.0.2.2'],
      publicKey: '',
      endpoint: '',
    };
    const one = await started({ connected: false, remembered: [known] });
    assert.ok(one.state.changes.at(-1)?.ip.some((line) => line.startsWith('route add 10.244.2.0/24')));
    one.stop.abort();
  });

  it('touches no link while it knows nothing of other nodes', async () => {
    const one = await started({ connected: false });
    assert.deepEqual(one.state.changes, []);
    assert.ok(existsSync(one.file));
    one.stop.abort();
  });

  it('writes the rules again that another program has removed', async () => {
    const one = await started();
    assert.equal(one.state.rules.length, 1);
    one.state.intact = false;
    await settle(one, 31_000);
    assert.equal(one.state.rules.length, 2);
    one.stop.abort();
  });

  it('admits to the port of the tunnel the nodes alone', async () => {
    const one = await started();
    await one.client.create(nodes, '', nodeObject('b', 2));
    await settle(one);
    assert.match(
      one.state.guards.at(-1) ?? '',
      /elements = \{ 192\.0\.2\.2 \}[^]*udp dport 8472 ip saddr != @peers4 drop/,
    );
    await one.client.delete(nodes, '', 'b');
    await settle(one);
    assert.equal(one.state.guards.at(-1), '');
    one.stop.abort();
  });

  it('admits from a node the addresses of its own pods alone, inside of its packets', async () => {
    const one = await started();
    await one.client.create(nodes, '', nodeObject('b', 2));
    await settle(one);
    const script = one.state.guards.at(-1) ?? '';
    assert.match(script, /192\.0\.2\.2 : goto peer_0/);
    // 10.244.2.0/24 and 192.0.2.2.
    const sources = /@th,224,16 0x0800 @th,336,24 0xaf402 accept\n.*@th,336,32 0xc0000202 accept\n {4}drop/;
    assert.match(script, sources);
    one.stop.abort();
  });

  it('forwards nothing of pods to the port of the tunnel of another node', async () => {
    const one = await started();
    await one.client.create(nodes, '', nodeObject('b', 2));
    await settle(one);
    const [, forward = ''] = (one.state.guards.at(-1) ?? '').split('hook forward');
    assert.match(forward, /udp dport 8472 ip daddr @peers4 ip saddr != @peers4 drop/);
    one.stop.abort();
  });

  it('masquerades with nftables where iptables is not installed', async () => {
    const one = setUp();
    one.state.hasIptables = false;
    await one.client.create(nodes, '', nodeObject('own', 1));
    await one.client.create(nodes, '', nodeObject('b', 2));
    one.start();
    await settle(one);
    assert.deepEqual(one.state.rules, []);
    const [script = ''] = one.state.guards;
    assert.match(
      script,
      /ip saddr 10\.244\.1\.0\/24 ip daddr != \{ 10\.244\.1\.0\/24, 10\.244\.2\.0\/24, 224\.0\.0\.0\/4 \} masq/,
    );
    assert.match(script, /iifname != "orchlet\.vxlan" ip saddr \{ 10\.244\.2\.0\/24 \} drop/);
    assert.match(script, /iifname "eth0" ip saddr 10\.244\.1\.0\/24 ip daddr 10\.244\.1\.0\/24 drop/);
    assert.equal(one.network.problem(), '');
    one.stop.abort();
  });

  it('reports a node with the claims of another one, once', async () => {
    const one = await started();
    await one.client.create(nodes, '', nodeObject('evil', 1));
    await settle(one, 31_000);
    await settle(one, 31_000);
    assert.deepEqual(one.state.refusals, [
      'evil: its pod range "10.244.1.0/24" overlaps 10.244.1.0/24 of another node',
    ]);
    one.stop.abort();
  });

  it('works once in a network namespace', async () => {
    const one = await started();
    const second = one.make();
    const stop = new AbortController();
    const { length } = one.state.rules;
    void second.run(stop.signal);
    await settle(one);
    assert.equal(one.state.rules.length, length);
    stop.abort();
    one.stop.abort();
  });

  it('stays when the agent stops, and goes when the pods are gone', async () => {
    for (const remove of [false, true]) {
      const one = await started();
      await one.network.close({ remove });
      assert.equal(one.state.removedAll, remove ? 1 : 0);
    }
  });
});

describe('the WireGuard key of a node', () => {
  it('is created and published once, and the private key is for the agent alone', async () => {
    const one = await started({ mode: 'wireguard' });
    await settle(one, 31_000);
    const path = join(one.directory, 'state/wireguard.key');
    const keys = await readKeys(path);
    assert.deepEqual(one.state.published, [
      { 'orchlet.local/wireguard-public-key': keys?.publicKey, 'orchlet.local/wireguard-endpoint': '192.0.2.1:8472' },
    ]);
    assert.equal(statSync(path).mode & 0o777, 0o600);
    one.stop.abort();
  });

  it('is replaced after its lifetime, and published again with a new address', async () => {
    const one = await started({ mode: 'wireguard' });
    const [first] = one.state.published;
    await settle(one, 3_700_000);
    const second = one.state.published.at(-1);
    assert.notEqual(second?.['orchlet.local/wireguard-public-key'], first?.['orchlet.local/wireguard-public-key']);
    one.state.addresses = ['192.0.2.77'];
    await settle(one, 31_000);
    assert.deepEqual(one.state.published.at(-1), { ...second, 'orchlet.local/wireguard-endpoint': '192.0.2.77:8472' });
    one.stop.abort();
  });
});
