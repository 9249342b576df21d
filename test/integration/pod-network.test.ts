/**
 * Tests the network between pods of different hosts: agents in network namespaces, each with its own container runtime, and a
 * process in the network namespace of each pod that probes the others.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { HttpClient } from '../../api/client/http-client.ts';
import { loadKubeconfig, serverAccess } from '../../api/client/kubeconfig.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { jsonFormat } from '../../api/client/object-format.ts';
import { nodes } from '../../api/client/resources.ts';
import { removePodNetwork } from '../../agent/network/podnetwork/remove-pod-network.ts';
import type { PolicyPod } from '../../agent/network/policy/policy-inputs.ts';
import { CASES, isAllowed, type Probe } from '../unit/agent/network/policy/policy-cases.ts';
import { until } from '../until.ts';
import { skipWithoutNamespaces } from './namespaced-nodes.ts';
import { PodsOfHosts } from './pods-of-hosts.ts';
import { packet } from './raw-packets.ts';

/** The identifier of the agents' VXLAN. */
const VXLAN_ID = (7842).toString(16).padStart(6, '0');

/** Policies without addresses, which differ from run to run. */
const POLICIES = ['default deny in both directions', 'a named port with egress', 'both sides at once'];

const hasWireguard = ['wg', 'wireguard-go', 'unshare'].every(
  (tool) => spawnSync('sh', ['-c', `command -v ${tool}`]).status === 0,
);
const skipWithoutWireguard = hasWireguard ? false : 'wg and wireguard-go are not installed';

