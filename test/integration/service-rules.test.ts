/**
 * Tests the rules of services with real packets, in both proxy modes. A network namespace serves as the node, others as its
 * pods, and one as a host outside. The service proxy writes the rules into the namespace of the node.
 */
import assert from 'node:assert/strict';
import { type ChildProcessWithoutNullStreams, spawn, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, describe, test } from 'node:test';
import { hostNftables } from '../../agent/network/nftables.ts';
import { hostPacketFilter } from '../../agent/network/serviceproxy/iptables.ts';
import { IptablesWriter } from '../../agent/network/serviceproxy/iptables-writer.ts';
import { NftablesWriter } from '../../agent/network/serviceproxy/nftables-writer.ts';
import type { ProxyMode } from '../../agent/network/serviceproxy/rule-writer.ts';
import { ServiceProxy } from '../../agent/network/serviceproxy/service-proxy.ts';
import { hostConntrack } from '../../agent/network/serviceproxy/udp-connections.ts';
import { silentLogger } from '../../api/component/logger.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { Informers } from '../../api/client/informer.ts';
import type { EndpointSlice, Service } from '../../api/kinds/kinds.ts';
import { endpointSlices, services } from '../../api/client/resources.ts';
import { FakeClient } from '../fakes/fake-client.ts';
import { FakeClock } from '../fakes/fake-clock.ts';
import { until } from '../until.ts';
import { run } from './running-cluster.ts';
import { hasPerl, sendSctp } from './raw-packets.ts';
import type { ServiceRequest } from './service-pod.ts';
import { namespacePrefix } from './test-namespaces.ts';

const PREFIX = namespacePrefix('s');
const NODE = `${PREFIX}node`;
const IN_NODE = ['ip', 'netns', 'exec', NODE];
/** How long to wait for a packet that is dropped. It is longer than a packet takes here. */
const DROPPED_MS = 700;
const ANSWERED_MS = 10_000;

function whyNot(): string | false {
  const made = spawnSync('ip', ['netns', 'add', `${PREFIX}t`]);
  if (made.status !== 0) return 'this host makes no network namespaces';
  const inside = ['netns', 'exec', `${PREFIX}t`];
  const nft = spawnSync('ip', [...inside, 'nft', 'add', 'table', 'inet', 't']);
  const iptables = spawnSync('ip', [...inside, 'iptables', '-t', 'nat', '-S', 'PREROUTING']);
  spawnSync('ip', ['netns', 'delete', `${PREFIX}t`]);
  return nft.status !== 0 || iptables.status !== 0 ? 'nft and iptables cannot be used here' : false;
}

const hasConntrack = spawnSync('conntrack', ['--version']).error === undefined;

/** A network namespace with a process that serves and sends requests. */
class Place {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #waiting = new Map<number, (result: string) => void>();
  #next = 0;

  constructor(name: string) {
    const program = [
      process.execPath,
      '--disable-warning=ExperimentalWarning',
      join(import.meta.dirname, 'service-pod.ts'),
    ];
    this.#child = spawn('ip', ['netns', 'exec', `${PREFIX}${name}`, ...program, name]);
    createInterface({ input: this.#child.stdout }).on('line', (line) => {
      const { id, result } = JSON.parse(line) as { readonly id: number; readonly result: string };
      this.#waiting.get(id)?.(result);
      this.#waiting.delete(id);
    });
  }

  ask(
    address: string,
    port: number,
    { protocol = 'TCP', timeoutMs = ANSWERED_MS, from = 0 }: Partial<ServiceRequest> = {},
  ): Promise<string> {
    const id = this.#next++;
    const { promise, resolve } = Promise.withResolvers<string>();
    this.#waiting.set(id, resolve);
    this.#child.stdin.write(`${JSON.stringify({ id, address, port, protocol, timeoutMs, from })}\n`);
    return promise;
  }

