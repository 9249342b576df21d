/**
 * Tests network policies with real packets: network namespaces as pods behind a bridge in a namespace that serves as the node,
 * and one host outside. The rules are those of the enforcer, in the node's namespace.
 */
import assert from 'node:assert/strict';
import { type ChildProcessWithoutNullStreams, spawn, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, describe, test } from 'node:test';
import { hostNftables } from '../../agent/network/nftables.ts';
import { compilePolicies } from '../../agent/network/policy/compile-policies.ts';
import { policyScript } from '../../agent/network/policy/nft-ruleset.ts';
import { PolicyEnforcer } from '../../agent/network/policy/policy-enforcer.ts';
import { policyInputs, withLocalPods } from '../../agent/network/policy/policy-inputs.ts';
import { silentLogger } from '../../api/component/logger.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { Informers } from '../../api/client/informer.ts';
import { namespaces as namespacesResource, networkPolicies, pods as podsResource } from '../../api/client/resources.ts';
import { FakeClient } from '../fakes/fake-client.ts';
import { FakeClock } from '../fakes/fake-clock.ts';
import {
  CASES,
  isAllowed,
  namespaces,
  OUTSIDE,
  pods,
  type Probe,
  probeAddress,
} from '../unit/agent/network/policy/policy-cases.ts';
import { until } from '../until.ts';
import type { PodRequest } from './policy-pod.ts';
import { hasPerl, sendSctp } from './raw-packets.ts';
import { run } from './running-cluster.ts';
import { namespacePrefix } from './test-namespaces.ts';

const PREFIX = namespacePrefix('p');
const NODE = `${PREFIX}node`;
const TABLE = 'orchlet_policy_test';
/** The address of the service of the name server, which answers in the node itself. */
const NAME_SERVER = '10.97.200.53';
const BRIDGED = '/proc/sys/net/bridge/bridge-nf-call-iptables';

function whyNot(): string | false {
  const made = spawnSync('ip', ['netns', 'add', `${PREFIX}t`]);
  if (made.status !== 0) return 'this host makes no network namespaces';
  const inside = ['netns', 'exec', `${PREFIX}t`];
  const nft = spawnSync('ip', [...inside, 'nft', 'add', 'table', 'inet', 't']);
  const bridge = spawnSync('ip', [...inside, 'test', '-e', BRIDGED]);
  spawnSync('ip', ['netns', 'delete', `${PREFIX}t`]);
  if (nft.status !== 0) return 'nft cannot be used here';
  return bridge.status === 0 ? false : 'br_netfilter is not loaded';
}

/** A namespace with a process that serves and probes. */
class Place {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #waiting = new Map<number, (result: boolean) => void>();
  #next = 0;

  constructor(namespace: string) {
    const program = [
      process.execPath,
      '--disable-warning=ExperimentalWarning',
      join(import.meta.dirname, 'policy-pod.ts'),
    ];
    this.#child = spawn('ip', ['netns', 'exec', namespace, ...program]);
    createInterface({ input: this.#child.stdout }).on('line', (line) => {
      const { id, result } = JSON.parse(line) as { readonly id: number; readonly result: boolean };
      this.#waiting.get(id)?.(result);
      this.#waiting.delete(id);
    });
  }

  ask(request: Omit<PodRequest, 'id'>): Promise<boolean> {
    const id = this.#next++;
    const { promise, resolve } = Promise.withResolvers<boolean>();
    this.#waiting.set(id, resolve);
    this.#child.stdin.write(`${JSON.stringify({ ...request, id })}\n`);
    return promise;
  }