describe(
  'the network of pods on three hosts with containerd',
  { skip: skipWithoutNamespaces, timeout: 400_000 },
  () => {
    let cluster: PodsOfHosts;

    before(async () => {
      cluster = await PodsOfHosts.start(['a', 'b', 'c'], { runtime: 'containerd', isDualStack: true });
      await cluster.run(['x', 'y', 'z']);
    });

    after(async () => {
      await cluster?.remove();
    });

    async function restartAgents(flags: readonly string[], around: readonly string[] = []): Promise<void> {
      await Promise.all(cluster.host.nodes.map((node) => node.stopAgent()));
      // Routes of both families need an address of each as gateway.
      for (const node of cluster.host.nodes)
        node.startAgent(['--node-ip', `${node.address},${node.address6}`, ...flags], around);
    }

    test('every pod reaches every other one and its service, in both families, with its own address', async () => {
      assert.ok(cluster.pods.every(({ ips }) => ips.length === 2));
      await cluster.connected();
    });

    test('every pod resolves the names of all services at its own node, over both families', async () => {
      await cluster.withLogs('all names', async () => (await cluster.wrongNames()).length === 0);
    });

    test('every pod is bound to its addresses', () => {
      const rules = cluster.host.nodes.map((node) => node.exec('nft', ['list', 'ruleset', 'bridge'])).join('\n');
      for (const { name, ips } of cluster.pods)
        for (const ip of ips) assert.match(rules, new RegExp(`saddr[^\\n]* ${ip.replaceAll('.', '\\.')}[ ,]`), name);
    });

    test('a pod reaches what is outside of the cluster with the address of its node', async () => {
      const [pod] = cluster.pods;
      assert.ok(pod);
      const [node] = cluster.host.nodes;
      assert.equal(await cluster.outsideSource(pod), node?.address);
    });

    test('links have the MTU of the encapsulation, and no address is used for two ways', () => {
      for (const node of cluster.host.nodes) {
        const links = node.exec('ip', ['-br', 'link']);
        assert.match(links, /orchlet\.vxlan/);
        assert.match(node.exec('ip', ['link', 'show', 'dev', 'orchlet.pods']), /mtu 1450/);
      }
    });

    test('a node sends through the tunnel with the addresses of its own pods alone', async () => {
      const [a, b] = cluster.host.nodes;
      const [target, own, others] = ['a', 'b', 'c'].map((name) => cluster.podOn(name));
      assert.ok(a && b && target && own && others);
      const mac = /link\/ether (\S+)/.exec(a.exec('ip', ['link', 'show', 'orchlet.vxlan']))?.[1] ?? '';
      const seen = 'table inet seen { chain in { type filter hook prerouting priority -300; }; }';
      /** Sends an encapsulated packet of UDP, and returns whether it leaves the tunnel. */
      const arrives = async (family: 0 | 1, source: PolicyPod): Promise<boolean> => {
        const [from = '', to = ''] = [source.ips[family], target.ips[family]];
        a.exec('nft', [
          `${seen}; flush chain inet seen in; add rule inet seen in iifname orchlet.vxlan ip${family === 0 ? '' : '6'} saddr ${from} udp dport 2 counter`,
        ]);
        const frame = `08000000${VXLAN_ID}00${mac.replaceAll(':', '')}020000000001${packet(from, to)}`;
        const script = `const s = require('node:dgram').createSocket('udp4');
          s.send(Buffer.from('${frame}', 'hex'), 8472, '${a.address}', () => s.close());`;
        b.exec(process.execPath, ['-e', script]);
        await systemClock.sleep(200);
        return !a.exec('nft', ['list', 'table', 'inet', 'seen']).includes('packets 0 ');
      };
      for (const family of [0, 1] as const) {
        assert.ok(await arrives(family, own), 'a packet of its own pod');
        assert.ok(!(await arrives(family, others)), 'a packet of a pod of another node');
        assert.ok(!(await arrives(family, target)), 'a packet of a pod of the node that receives it');
      }
      // The agent writes it again.
      a.exec('nft', ['delete', 'table', 'inet', 'orchlet_pod_network']);
      assert.ok(await arrives(0, others), 'without the rules of the tunnel it arrives');
      a.exec('nft', ['delete', 'table', 'inet', 'seen']);
    });

    policyTests(() => cluster);

    test('services of other hosts are reached with the rules of iptables as well', async () => {
      await withIptables(cluster);
    });

    test('a node that claims the address of a newer one cuts it off from nobody', async () => {
      const order = [
        'get',
        'nodes',
        '--sort-by=.metadata.creationTimestamp',
        '-o',
        'jsonpath={.items[*].metadata.name}',
      ];
      const [hostile, observer, victim] = cluster
        .kubectl(order)
        .split(' ')
        .map((name) => cluster.host.nodes.find((node) => node.name === name));
      assert.ok(hostile !== undefined && observer !== undefined && victim !== undefined);
      await hostile.stopAgent();
      const status = { addresses: [{ type: 'InternalIP', address: victim.address }] };
      const metadata = { annotations: { 'orchlet.local/claims': `${victim.address} 2020-01-01T00:00:00.000000Z` } };
      const kubeconfig = await loadKubeconfig(join(hostile.directory, 'agent.kubeconfig'));
      const client = new HttpClient({
        ...(await serverAccess(kubeconfig, { clock: systemClock })),
        ...{ clock: systemClock, format: jsonFormat, userAgent: 'hostile' },
      });
      await client.patch(nodes, '', hostile.name, { type: 'merge', body: { metadata, status }, subresource: 'status' });
      client.close();
      const links = (): string => observer.exec('bridge', ['fdb', 'show', 'dev', 'orchlet.vxlan']);
      await until('the claim', () => !links().includes(hostile.address), 30_000);
      assert.match(links(), new RegExp(`dst ${victim.address.replaceAll('.', '\\.')} `));
      const [from, to] = [cluster.podOn(observer.name), cluster.podOn(victim.name)];
      assert.notEqual(await cluster.probesOf(from).source(to.ips[0] ?? '', { timeoutMs: 5_000 }), '');
      hostile.startAgent();
      await cluster.connected();
    });

    test('a node that was cut off is reached again when it is back', async () => {
      const [, , third] = cluster.host.nodes;
      third?.cut(true);
      const [xa, there] = [cluster.pod('x/a'), cluster.podOn('c')];
      await until(
        'the cut',
        async () => (await cluster.probesOf(xa).source(there.ips[0] ?? '', { timeoutMs: 500 })) === '',
      );
      third?.cut(false);
      await cluster.connected();
    });

    test('a node that starts without an uplink runs its pods, and is reached as soon as it has one', async () => {
      const [, , third] = cluster.host.nodes;
      assert.ok(third);
      await third.stopAgent();
      third.unplug();
      third.startAgent();
      const there = cluster.podOn('c');
      const container = (): string => {
        const pods = cluster.list('pods').filter(({ metadata }) => metadata.namespace === there.namespace);
        const pod = pods.find(({ metadata }) => metadata.name === there.name);
        return pod?.status.containerStatuses?.[0]?.containerID ?? '';
      };
      const before = container();
      await cluster.withLogs('health', () =>
        third.exec('sh', ['-c', 'curl -s http://127.0.0.1:10248/healthz || true']).includes('ok'),
      );
      const processes = third.runningProcesses();
      const ended = third.processOf(before);
      process.kill(Number(ended), 'SIGKILL');
      await cluster.withLogs('a container in its place', () => {
        const now = third.runningProcesses();
        return now.length === processes.length && !now.includes(ended);
      });
      third.plugIn();
      await cluster.connected();
      await cluster.withLogs('the status of the new container', () => ![before, ''].includes(container()));
    });

    test('nodes follow the changed address of another one', async () => {
      const [, second] = cluster.host.nodes;
      second?.move(77);
      await cluster.connected();
      const addresses = cluster.kubectl(['get', 'node', 'b', '-o', 'jsonpath={.status.addresses[*].address}']);
      assert.ok(addresses.split(' ').includes(second?.address ?? ''), addresses);
    });

    test('what others remove is repaired, and pods go on after a restart of the agent', async () => {
      const [first] = cluster.host.nodes;
      first?.exec('ip', ['link', 'delete', 'orchlet.vxlan']);
      first?.exec('iptables', ['-t', 'nat', '-F', 'POSTROUTING']);
      await restartAgents([]);
      await cluster.connected();
      assert.match(first?.exec('iptables', ['-t', 'nat', '-S', 'POSTROUTING']) ?? '', /ORCHLET-POD-NAT/);
    });

    test('routes take the place of encapsulation on one link', async () => {
      await restartAgents(['--pod-network', 'routes']);
      await cluster.withLogs('no tunnel', () =>
        cluster.host.nodes.every((node) => !node.exec('ip', ['-br', 'link']).includes('orchlet.vxlan')),
      );
      await cluster.connected();
    });

    test('WireGuard encrypts, and new keys are taken over', { skip: skipWithoutWireguard }, async () => {
      mkdirSync('/var/run/wireguard', { recursive: true });
      // wireguard-go has its sockets there, by the name of the link, which is the same on each host.
      const own = 'mount -t tmpfs none /var/run/wireguard && exec "$@"';
      const around = ['unshare', '--mount', '--propagation', 'slave', 'sh', '-c', own, 'sh'];
      await restartAgents(['--pod-network', 'wireguard', '--pod-network-key-lifetime', '15s'], around);
      const keys = (): string =>
        cluster.kubectl([
          'get',
          'nodes',
          '-o',
          'jsonpath={.items[*].metadata.annotations.orchlet\\.local/wireguard-public-key}',
        ]);
      await cluster.withLogs(
        'keys',
        () =>
          keys()
            .split(' ')
            .filter((key) => key !== '').length === 3,
      );
      await cluster.connected();
      const first = keys();
      await cluster.withLogs('new keys', () =>
        keys()
          .split(' ')
          .every((key) => !first.includes(key)),
      );
      await cluster.connected();
    });

    test('nothing is left on a host after a removal', async () => {
      for (const node of cluster.host.nodes) {
        await node.stopAgent();
        const stateDirectory = join(node.directory, 'a', 'pod-network');
        const configuration = join(node.directory, 'd', 'cni', '90-orchlet.conflist');
        assert.ok(existsSync(configuration));
        await removePodNetwork({ stateDirectory, prefix: ['nsenter', `--net=/run/netns/${node.namespace}`] });
        const left = [
          node.exec('ip', ['-br', 'link']),
          node.exec('ip', ['route', 'show', 'proto', '111']),
          node.exec('iptables-save', []),
          node.exec('ip6tables-save', []),
          node.exec('nft', ['list', 'tables']),
        ].join('\n');
        assert.doesNotMatch(left, /orchlet\.|proto 111|ORCHLET|orchlet_pod/);
        assert.deepEqual([existsSync(configuration), existsSync(stateDirectory)], [false, false]);
      }
    });
  },
);