  async close(): Promise<void> {
    const ended = new Promise((resolve) => this.#child.once('close', resolve));
    this.#child.stdin.end();
    await ended;
  }
}

const PODS = { a: 2, b: 3, c: 4 } as const;
const addressOf = (pod: keyof typeof PODS): string => `10.98.1.${PODS[pod]}`;
const OUTSIDE = '192.0.2.7';
const NODE_ADDRESS = '192.0.2.1';

function connect(name: string, number: number, isPod: boolean): void {
  const port = `v${number}`;
  const [v4, v6, gateway] = isPod
    ? [`10.98.1.${number}`, `fd98:1::${number}`, '10.98.1.1']
    : [OUTSIDE, '2001:db8:7::7', NODE_ADDRESS];
  const own = `${PREFIX}${name}`;
  run('ip', ['netns', 'add', own]);
  run('ip', ['-n', NODE, 'link', 'add', port, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', own]);
  run('ip', ['-n', NODE, 'address', 'add', `${gateway}/32`, 'dev', port]);
  run('ip', ['-n', NODE, 'address', 'add', 'fe80::1/64', 'dev', port, 'nodad']);
  // The name server's responses over UDP come from the address of the interface, as those of the bridge of pods do.
  if (isPod) run('ip', ['-n', NODE, 'address', 'add', 'fd98:1::1/128', 'dev', port, 'nodad']);
  run('ip', ['-n', NODE, 'link', 'set', port, 'up']);
  run('ip', ['-n', NODE, 'route', 'add', `${v4}/32`, 'dev', port]);
  run('ip', ['-n', NODE, '-6', 'route', 'add', `${v6}/128`, 'dev', port]);
  run('ip', ['-n', own, 'link', 'set', 'lo', 'up']);
  run('ip', ['-n', own, 'address', 'add', `${v4}/32`, 'dev', 'eth0']);
  run('ip', ['-n', own, 'address', 'add', `${v6}/128`, 'dev', 'eth0', 'nodad']);
  run('ip', ['-n', own, 'link', 'set', 'eth0', 'up']);
  run('ip', ['-n', own, 'route', 'add', 'default', 'via', gateway, 'dev', 'eth0', 'onlink']);
  run('ip', ['-n', own, '-6', 'route', 'add', 'default', 'via', 'fe80::1', 'dev', 'eth0']);
}

function connectAll(): void {
  run('ip', ['netns', 'add', NODE]);
  run('ip', ['-n', NODE, 'link', 'set', 'lo', 'up']);
  for (const name of ['net.ipv4.ip_forward', 'net.ipv6.conf.all.forwarding', 'net.ipv4.conf.all.route_localnet'])
    run('ip', ['netns', 'exec', NODE, 'sysctl', '-qw', `${name}=1`]);
  // Each probe gets its refusal at once.
  for (const name of ['net.ipv4.icmp_ratelimit', 'net.ipv6.icmp.ratelimit'])
    run('ip', ['netns', 'exec', NODE, 'sysctl', '-qw', `${name}=0`]);
  for (const [name, number] of Object.entries(PODS)) connect(name, number, true);
  connect('outside', 9, false);
  run('ip', ['-n', NODE, 'address', 'add', '2001:db8:7::1/128', 'dev', 'v9', 'nodad']);
  // A host without a route to the addresses of services refuses packets to them before any rule.
  run('ip', ['-n', NODE, 'route', 'add', 'default', 'via', OUTSIDE, 'dev', 'v9', 'onlink']);
  run('ip', ['-n', NODE, '-6', 'route', 'add', 'default', 'via', '2001:db8:7::7', 'dev', 'v9', 'onlink']);
}

interface Wanted {
  readonly name: string;
  readonly ip: string;
  readonly spec?: object;
  readonly ingress?: readonly string[];
  readonly protocol?: 'TCP' | 'UDP' | 'SCTP';
  /** Pods, and whether each is on this node. */
  readonly endpoints?: Partial<Record<keyof typeof PODS, 'here' | 'there'>>;
}

const serviceOf = ({ name, ip, spec = {}, ingress = [], protocol = 'TCP' }: Wanted): Service =>
  ({
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name, namespace: 'shop' },
    spec: {
      clusterIPs: [ip, `fd96::${ip.split('.')[3]}`],
      ports: [{ port: 80, protocol, ...('nodePort' in spec ? { nodePort: spec.nodePort } : {}) }],
      ...spec,
    },
    status: { loadBalancer: { ingress: ingress.map((address) => ({ ip: address })) } },
  }) as unknown as Service;

const sliceOf = ({ name, protocol = 'TCP', endpoints = {} }: Wanted, family: 'IPv4' | 'IPv6'): EndpointSlice =>
  ({
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: {
      name: `${name}-${family.toLowerCase()}`,
      namespace: 'shop',
      labels: { 'kubernetes.io/service-name': name },
    },
    addressType: family,
    ports: [{ name: '', port: 8080, protocol }],
    endpoints: Object.entries(endpoints).map(([pod, nodeName]) => ({
      addresses: [family === 'IPv4' ? addressOf(pod as 'a') : `fd98:1::${PODS[pod as 'a']}`],
      nodeName,
      conditions: { ready: true },
    })),
  }) as unknown as EndpointSlice;

const BOTH = { a: 'here', b: 'here' } as const;
const LOCAL = { externalTrafficPolicy: 'Local' } as const;
const WANTED: readonly Wanted[] = [
  { name: 'plain', ip: '10.96.0.1', endpoints: BOTH, spec: { nodePort: 30_001, externalIPs: ['203.0.113.1'] } },
  { name: 'own', ip: '10.96.0.2', endpoints: { a: 'here' } },
  { name: 'empty', ip: '10.96.0.3', spec: { nodePort: 30_003, externalIPs: ['203.0.113.3'] } },
  { name: 'inside', ip: '10.96.0.4', endpoints: { b: 'there' }, spec: { internalTrafficPolicy: 'Local' } },
  { name: 'local', ip: '10.96.0.5', endpoints: { a: 'here', b: 'there' }, spec: { ...LOCAL, nodePort: 30_005 } },
  { name: 'away', ip: '10.96.0.6', endpoints: { b: 'there' }, spec: { ...LOCAL, nodePort: 30_006 } },
  { name: 'sticky', ip: '10.96.0.7', endpoints: BOTH, spec: { sessionAffinity: 'ClientIP' } },
  { name: 'streams', ip: '10.96.0.21', endpoints: { a: 'here' }, protocol: 'SCTP', spec: { nodePort: 30_021 } },
  { name: 'datagrams', ip: '10.96.0.8', endpoints: { a: 'here' }, protocol: 'UDP', spec: { nodePort: 30_008 } },
  {
    name: 'open',
    ip: '10.96.0.9',
    endpoints: BOTH,
    ingress: ['203.0.113.9', NODE_ADDRESS],
    spec: { type: 'LoadBalancer', loadBalancerSourceRanges: ['192.0.2.0/24'] },
  },
  {
    name: 'closed',
    ip: '10.96.0.10',
    endpoints: BOTH,
    ingress: ['203.0.113.10'],
    spec: { type: 'LoadBalancer', nodePort: 30_010, loadBalancerSourceRanges: ['198.51.100.0/24', '198.51.100.0/25'] },
  },
  // Whoever may write a service must not get the traffic of an older one.
  { name: 'thief', ip: '10.96.0.11', endpoints: { c: 'here' }, spec: { externalIPs: ['10.96.0.1', '203.0.113.1'] } },
];

for (const mode of ['nftables', 'iptables'] as const)
  describe(`services with packets and ${mode}`, { skip: whyNot(), timeout: 200_000 }, () => scenarios(mode));

function scenarios(mode: ProxyMode): void {
  const places = new Map<string, Place>();
  const client = new FakeClient(new FakeClock());
  const informers = new Informers({ client, clock: systemClock, logger: silentLogger });
  const filter = hostPacketFilter(IN_NODE);
  const nft = hostNftables(IN_NODE);
  const newWriters = () => [
    new NftablesWriter({ nft, filter, table: 'orchlet-services', clock: systemClock }),
    new IptablesWriter(filter, systemClock),
  ];
  let writers = newWriters();
  let proxy: ServiceProxy;

  const place = (name: string): Place => {
    const found = places.get(name);
    assert.ok(found !== undefined);
    return found;
  };
  const dropped = (from: string, address: string, port: number): Promise<string> =>
    place(from).ask(address, port, { timeoutMs: DROPPED_MS });
  /** Returns the distinct answers to many connections. */
  const answers = async (from: string, address: string, port: number): Promise<string[]> => {
    const all = await Promise.all(Array.from({ length: 24 }, () => place(from).ask(address, port)));
    return [...new Set(all)].toSorted();
  };
  const proxyOf = (used: ProxyMode): ServiceProxy =>
    new ServiceProxy({
      services: informers.for(services),
      slices: informers.for(endpointSlices),
      writers: writers.filter((writer) => writer.mode === used),
      otherWriters: writers.filter((writer) => writer.mode !== used),
      conntrack: hostConntrack(['ip', 'netns', 'exec', NODE]),
      clock: systemClock,
      logger: silentLogger,
      masqueradeBit: 14,
      place: () => ({ nodeName: 'here', zone: '', nodeIps: [NODE_ADDRESS] }),
      podCidrs: () => ['10.98.1.0/24', 'fd98:1::/64'],
      localhostNodePorts: true,
      nameServer: () => ({ addresses: ['10.96.0.53', 'fd96::53'], port: 5300 }),
      takeLock: () => Promise.resolve({ close: () => undefined }),
    });
  const conntrackOf = async (address: string): Promise<string> => {
    const lines: string[] = [];
    for await (const line of hostConntrack(['ip', 'netns', 'exec', NODE])(['-L', '-p', 'udp', '-d', address]))
      lines.push(line);
    return lines.join('\n');
  };
  const create = async (wanted: Wanted): Promise<void> => {
    await client.create(services, 'shop', serviceOf(wanted));
    for (const family of ['IPv4', 'IPv6'] as const)
      await client.create(endpointSlices, 'shop', sliceOf(wanted, family));
  };

  before(async () => {
    connectAll();
    // A packet filter of other programs that drops forwarded packets must not affect services.
    run('ip', ['netns', 'exec', NODE, 'iptables', '-P', 'FORWARD', 'DROP']);
    run('ip', [
      'netns',
      'exec',
      NODE,
      'iptables',
      '-A',
      'FORWARD',
      '-s',
      '10.98.1.0/24',
      '-d',
      '10.98.1.0/24',
      '-j',
      'ACCEPT',
    ]);
    for (const name of [...Object.keys(PODS), 'outside', 'node']) places.set(name, new Place(name));
    for (const wanted of WANTED) await create(wanted);
    proxy = proxyOf(mode);
    void proxy.run(new AbortController().signal);
    await until('the rules', async () => (await place('c').ask('fd96::1', 80, { timeoutMs: 500 })) !== 'none');
  });
  after(async () => {
    await proxy?.close({ remove: true });
    await informers.close();
    await Promise.all([...places.values()].map((each) => each.close()));
    for (const name of [...Object.keys(PODS), 'outside', 'node'])
      spawnSync('ip', ['netns', 'delete', `${PREFIX}${name}`]);
  });

  test('reach every endpoint by the cluster IP, which sees the address of the pod', async () => {
    assert.deepEqual(await answers('c', '10.96.0.1', 80), [`a ${addressOf('c')}`, `b ${addressOf('c')}`]);
    assert.deepEqual(await answers('c', 'fd96::1', 80), ['a fd98:1::4', 'b fd98:1::4']);
    assert.match(await place('node').ask('10.96.0.1', 80), /^[ab] /);
    assert.match(await place('outside').ask('10.96.0.1', 80), /^[ab] 10\.98\.1\.1$/, 'masqueraded');
  });

  test('reach the pod that sends the request', async () => {
    assert.equal(await place('a').ask('10.96.0.2', 80), 'a 10.98.1.1');
    // A connection whose first packet came before the rules of this service is never translated.
    const ask = async (): Promise<string> => place('a').ask('fd96::2', 80, { timeoutMs: 1000 });
    const answer = await until('an answer', async () => {
      const found = await ask();
      return found === 'none' ? undefined : found;
    });
    assert.match(answer, /^a (?!fd98:1::2$)/);
  });

  test('are refused without endpoints, and dropped where only other nodes have some', async () => {
    for (const from of ['c', 'node', 'outside']) assert.equal(await place(from).ask('10.96.0.3', 80), 'refused', from);
    assert.equal(await place('c').ask('fd96::3', 80), 'refused');
    assert.equal(await place('outside').ask(NODE_ADDRESS, 30_003), 'refused');
    assert.equal(await place('outside').ask('203.0.113.3', 80), 'refused');
    assert.equal(await dropped('c', '10.96.0.4', 80), 'none');
  });

  test('have node ports', async () => {
    assert.deepEqual(await answers('outside', NODE_ADDRESS, 30_001), ['a 10.98.1.1', 'b 10.98.1.1']);
    assert.match(await place('outside').ask('2001:db8:7::1', 30_001), /^[ab] /);
    for (const from of ['c', 'node']) assert.match(await place(from).ask(NODE_ADDRESS, 30_001), /^[ab] /);
    const onLoopback = await place('node').ask('127.0.0.1', 30_001);
    if (mode === 'iptables') assert.match(onLoopback, /^[ab] /);
    else assert.equal(onLoopback, 'refused');
  });

  test('keep the address of clients outside under a Local policy, which does not limit the node and its pods', async () => {
    assert.deepEqual(await answers('outside', NODE_ADDRESS, 30_005), [`a ${OUTSIDE}`]);
    assert.deepEqual(
      (await answers('c', NODE_ADDRESS, 30_005)).map((answer) => answer[0]),
      ['a', 'b'],
    );
    assert.equal(await dropped('outside', NODE_ADDRESS, 30_006), 'none');
    assert.match(await place('c').ask(NODE_ADDRESS, 30_006), /^b /);
    assert.match(await place('node').ask(NODE_ADDRESS, 30_006), /^b /);
  });

  test('keep a client at its endpoint', async () => {
    const first = await place('c').ask('10.96.0.7', 80);
    assert.deepEqual(await answers('c', '10.96.0.7', 80), [first]);
  });

  test('keep a client at its endpoint when all rules are written again', { skip: mode === 'iptables' }, async () => {
    const first = await place('c').ask('10.96.0.7', 80);
    const [writer] = writers;
    // The counter shows whether the table is still the same one.
    run('ip', ['netns', 'exec', NODE, 'nft', 'add', 'rule', 'ip', 'orchlet-services', 'services', 'counter']);
    writer?.forget('IPv4');
    proxy.changed();
    const chain = ['nft', 'list', 'chain', 'ip', 'orchlet-services', 'services'];
    await until('the recreated table', () => !run('ip', ['netns', 'exec', NODE, ...chain]).includes('counter'));
    assert.deepEqual(await answers('c', '10.96.0.7', 80), [first]);
  });

  test('carry datagrams', async () => {
    assert.equal(await place('c').ask('10.96.0.8', 80, { protocol: 'UDP' }), `a ${addressOf('c')}`);
    assert.equal(await place('outside').ask(NODE_ADDRESS, 30_008, { protocol: 'UDP' }), 'a 10.98.1.1');
  });

  test('carry the first packets of SCTP associations', { skip: !hasPerl && 'perl is not installed' }, () => {
    const inPod = ['netns', 'exec', `${PREFIX}a`, 'nft'];
    const seen = 'table inet seen { chain in { type filter hook prerouting priority -300; }; }';
    for (const [from, address, port] of [
      ['c', '10.96.0.21', 80],
      ['c', 'fd96::21', 80],
      ['outside', NODE_ADDRESS, 30_021],
      ['outside', '2001:db8:7::1', 30_021],
    ] as const) {
      run('ip', [...inPod, `${seen}; flush chain inet seen in; add rule inet seen in sctp dport 8080 counter`]);
      sendSctp(`${PREFIX}${from}`, { address, port });
      assert.match(run('ip', [...inPod, 'list', 'table', 'inet', 'seen']), /packets 1 /, `${from} to ${address}`);
      run('ip', [...inPod, 'delete', 'table', 'inet', 'seen']);
    }
  });

  test('give an external address to the oldest service that claims it, and never the cluster IP of another one', async () => {
    assert.deepEqual(await answers('outside', '203.0.113.1', 80), ['a 10.98.1.1', 'b 10.98.1.1']);
    assert.ok((await answers('c', '10.96.0.1', 80)).every((answer) => !answer.startsWith('c')));
  });

  test('admit the source ranges of a load balancer alone, also at an address of the node', async () => {
    for (const address of ['203.0.113.9', NODE_ADDRESS]) {
      assert.match(await place('outside').ask(address, 80), /^[ab] /, address);
      assert.equal(await dropped('c', address, 80), 'none', address);
    }
    assert.equal(await dropped('outside', '203.0.113.10', 80), 'none');
    assert.match(await place('outside').ask(NODE_ADDRESS, 30_010), /^[ab] /, 'node ports have no ranges');
  });

  test('refuse ports that no service has', { skip: mode === 'iptables' }, async () => {
    assert.equal(await place('c').ask('10.96.0.1', 81), 'refused');
    assert.equal(await place('node').ask('fd96::1', 81), 'refused');
  });

  test('lead to the name server by its address alone', async () => {
    assert.equal(await place('c').ask('10.96.0.53', 53, { protocol: 'UDP' }), `node ${addressOf('c')}`);
    assert.equal(await place('c').ask('fd96::53', 53, { protocol: 'UDP' }), 'node fd98:1::4');
    assert.equal(await place('node').ask('10.96.0.53', 53, { protocol: 'UDP' }), 'node 127.0.0.1');
    assert.equal(await place('node').ask('fd96::53', 53, { protocol: 'UDP' }), 'node ::1');
    for (const address of [NODE_ADDRESS, '2001:db8:7::1'])
      assert.equal(await place('c').ask(address, 5300, { protocol: 'UDP', timeoutMs: DROPPED_MS }), 'none');
  });

  test('move UDP clients to a new endpoint', { skip: !hasConntrack && 'conntrack is not installed' }, async () => {
    const ask = (): Promise<string> =>
      place('c').ask('10.96.0.8', 80, { protocol: 'UDP', from: 40_000, timeoutMs: 500 });
    assert.match(await ask(), /^a /);
    const slice = sliceOf({ name: 'datagrams', ip: '10.96.0.8', protocol: 'UDP', endpoints: { b: 'here' } }, 'IPv4');
    await client.update(endpointSlices, { ...client.peek(endpointSlices, 'shop', 'datagrams-ipv4'), ...slice });
    await until('the other endpoint', async () => (await ask()).startsWith('b '));
  });

  test(
    'keep UDP clients at an endpoint while it terminates, and move them from one that disappeared while no agent ran',
    { skip: !hasConntrack && 'conntrack is not installed' },
    async () => {
      const ask = (from: number): Promise<string> =>
        place('c').ask('10.96.0.8', 80, { protocol: 'UDP', from, timeoutMs: 500 });
      const replace = async (endpoints: NonNullable<Wanted['endpoints']>, conditions: object): Promise<void> => {
        const slice = sliceOf({ name: 'datagrams', ip: '10.96.0.8', protocol: 'UDP', endpoints }, 'IPv4');
        for (const one of slice.endpoints ?? [])
          if (one.addresses[0] === addressOf('b')) Object.assign(one, { conditions });
        await client.update(endpointSlices, { ...client.peek(endpointSlices, 'shop', 'datagrams-ipv4'), ...slice });
      };
      assert.match(await ask(40_001), /^b /);
      await replace({ a: 'here', b: 'here' }, { ready: false, serving: true, terminating: true });
      let port = 40_001;
      await until('the ready endpoint for new clients', async () => (await ask((port += 1))).startsWith('a '));
      assert.match(await ask(40_001), /^b /, 'a client of the endpoint that terminates');
      const names = await conntrackOf('10.96.0.8');
      assert.match(names, new RegExp(`sport=40001 .*src=${addressOf('b')} `));
      await proxy.close({ remove: false });
      await replace({ a: 'here' }, {});
      writers = newWriters();
      proxy = proxyOf(mode);
      void proxy.run(new AbortController().signal);
      await until('the ready endpoint', async () => (await ask(40_001)).startsWith('a '));
    },
  );

  test('follow changes', async () => {
    await client.delete(endpointSlices, 'shop', 'own-ipv4');
    await until('a refusal', async () => (await place('c').ask('10.96.0.2', 80)) === 'refused');
    await create({ name: 'later', ip: '10.96.0.20', endpoints: { b: 'here' }, spec: { sessionAffinity: 'ClientIP' } });
    await until('the service', async () =>
      (await place('c').ask('10.96.0.20', 80, { timeoutMs: 500 })).startsWith('b '),
    );
    await client.delete(services, 'shop', 'thief');
    await client.delete(services, 'shop', 'plain');
    await until(
      'the end of the service',
      async () => !/^[ab]/.test(await place('outside').ask('203.0.113.1', 80, { timeoutMs: 500 })),
    );
  });

  test('are written again when another program has removed the rules, and in the other mode', async () => {
    const other = mode === 'nftables' ? 'iptables' : 'nftables';
    await proxy.close({ remove: false });
    const second = new ServiceProxy({
      services: informers.for(services),
      slices: informers.for(endpointSlices),
      writers: writers.filter((writer) => writer.mode === other),
      otherWriters: writers.filter((writer) => writer.mode === mode),
      conntrack: hostConntrack(['ip', 'netns', 'exec', NODE]),
      clock: systemClock,
      logger: silentLogger,
      masqueradeBit: 14,
      place: () => ({ nodeName: 'here', zone: '' }),
      podCidrs: () => [],
      takeLock: () => Promise.resolve({ close: () => undefined }),
    });
    const rules = (): string =>
      run('ip', ['netns', 'exec', NODE, 'nft', 'list', 'tables']) + run('ip', ['netns', 'exec', NODE, 'iptables-save']);
    const [mine, theirs] =
      mode === 'nftables' ? [/orchlet-services/, /ORC-SERVICES/] : [/ORC-SERVICES/, /orchlet-services/];
    void second.run(new AbortController().signal);
    await until('the other mode alone', () => theirs.test(rules()) && !mine.test(rules()));
    assert.match(await place('c').ask('10.96.0.20', 80), /^b /);
    await second.close({ remove: true });
    assert.doesNotMatch(rules(), /orchlet-services|ORC-/);
  });
}