  async close(): Promise<void> {
    const ended = new Promise((resolve) => this.#child.once('close', resolve));
    this.#child.stdin.end();
    await ended;
  }
}

function connectNode(): void {
  run('ip', ['netns', 'add', NODE]);
  const inside = ['-n', NODE];
  run('ip', [...inside, 'link', 'set', 'lo', 'up']);
  run('ip', [...inside, 'link', 'add', 'br0', 'type', 'bridge']);
  run('ip', [...inside, 'address', 'add', '10.97.7.1/24', 'dev', 'br0']);
  run('ip', [...inside, 'address', 'add', 'fd97::1/64', 'dev', 'br0', 'nodad']);
  run('ip', [...inside, 'link', 'set', 'br0', 'up']);
  for (const name of ['net.ipv4.ip_forward', 'net.ipv6.conf.all.forwarding'])
    run('ip', ['netns', 'exec', NODE, 'sysctl', '-qw', `${name}=1`]);
}

/** Connects a namespace to the node: a pod to its bridge, the host outside to the node itself. */
function connectPlace(name: string, number: number, [v4, v6]: readonly string[], bridge: boolean): void {
  const port = `v${number}`;
  run('ip', ['netns', 'add', name]);
  run('ip', ['-n', NODE, 'link', 'add', port, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', name]);
  if (bridge) run('ip', ['-n', NODE, 'link', 'set', port, 'master', 'br0']);
  else {
    run('ip', ['-n', NODE, 'address', 'add', '192.0.2.1/24', 'dev', port]);
    run('ip', ['-n', NODE, 'address', 'add', '2001:db8:7::1/64', 'dev', port, 'nodad']);
  }
  run('ip', ['-n', NODE, 'link', 'set', port, 'up']);
  run('ip', ['-n', name, 'link', 'set', 'lo', 'up']);
  run('ip', ['-n', name, 'address', 'add', `${v4}/24`, 'dev', 'eth0']);
  run('ip', ['-n', name, 'address', 'add', `${v6}/64`, 'dev', 'eth0', 'nodad']);
  run('ip', ['-n', name, 'link', 'set', 'eth0', 'up']);
  run('ip', ['-n', name, 'route', 'add', 'default', 'via', bridge ? '10.97.7.1' : '192.0.2.1']);
  run('ip', ['-n', name, '-6', 'route', 'add', 'default', 'via', bridge ? 'fd97::1' : '2001:db8:7::1']);
}

const SYSTEM = { name: 'kube-system', labels: { 'kubernetes.io/metadata.name': 'kube-system' } };

const nameOf = (pod: Probe['from']): string => (pod === undefined ? 'outside' : `${pod.namespace}/${pod.name}`);

describe('network policies with packets', { skip: whyNot(), timeout: 280_000 }, () => {
  const places = new Map<string, Place>();
  const client = new FakeClient(new FakeClock());
  const informers = new Informers({ client, clock: systemClock, logger: silentLogger });
  const nft = hostNftables(['ip', 'netns', 'exec', NODE]);
  /** The script in effect. */
  let newest = '';
  let enforcer: PolicyEnforcer;
  let probed = 0;

  before(async () => {
    connectNode();
    for (const [index, pod] of pods.entries())
      connectPlace(`${PREFIX}${nameOf(pod).replace('/', '')}`, index, pod.ips, true);
    connectPlace(`${PREFIX}outside`, pods.length, [OUTSIDE.v4, OUTSIDE.v6], false);
    for (const pod of [...pods, undefined])
      places.set(nameOf(pod), new Place(`${PREFIX}${nameOf(pod).replace('/', '')}`));
    places.set('node', new Place(NODE));
    for (const { name, labels } of [...namespaces, SYSTEM])
      await client.create(namespacesResource, '', {
        apiVersion: 'v1',
        kind: 'Namespace',
        metadata: { name, labels },
      } as never);
    for (const pod of pods) await client.create(podsResource, pod.namespace, podObject(pod));
    enforcer = new PolicyEnforcer({
      policies: informers.for(networkPolicies),
      startInformers: () => ({ namespaces: informers.for(namespacesResource), pods: informers.for(podsResource) }),
      nft: {
        ...nft,
        async run(script) {
          await nft.run(script);
          newest = script;
        },
      },
      table: TABLE,
      memory: { load: () => Promise.resolve(undefined), save: () => undefined },
      nodeName: 'here',
      nameServers: () => [NAME_SERVER],
      clock: systemClock,
      logger: silentLogger,
      prepareHost: () =>
        Promise.resolve(
          run('ip', [
            'netns',
            'exec',
            NODE,
            'sysctl',
            '-qw',
            'net.bridge.bridge-nf-call-iptables=1',
            'net.bridge.bridge-nf-call-ip6tables=1',
          ]),
        ).then(() => undefined),
    });
    void enforcer.run(new AbortController().signal);
    await until('the first rules', () => (newest !== '' ? true : undefined));
    // The processes have started when they answer themselves.
    for (const pod of [...pods, undefined])
      await until(
        'a pod',
        async () => ((await probe({ from: pod, to: pod, family: 4, protocol: 'TCP', port: 81 })) ? true : undefined),
        60_000,
      );
  });
  after(async () => {
    await enforcer?.close({ remove: true });
    await informers.close();
    for (const place of places.values()) await place.close();
    for (const name of [...pods, undefined].map((pod) => `${PREFIX}${nameOf(pod).replace('/', '')}`))
      spawnSync('ip', ['netns', 'delete', name]);
    spawnSync('ip', ['netns', 'delete', NODE]);
  });

  function podObject(pod: (typeof pods)[number]): never {
    const [podIP] = pod.ips;
    const ports = pod.ports.map(({ name, protocol, port }) => ({ name, protocol, containerPort: port }));
    return {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: pod.name, namespace: pod.namespace, labels: { ...pod.labels } },
      spec: { nodeName: 'here', containers: [{ name: 'main', image: 'none', ports }] },
      status: { phase: 'Running', podIP, podIPs: pod.ips.map((ip) => ({ ip })) },
    } as never;
  }

  const probe = ({ from, to, family, protocol, port }: Probe, timeoutMs = 700): Promise<boolean> =>
    places.get(nameOf(from))?.ask({
      ...{ what: 'probe', address: probeAddress(to, family), port, timeoutMs },
      protocol: protocol as 'TCP',
    }) ?? Promise.resolve(false);

  /** Replaces the policies, and waits until the rules are in effect. */
  async function setPolicies(policies: (typeof CASES)[number][1]): Promise<void> {
    const { items } = await client.list(networkPolicies);
    for (const { metadata } of items)
      await client.delete(networkPolicies, metadata.namespace ?? '', metadata.name ?? '');
    for (const { namespace, name, spec } of policies)
      await client.create(networkPolicies, namespace, {
        apiVersion: 'networking.k8s.io/v1',
        kind: 'NetworkPolicy',
        metadata: { name, namespace },
        spec,
      } as never);
    const inputs = policyInputs({
      policies: (await client.list(networkPolicies)).items,
      namespaces: (await client.list(namespacesResource)).items,
      pods: (await client.list(podsResource)).items,
      ...{ nodeName: 'here', nameServers: [NAME_SERVER] },
    } as never);
    // The enforcer may write rules for a part of the changes first.
    const expected = policyScript(TABLE, compilePolicies(withLocalPods(inputs, new Map())));
    await until('rules', () => (newest === expected ? true : undefined), 30_000);
    await systemClock.sleep(50);
  }

  for (const [name, policies] of CASES)
    test(`hold as the specification says: ${name}`, async () => {
      await setPolicies(policies);
      const probes: Probe[] = [...pods, undefined].flatMap((from) =>
        [...pods, undefined].flatMap((to) =>
          ([4, 6] as const).flatMap((family) =>
            ([80, 81] as const).map((port) => {
              // Each pair is probed by both protocols on the port of one of them.
              const protocol = (family === 4) === (port === 80) ? 'TCP' : 'UDP';
              return { from, to, family, protocol, port } as const;
            }),
          ),
        ),
      );
      const wrong = await Promise.all(
        probes.map(async (one) => {
          probed++;
          const expected = isAllowed(policies, one);
          const passed = await probe(one, expected ? 10_000 : 700);
          if (passed === expected) return [];
          const verdict = passed ? 'passes' : 'is blocked';
          return [`${nameOf(one.from)} to ${nameOf(one.to)}, IPv${one.family} ${one.protocol} ${one.port} ${verdict}`];
        }),
      );
      assert.deepEqual(wrong.flat(), []);
    });

  test('hold for SCTP', { skip: !hasPerl && 'perl is not installed' }, async () => {
    const [from, to] = [pods.find((pod) => nameOf(pod) === 'x/a'), pods.find((pod) => nameOf(pod) === 'y/a')];
    assert.ok(from && to);
    const peer = { namespaceSelector: { matchLabels: { ns: 'x' } } };
    const ingress = [{ from: [peer], ports: [{ protocol: 'SCTP', port: 80 }] }];
    const spec = { podSelector: {}, policyTypes: ['Ingress'], ingress };
    await setPolicies([{ namespace: 'y', name: 'streams', spec: spec as never }]);
    const inPod = ['netns', 'exec', `${PREFIX}ya`, 'nft'];
    const seen = 'table inet seen { chain in { type filter hook prerouting priority -300; }; }';
    const arrives = async (source: string, port: number, address: string): Promise<boolean> => {
      run('ip', [...inPod, `${seen}; flush chain inet seen in; add rule inet seen in sctp dport ${port} counter`]);
      sendSctp(`${PREFIX}${source}`, { address, port });
      await systemClock.sleep(100);
      const counted = run('ip', [...inPod, 'list', 'table', 'inet', 'seen']);
      run('ip', [...inPod, 'delete', 'table', 'inet', 'seen']);
      return counted.includes('packets 1 ');
    };
    for (const address of to.ips) {
      assert.ok(await arrives('xa', 80, address), `the allowed port at ${address}`);
      assert.ok(!(await arrives('xa', 81, address)), `another port at ${address}`);
      assert.ok(!(await arrives('za', 80, address)), `another namespace to ${address}`);
    }
    const tcp = { from, to, family: 4, protocol: 'TCP', port: 80 } as const;
    assert.ok(!(await probe(tcp)), 'TCP on the number of the allowed port');
  });

  test('bind the queries of pods to the name server of the node, as they would those to pods of CoreDNS', async () => {
    await nft.run(`add table ip names
      add chain ip names pre { type nat hook prerouting priority dstnat; }
      add rule ip names pre ip daddr ${NAME_SERVER} meta l4proto { tcp, udp } th dport 53 redirect to :81\n`);
    const query = (of: string, protocol: 'TCP' | 'UDP', timeoutMs: number): Promise<boolean> =>
      places.get(of)?.ask({ what: 'probe', address: NAME_SERVER, port: 53, protocol, timeoutMs }) ??
      Promise.resolve(false);
    const asked = async (egress: object | undefined): Promise<Record<string, boolean>> => {
      const spec = { podSelector: {}, policyTypes: ['Egress'], ...(egress === undefined ? {} : { egress: [egress] }) };
      await setPolicies([{ namespace: 'x', name: 'egress', spec: spec as never }]);
      const [udp, tcp, other] = await Promise.all([
        query('x/a', 'UDP', 1_500),
        query('x/a', 'TCP', 1_500),
        query('y/a', 'UDP', 10_000),
      ]);
      assert.ok(other, 'the pods of other namespaces are not concerned');
      return { udp, tcp };
    };
    const dns = [{ protocol: 'UDP', port: 53 }];
    const coreDns = {
      namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'kube-system' } },
      podSelector: { matchLabels: { 'k8s-app': 'kube-dns' } },
    };
    assert.deepEqual(await asked(undefined), { udp: false, tcp: false });
    assert.deepEqual(await asked({ ports: dns }), { udp: true, tcp: false });
    assert.deepEqual(await asked({ to: [coreDns] }), { udp: true, tcp: true });
    assert.deepEqual(await asked({ to: [coreDns], ports: [{ protocol: 'TCP', port: 'dns-tcp' }] }), {
      udp: false,
      tcp: true,
    });
    assert.deepEqual(await asked({ to: [{ podSelector: {} }] }), { udp: false, tcp: false });
    assert.deepEqual(await asked({ to: [{ ipBlock: { cidr: `${NAME_SERVER}/32` } }] }), { udp: true, tcp: true });
    await setPolicies([]);
    assert.ok(await query('x/a', 'UDP', 10_000));
  });

  test('hold for what only pods of one bridge can send each other: link-local, broadcast and multicast packets', async () => {
    const isolated = { policyTypes: ['Ingress', 'Egress'] as const, podSelector: {} };
    const others = { matchExpressions: [{ key: 'pod', operator: 'NotIn', values: ['a'] }] };
    const place = `${PREFIX}xa`;
    const [own = ''] = /fe80[0-9a-f:]+/.exec(run('ip', ['-n', place, '-6', 'address', 'show', 'dev', 'eth0'])) ?? [];
    run('ip', [
      'netns',
      'exec',
      place,
      'nft',
      'add table inet seen; add chain inet seen in { type filter hook input priority 0; }',
    ]);
    const received = async (address: string, match: string): Promise<boolean> => {
      run('ip', [
        'netns',
        'exec',
        place,
        'nft',
        `flush chain inet seen in; add rule inet seen in ${match} udp dport 81 counter`,
      ]);
      await places.get('y/a')?.ask({ what: 'probe', address, port: 81, protocol: 'UDP', timeoutMs: 700 });
      return !run('ip', ['netns', 'exec', place, 'nft', 'list', 'table', 'inet', 'seen']).includes('packets 0 ');
    };
    const ways = [
      [`${own}%eth0`, `ip6 daddr ${own}`],
      ['10.97.7.255', 'ip daddr 10.97.7.255'],
      ['255.255.255.255', 'ip daddr 255.255.255.255'],
      ['224.0.0.1', 'ip daddr 224.0.0.1'],
      ['ff02::1%eth0', 'ip6 daddr ff02::1'],
    ] as const;
    const passed = async (): Promise<string[]> => {
      const found: string[] = [];
      for (const [address, match] of ways) if (await received(address, match)) found.push(address);
      return found;
    };
    await setPolicies([]);
    assert.deepEqual(
      await passed(),
      ways.map(([address]) => address),
    );
    await setPolicies([
      { namespace: 'x', name: 'deny', spec: isolated as never },
      { namespace: 'y', name: 'deny', spec: { ...isolated, podSelector: others } as never },
    ]);
    assert.deepEqual(await passed(), []);
    await setPolicies([]);
  });

  test('are judged by the pod behind a service', async () => {
    const [xa, xb] = pods;
    const translate = ['add table ip s', 'add chain ip s pre { type nat hook prerouting priority dstnat; }'];
    await nft.run(
      `${translate.join('\n')}\nadd rule ip s pre ip daddr 10.97.200.1 tcp dport 8000 dnat to 10.97.7.12:81\n`,
    );
    const service = { what: 'probe', address: '10.97.200.1', port: 8000, protocol: 'TCP' } as const;
    await setPolicies([
      {
        namespace: 'x',
        name: 'service',
        spec: {
          podSelector: {},
          policyTypes: ['Egress'],
          egress: [{ to: [{ podSelector: {} }], ports: [{ port: 81 }] }],
        },
      },
    ]);
    assert.ok(await places.get(nameOf(xa))?.ask({ ...service, timeoutMs: 10_000 }));
    assert.ok(
      await places
        .get(nameOf(xb))
        ?.ask({ ...service, timeoutMs: 2_000 })
        .then(() => true),
    );
    await setPolicies([
      {
        namespace: 'x',
        name: 'service',
        spec: { podSelector: {}, policyTypes: ['Egress'], egress: [{ ports: [{ port: 8000 }] }] },
      },
    ]);
    assert.equal(await places.get(nameOf(xa))?.ask({ ...service, timeoutMs: 700 }), false);
  });

  test('end established connections that they refuse from now on, and let them continue when they allow them', async () => {
    const [from, to] = [pods[0], pods[4]];
    const connection = { address: probeAddress(to, 4), port: 80, protocol: 'TCP' } as const;
    const ask = (what: 'hold' | 'use', timeoutMs: number): Promise<boolean> | undefined =>
      places.get(nameOf(from))?.ask({ ...connection, what, timeoutMs });
    await setPolicies([]);
    assert.ok(await ask('hold', 10_000));
    assert.ok(await ask('use', 10_000));
    await setPolicies([{ namespace: 'y', name: 'deny', spec: { podSelector: {}, policyTypes: ['Ingress'] } }]);
    assert.equal(await ask('use', 1_000), false);
    await setPolicies([]);
    // TCP repeats what was lost.
    assert.ok(await ask('use', 30_000));
  });

  test('let the node itself reach its pods, and pods reach the node', async () => {
    await setPolicies([
      { namespace: 'x', name: 'deny', spec: { podSelector: {}, policyTypes: ['Ingress', 'Egress'] } },
    ]);
    const [xa, xb] = [pods[0], pods[1]];
    const reach = (place: string, address: string, timeoutMs: number): Promise<boolean> | undefined =>
      places.get(place)?.ask({ what: 'probe', protocol: 'TCP', port: 80, address, timeoutMs });
    for (const family of [4, 6] as const) {
      assert.ok(await reach('node', probeAddress(xa, family), 10_000));
      assert.ok(await reach(nameOf(xa), family === 4 ? '10.97.7.1' : 'fd97::1', 10_000));
      assert.equal(await reach(nameOf(xa), probeAddress(xb, family), 700), false);
    }
  });

  test('were probed often enough to be a truth table', () => assert.ok(probed >= 300, `${probed} probes`));
});