describe('the network of pods on three hosts with Docker', { skip: skipWithoutNamespaces, timeout: 400_000 }, () => {
  let cluster: PodsOfHosts;

  before(async () => {
    cluster = await PodsOfHosts.start(['a', 'b', 'c'], { runtime: 'docker', isDualStack: true });
    await cluster.run(['x', 'y', 'z']);
  });

  after(async () => {
    await cluster?.remove();
  });

  test('every pod reaches every other one and its service, in both families, with its own address', async () => {
    assert.ok(cluster.pods.every(({ ips }) => ips.length === 2));
    await cluster.connected();
  });

  test('every pod resolves the names of all services at its own node, over both families', async () => {
    await cluster.withLogs('all names', async () => (await cluster.wrongNames()).length === 0);
  });

  test('every pod is bound to its addresses', () => {
    const rules = cluster.host.nodes.map((node) => node.exec('nft', ['list', 'ruleset', 'bridge'])).join('\n');
    for (const { name, ips } of cluster.pods)
      for (const ip of ips) assert.match(rules, new RegExp(`saddr[^\\n]* ${ip.replaceAll('.', '\\.')}[ ,]`), name);
  });

  test('a pod reaches what is outside of the cluster with the address of its node', async () => {
    const [pod] = cluster.pods;
    assert.ok(pod);
    assert.equal(await cluster.outsideSource(pod), cluster.host.nodes[0]?.address);
  });

  policyTests(() => cluster);

  test('nodes follow the changed address of another one, and one that was cut off is reached again', async () => {
    const [, second, third] = cluster.host.nodes;
    second?.move(77);
    third?.cut(true);
    const [xa, there] = [cluster.pod('x/a'), cluster.podOn('c')];
    await until(
      'the cut',
      async () => (await cluster.probesOf(xa).source(there.ips[0] ?? '', { timeoutMs: 500 })) === '',
    );
    third?.cut(false);
    await cluster.connected();
  });

  test('services of other hosts are reached with the rules of iptables as well', async () => {
    await withIptables(cluster);
  });
});

