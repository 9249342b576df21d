import assert from 'node:assert/strict';
import { createSocket } from 'node:dgram';
import { Resolver } from 'node:dns/promises';
import { once } from 'node:events';
import { connect } from 'node:net';
import { after, before, describe, it } from 'node:test';
import dnsPacket from 'dns-packet';
import { ClusterDns } from '../../../../../agent/network/clusterdns/cluster-dns.ts';
import type { ClusterNames } from '../../../../../agent/network/clusterdns/records.ts';
import { type DnsObserver, dnsMetrics } from '../../../../../agent/network/clusterdns/dns-metrics.ts';
import { ResponseCache } from '../../../../../agent/network/clusterdns/response-cache.ts';
import { framed, FramedMessages, parseUpstream } from '../../../../../agent/network/clusterdns/upstream.ts';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import { MetricsRegistry } from '../../../../../api/component/metrics.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import type { EndpointSlice, Service } from '../../../../../api/kinds/kinds.ts';

const service = (name: string, spec: object): Service =>
  ({ metadata: { name, namespace: 'shop' }, spec }) as unknown as Service;
const services = [
  service('web', { clusterIP: '10.96.0.7', clusterIPs: ['10.96.0.7', 'fd00::7'], ports: [{ name: 'http', port: 80 }] }),
  service('db', { clusterIP: 'None', clusterIPs: ['None'], ports: [{ name: 'sql', port: 5432 }] }),
  service('away', { type: 'ExternalName', externalName: 'shop.example.org' }),
  service('alias', { type: 'ExternalName', externalName: 'web.shop.svc.cluster.local' }),
  service('number', { type: 'ExternalName', externalName: '10.9.9.9' }),
  service('long', { type: 'ExternalName', externalName: `${'l'.repeat(64)}.example.org` }),
  service('pointer', { type: 'ExternalName', externalName: `${'p'.repeat(200)}.org` }),
  service('dotted', { type: 'ExternalName', externalName: 'shop.example.org.' }),
  service('idle', { clusterIP: 'None', clusterIPs: ['None'], ports: [{ name: 'http', port: 80 }] }),
  service('crowd', { clusterIP: 'None', clusterIPs: ['None'] }),
];
const slice = (name: string, endpoints: readonly object[]): EndpointSlice =>
  ({
    metadata: { name, namespace: 'shop', labels: { 'kubernetes.io/service-name': name } },
    addressType: 'IPv4',
    ports: [{ name: 'sql', port: 5432, protocol: 'TCP' }],
    endpoints,
  }) as unknown as EndpointSlice;
const slices = [
  slice('web', [{ addresses: ['10.0.0.4'] }]),
  slice('two..dots', [{ addresses: ['10.0.0.6'] }]),
  slice('idle', [{ addresses: ['10.0.0.5'], conditions: { ready: false } }]),
  slice('db', [
    { addresses: ['10.0.0.1'], hostname: 'db-0' },
    { addresses: ['10.0.0.2'] },
    { addresses: ['10.0.0.3'], conditions: { ready: false } },
  ]),
  slice(
    'crowd',
    Array.from({ length: 120 }, (_, index) => ({ addresses: [`10.1.0.${index + 1}`] })),
  ),
];
/** The number of endpoint look-ups. */
let resolved = 0;
const names: ClusterNames = {
  nameServers: () => ['10.96.0.10', 'fd00::a'],
  service: (namespace, name) =>
    services.find(({ metadata }) => metadata.namespace === namespace && metadata.name === name),
  slicesOf: (namespace, name) => {
    resolved += 1;
    return slices.filter(({ metadata }) => metadata.namespace === namespace && metadata.name === name);
  },
  hasServices: (namespace) => namespace === 'shop',
  serviceAt: (address) => services.find(({ spec }) => spec?.clusterIPs?.includes(address)),
  slicesAt: (address) =>
    slices.filter(({ endpoints }) => endpoints?.some(({ addresses }) => addresses.includes(address))),
};