/** Probes policies between all pods, whose hosts enforce them each for its own pods. */
function policyTests(cluster: () => PodsOfHosts): void {
  let probed = 0;
  for (const [name, policies] of CASES.filter(([title]) => POLICIES.includes(title)))
    test(`network policies hold across hosts: ${name}`, async () => {
      cluster().setPolicies(policies);
      const probes: Probe[] = cluster().pods.flatMap((from) =>
        cluster()
          .pods.filter((to) => to !== from)
          .flatMap((to) =>
            ([4, 6] as const).flatMap((family) =>
              ([80, 81] as const).map((port) => {
                const protocol = (family === 4) === (port === 80) ? 'TCP' : 'UDP';
                return { from, to, family, protocol, port } as const;
              }),
            ),
          ),
      );
      const failures = async (): Promise<readonly string[]> => {
        const results = probes.map(async (probe) => {
          const expected = isAllowed(policies, probe);
          return (await cluster().probe(probe, expected ? 5_000 : 700)) === expected
            ? []
            : [describeProbe(probe, expected)];
        });
        return (await Promise.all(results)).flat();
      };
      // The nodes learn of policies one after the other.
      let wrong: readonly string[] = [];
      await until('the policies', async () => (wrong = await failures()).length === 0, 30_000).catch(() => undefined);
      assert.deepEqual(wrong, []);
      probed += probes.length;
    });

  test('policies were probed often enough to be a truth table', () => {
    assert.ok(probed >= 300, `${probed} probes`);
    cluster().setPolicies([]);
  });
}

/** Restarts the agents with the rules of services in iptables, and waits until all pods reach each other by these alone. */
async function withIptables(cluster: PodsOfHosts): Promise<void> {
  await Promise.all(cluster.host.nodes.map((node) => node.stopAgent()));
  for (const node of cluster.host.nodes) node.startAgent(['--proxy-mode', 'iptables']);
  await cluster.withLogs('rules of iptables', () =>
    cluster.host.nodes.every(
      (node) =>
        node.exec('iptables-save', []).includes('ORC-SERVICES') &&
        !node.exec('nft', ['list', 'tables']).includes('orchlet-services'),
    ),
  );
  await cluster.connected();
}

function describeProbe({ from, to, family, protocol, port }: Probe, expected: boolean): string {
  const name = (pod: Probe['from']): string => `${pod?.namespace ?? ''}/${pod?.name ?? ''}`;
  return `${name(from)} to ${name(to)} IPv${family} ${protocol} ${port} should be ${expected ? 'allowed' : 'refused'}`;
}