describe('the name server of a node', () => {
  let dns: ClusterDns;
  let upstream: ReturnType<typeof createSocket>;
  let resolver: Resolver;
  let isSynced = true;
  const metrics = new MetricsRegistry();
  const observer: DnsObserver = dnsMetrics(metrics, () => cache.size);
  const cache: ResponseCache = new ResponseCache({ clock: systemClock, observer: observer.cache });

  before(async () => {
    upstream = createSocket('udp4');
    upstream.on('message', (message, peer) => {
      const { id = 0, questions = [] } = dnsPacket.decode(message);
      const [question] = questions;
      if (question?.name.endsWith('silent.example.org') === true) return;
      const answers = question?.type === 'A' ? [{ type: 'A' as const, name: question.name, data: '203.0.113.5' }] : [];
      upstream.send(dnsPacket.encode({ type: 'response', id, questions, answers }), peer.port, peer.address);
    });
    await new Promise<void>((resolve) => upstream.bind(0, '127.0.0.1', resolve));
    dns = new ClusterDns({
      names,
      domain: 'cluster.local',
      synced: () => isSynced,
      upstreams: () => Promise.resolve([`127.0.0.1:${upstream.address().port}`]),
      cache,
      observer,
      clock: systemClock,
      logger: silentLogger,
    });
    await dns.listen(0, ['127.0.0.1', '::1']);
    for (const family of dns.families) dns.serve(family);
    resolver = new Resolver({ timeout: 5000, tries: 2 });
    resolver.setServers([`127.0.0.1:${dns.port}`]);
  });

  after(async () => {
    await dns.close();
    upstream.close();
  });

  const code = (pending: Promise<unknown>): Promise<string> =>
    pending.then(
      () => 'answered',
      (error: NodeJS.ErrnoException) => error.code ?? '',
    );

  it('resolves services to their addresses of both families, without regard to case', async () => {
    assert.deepEqual(await resolver.resolve4('Web.shop.svc.CLUSTER.local'), ['10.96.0.7']);
    assert.deepEqual(await resolver.resolve6('web.shop.svc.cluster.local'), ['fd00::7']);
  });

  it('resolves headless services to their ready endpoints, and each endpoint by its name', async () => {
    assert.deepEqual((await resolver.resolve4('db.shop.svc.cluster.local')).toSorted(), ['10.0.0.1', '10.0.0.2']);
    assert.deepEqual(await resolver.resolve4('db-0.db.shop.svc.cluster.local'), ['10.0.0.1']);
    assert.deepEqual(await resolver.resolve4('10-0-0-2.db.shop.svc.cluster.local'), ['10.0.0.2']);
  });

  it('resolves SRV records of ports', async () => {
    const [http] = await resolver.resolveSrv('_http._tcp.web.shop.svc.cluster.local');
    assert.deepEqual([http?.name, http?.port], ['web.shop.svc.cluster.local', 80]);
    const found = await resolver.resolveSrv('_sql._tcp.db.shop.svc.cluster.local');
    assert.deepEqual(found.map(({ name, port }) => `${name}:${port}`).toSorted(), [
      '10-0-0-2.db.shop.svc.cluster.local:5432',
      'db-0.db.shop.svc.cluster.local:5432',
    ]);
    assert.equal(await code(resolver.resolveSrv('_ftp._tcp.web.shop.svc.cluster.local')), 'ENOTFOUND');
  });

  it('resolves pods by their addresses, and addresses to names', async () => {
    assert.deepEqual(await resolver.resolve4('10-0-0-9.shop.pod.cluster.local'), ['10.0.0.9']);
    assert.deepEqual(await resolver.reverse('10.96.0.7'), ['web.shop.svc.cluster.local']);
    assert.deepEqual(await resolver.reverse('10.0.0.1'), ['db-0.db.shop.svc.cluster.local']);
    assert.deepEqual(await resolver.reverse('fd00::7'), ['web.shop.svc.cluster.local']);
  });

  it('resolves names as CoreDNS does where the specification leaves it open', async () => {
    assert.deepEqual(await resolver.resolve4('10-0-0-4.web.shop.svc.cluster.local'), ['10.0.0.4'], 'an endpoint');
    assert.deepEqual(await resolver.reverse('10.0.0.4'), ['10-0-0-4.web.shop.svc.cluster.local']);
    assert.equal(await code(resolver.resolve4('idle.shop.svc.cluster.local')), 'ENOTFOUND', 'no ready endpoint');
    assert.deepEqual(await resolver.resolve4('_http._tcp.web.shop.svc.cluster.local'), ['10.96.0.7']);
    assert.equal(await code(resolver.resolve4('number.shop.svc.cluster.local')), 'ENOTFOUND', 'an address is no alias');
    assert.deepEqual(await resolver.resolveCname('dotted.shop.svc.cluster.local'), ['shop.example.org']);
  });

  it('answers for the zone', async () => {
    assert.deepEqual(await resolver.resolveNs('cluster.local'), ['ns.dns.cluster.local']);
    assert.deepEqual(await resolver.resolve4('ns.dns.cluster.local'), ['10.96.0.10']);
    assert.deepEqual(await resolver.resolve6('ns.dns.cluster.local'), ['fd00::a']);
    assert.equal((await resolver.resolveSoa('cluster.local')).nsname, 'ns.dns.cluster.local');
    assert.deepEqual(await resolver.resolveTxt('dns-version.cluster.local'), [['1.1.0']]);
    assert.equal(await code(resolver.resolve4('svc.cluster.local')), 'ENODATA');
  });

  it('distinguishes a name that does not exist from a name without such records', async () => {
    assert.equal(await code(resolver.resolve4('none.shop.svc.cluster.local')), 'ENOTFOUND');
    assert.equal(await code(resolver.resolve4('web.none.svc.cluster.local')), 'ENOTFOUND');
    assert.equal(await code(resolver.resolveTxt('web.shop.svc.cluster.local')), 'ENODATA');
    assert.equal(await code(resolver.resolve4('shop.svc.cluster.local')), 'ENODATA');
  });

  it('follows ExternalName services, in the cluster and outside', async () => {
    assert.deepEqual(await resolver.resolveCname('away.shop.svc.cluster.local'), ['shop.example.org']);
    assert.deepEqual(await resolver.resolve4('away.shop.svc.cluster.local'), ['203.0.113.5']);
    assert.deepEqual(await resolver.resolve4('alias.shop.svc.cluster.local'), ['10.96.0.7']);
  });

  it('counts queries and responses', async () => {
    await resolver.resolve4('web.shop.svc.cluster.local');
    await code(resolver.resolve4('none.shop.svc.cluster.local'));
    await resolver.resolve4('counted.example.org');
    await resolver.resolve4('counted.example.org');
    const text = metrics.text();
    for (const line of [
      /coredns_dns_requests_total\{family="1",proto="udp",server="dns:\/\/:53",type="A",view="",zone="cluster\.local\."\} [1-9]/,
      /coredns_dns_responses_total\{plugin="kubernetes",rcode="NXDOMAIN",server="dns:\/\/:53",view="",zone="cluster\.local\."\} [1-9]/,
      /coredns_dns_responses_total\{plugin="forward",rcode="NOERROR",server="dns:\/\/:53",view="",zone="\."\} [1-9]/,
      /coredns_cache_misses_total\{server="dns:\/\/:53",view="",zones="\."\} [1-9]/,
      /coredns_dns_request_duration_seconds_count\{server="dns:\/\/:53",view="",zone="\."\} [1-9]/,
    ])
      assert.match(text, line);
  });

  it("forwards all other queries to the host's name servers", async () => {
    assert.deepEqual(await resolver.resolve4('example.org'), ['203.0.113.5']);
  });

  it('truncates a long response over UDP, and sends it whole over TCP', async () => {
    assert.equal((await resolver.resolve4('crowd.shop.svc.cluster.local')).length, 120);
    const question = dnsPacket.encode({
      type: 'query',
      id: 7,
      questions: [{ type: 'A', name: 'crowd.shop.svc.cluster.local' }],
    });
    const client = createSocket('udp4');
    client.send(question, dns.port, '127.0.0.1');
    const [answer] = (await once(client, 'message')) as [Buffer];
    client.close();
    assert.ok(answer.length <= 512);
    assert.equal(dnsPacket.decode(answer).flag_tc, true);
    // Clients that do not repeat the query over TCP use what is there.
    assert.equal(dnsPacket.decode(answer).answers?.length, 29);
    const socket = connect(dns.port, '127.0.0.1');
    const whole = await new Promise<Buffer>((resolve) => {
      const read = new FramedMessages(resolve);
      socket.on('data', (data: Buffer) => read.push(data));
      for (const byte of framed(question)) socket.write(Buffer.of(byte));
    });
    socket.destroy();
    assert.equal(dnsPacket.decode(whole).answers?.length, 120);
  });

  it("varies the order of a service's addresses, so that a truncated response may contain any of them", async () => {
    const first = new Set<string | undefined>();
    for (let time = 0; time < 60; time += 1) first.add((await resolver.resolve4('db.shop.svc.cluster.local'))[0]);
    assert.deepEqual([...first].toSorted(), ['10.0.0.1', '10.0.0.2']);
    const client = createSocket('udp4');
    const questions = [{ type: 'A' as const, name: 'crowd.shop.svc.cluster.local' }];
    const seen = new Set<unknown>();
    while (seen.size < 120) {
      client.send(dnsPacket.encode({ type: 'query', id: 7, questions }), dns.port, '127.0.0.1');
      const [answer] = (await once(client, 'message')) as [Buffer];
      for (const record of dnsPacket.decode(answer).answers ?? []) seen.add('data' in record ? record.data : '');
    }
    client.close();
  });

  it('refuses zone transfers, other operations and versions of EDNS that it does not know', async () => {
    const client = createSocket('udp4');
    const codeOf = async (type: 'A' | 'AXFR', { version = 0, opcode = 0 } = {}): Promise<number> => {
      const questions = [{ type, name: 'web.shop.svc.cluster.local' }];
      const option = { type: 'OPT', name: '.', udpPayloadSize: 1232, ednsVersion: version, flags: 0, options: [] };
      const query = { type: 'query', id: 7, questions, additionals: [option] } as never;
      const message = dnsPacket.encode(query);
      message.writeUInt16BE(opcode << 11, 2);
      client.send(message, dns.port, '127.0.0.1');
      const [answer] = (await once(client, 'message')) as [Buffer];
      const { flags = 0, additionals = [] } = dnsPacket.decode(answer);
      const [upper = 0] = additionals.map((record) => (record.type === 'OPT' ? record.extendedRcode : 0));
      return (flags & 0xf) | (upper << 4);
    };
    assert.deepEqual(
      [await codeOf('A'), await codeOf('AXFR'), await codeOf('A', { opcode: 5 }), await codeOf('A', { version: 1 })],
      [0, 5, 4, 16],
    );
    client.close();
  });

  it('does not let each query wait for a name server that is down', async () => {
    const silent = createSocket('udp4');
    await new Promise<void>((resolve) => silent.bind(0, '127.0.0.1', resolve));
    let asked = 0;
    silent.on('message', () => (asked += 1));
    const second = new ClusterDns({
      ...{ names, domain: 'cluster.local', synced: () => true, cache: new ResponseCache({ clock: systemClock }) },
      ...{ clock: systemClock, logger: silentLogger },
      upstreams: () => Promise.resolve([`127.0.0.1:${silent.address().port}`, `127.0.0.1:${upstream.address().port}`]),
    });
    await second.listen(0, ['127.0.0.1']);
    second.serve('IPv4');
    const client = new Resolver({ timeout: 8000, tries: 1 });
    client.setServers([`127.0.0.1:${second.port}`]);
    for (const name of ['one', 'two', 'three', 'four'])
      assert.deepEqual(await client.resolve4(`${name}.example.org`), ['203.0.113.5']);
    assert.equal(asked, 2);
    await second.close();
    silent.close();
  });

  it('serves IPv6 as it serves IPv4: whole over TCP, truncated over UDP, up to 1,232 bytes with EDNS', async () => {
    assert.deepEqual(dns.families, ['IPv4', 'IPv6']);
    const six = new Resolver({ timeout: 5000, tries: 2 });
    six.setServers([`[::1]:${dns.port}`]);
    assert.deepEqual(await six.resolve6('web.shop.svc.cluster.local'), ['fd00::7']);
    assert.equal((await six.resolve4('crowd.shop.svc.cluster.local')).length, 120, 'over TCP');
    const ask = async (message: Buffer): Promise<Buffer> => {
      const client = createSocket('udp6');
      client.send(message, dns.port, '::1');
      const [answer] = (await once(client, 'message')) as [Buffer];
      client.close();
      return answer;
    };
    const query = (...additionals: object[]): Buffer =>
      dnsPacket.encode({
        ...{ type: 'query', id: 7, questions: [{ type: 'A', name: 'crowd.shop.svc.cluster.local' }] },
        additionals: additionals as never,
      });
    const plain = await ask(query());
    assert.ok(plain.length <= 512);
    const large = await ask(query({ type: 'OPT', name: '.', udpPayloadSize: 65_535, flags: 0, options: [] }));
    assert.ok(large.length <= 1232);
    for (const answer of [plain, large]) assert.equal(dnsPacket.decode(answer).flag_tc, true);
    const hostile = Buffer.from([0, 9, 1, 0, 0x27, 0x11, 0, 0, 0, 0, 0, 0]);
    assert.equal((await ask(hostile)).readUInt16BE(2) & 0xf, 1, 'a format error');
  });

  it('answers no query of a family before rules keep all but the pods away', async () => {
    const early = new ClusterDns({
      ...{ names, domain: 'cluster.local', synced: () => true, upstreams: () => Promise.resolve([]) },
      ...{ cache, clock: systemClock, logger: silentLogger },
    });
    await early.listen(0, ['127.0.0.1', '::1']);
    const answered = async (type: 'udp4' | 'udp6'): Promise<boolean> => {
      const client = createSocket(type);
      const question = dnsPacket.encode({ type: 'query', id: 1, questions: [{ type: 'A', name: 'cluster.local' }] });
      client.send(question, early.port, type === 'udp4' ? '127.0.0.1' : '::1');
      const first = await Promise.race([once(client, 'message'), new Promise((resolve) => setTimeout(resolve, 300))]);
      client.close();
      return first !== undefined;
    };
    try {
      const refused = connect(early.port, '127.0.0.1').on('error', () => undefined);
      await once(refused, 'close');
      early.serve('IPv4');
      assert.deepEqual([await answered('udp4'), await answered('udp6')], [true, false]);
      early.serve('IPv6');
      assert.equal(await answered('udp6'), true);
    } finally {
      await early.close();
    }
  });

  it('fails with SERVFAIL while its informers have not synced', async () => {
    isSynced = false;
    try {
      assert.equal(await code(resolver.resolve4('web.shop.svc.cluster.local')), 'ESERVFAIL');
    } finally {
      isSynced = true;
    }
  });

  it('ignores messages that are not queries', async () => {
    const client = createSocket('udp4');
    for (const message of ['', 'x', '\0'.repeat(12), '\xff'.repeat(600)])
      await new Promise((resolve) => client.send(Buffer.from(message, 'latin1'), dns.port, '127.0.0.1', resolve));
    client.close();
    assert.deepEqual(await resolver.resolve4('web.shop.svc.cluster.local'), ['10.96.0.7']);
  });

  it('sends no name that a message cannot contain, whatever services and slices contain', async () => {
    const exchange = async (name: string, type: 'A' | 'CNAME' | 'PTR'): Promise<Buffer> => {
      const socket = createSocket('udp4');
      const questions = [{ type, name }] as const;
      socket.send(dnsPacket.encode({ type: 'query', id: 7, questions: [...questions] }), dns.port, '127.0.0.1');
      const [message] = (await once(socket, 'message')) as [Buffer];
      socket.close();
      return message;
    };
    for (const [name, type] of [
      ['long.shop.svc.cluster.local', 'CNAME'],
      ['long.shop.svc.cluster.local', 'A'],
      ['pointer.shop.svc.cluster.local', 'CNAME'],
      ['6.0.0.10.in-addr.arpa', 'PTR'],
    ] as const) {
      const response = dnsPacket.decode(await exchange(name, type));
      assert.deepEqual([(response.flags ?? 0) & 0xf, response.answers], [2, []], `${type} ${name}`);
    }
    assert.equal(dnsPacket.decode(await exchange('alias.shop.svc.cluster.local', 'CNAME')).answers?.length, 1);
  });
  it('decodes no message with thousands of questions that share one long name', async () => {
    const name = Buffer.concat([...Array<Buffer>(126).fill(Buffer.from([1, 97])), Buffer.from([0])]);
    const pointer = Buffer.from([0xc0, 12, 0, 1, 0, 1]);
    const header = Buffer.from([0, 9, 1, 0, 0x27, 0x11, 0, 0, 0, 0, 0, 0]);
    const type = Buffer.from([0, 1, 0, 1]);
    const message = Buffer.concat([header, name, type, ...Array<Buffer>(10_000).fill(pointer)]);
    const client = createSocket('udp4');
    client.send(message, dns.port, '127.0.0.1');
    const [answer] = (await once(client, 'message')) as [Buffer];
    client.close();
    // The response is a format error without the question.
    assert.equal(answer.toString('hex'), '000980010000000000000000');
  });

  it('stops resolving the queries of a connection whose client does not read the responses', async () => {
    const question = framed(
      dnsPacket.encode({ type: 'query', id: 7, questions: [{ type: 'SRV', name: 'crowd.shop.svc.cluster.local' }] }),
    );
    const before = resolved;
    const socket = connect(dns.port, '127.0.0.1').pause();
    const count = 1500;
    for (let sent = 0; sent < count; sent += 1) socket.write(question);
    let last = -1;
    while (last !== resolved) {
      last = resolved;
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
    socket.destroy();
    assert.ok(resolved - before < count, `${resolved - before} responses wait for a client that reads none`);
  });

  it('leaves room for the queries and connections of other clients, whatever one client sends', async () => {
    const greedy = createSocket('udp4');
    const other = createSocket('udp4');
    await new Promise<void>((resolve) => other.bind(0, '127.0.0.2', resolve));
    const query = (id: number, name: string): Buffer =>
      dnsPacket.encode({ type: 'query', id, questions: [{ type: 'A', name }] });
    let refused = 0;
    greedy.on('message', () => (refused += 1));
    for (let id = 0; id < 1200; id += 1) greedy.send(query(id, `${id}.silent.example.org`), dns.port, '127.0.0.1');
    while (refused < 100) await once(greedy, 'message');
    other.send(query(5, 'example.org'), dns.port, '127.0.0.1');
    const [answer] = (await once(other, 'message')) as [Buffer];
    assert.equal(dnsPacket.decode(answer).answers?.length, 1);
    const sockets = Array.from({ length: 120 }, () => connect(dns.port, '127.0.0.1').on('error', () => undefined));
    await Promise.all(sockets.map((socket) => once(socket, 'connect')));
    const third = connect({ port: dns.port, host: '127.0.0.1', localAddress: '127.0.0.2' });
    third.write(framed(query(6, 'web.shop.svc.cluster.local')));
    const [data] = (await once(third, 'data')) as [Buffer];
    assert.equal(dnsPacket.decode(data.subarray(2)).answers?.length, 1);
    for (const socket of [...sockets, third]) socket.destroy();
    greedy.close();
    other.close();
  });
});

describe('the address of a name server', () => {
  it('can have a port', () => {
    assert.deepEqual(
      ['192.0.2.1', '192.0.2.1:5353', 'fd00::1', '[fd00::1]:5353'].map((text) =>
        Object.values(parseUpstream(text)).join(' '),
      ),
      ['192.0.2.1 53', '192.0.2.1 5353', 'fd00::1 53', 'fd00::1 5353'],
    );
  });
});
