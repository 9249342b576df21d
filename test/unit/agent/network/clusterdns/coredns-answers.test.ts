/**
 * The name server answers what CoreDNS 1.13.1 answered for the same services and slices, with `pods insecure` and a server of
 * example.org behind it. `coredns-answers.json` has the objects and the recorded answers: type, name, code, whether they are
 * authoritative, and the records, of which the additional ones begin with a plus.
 */
import assert from 'node:assert/strict';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import dnsPacket, { type Answer, type RecordType } from 'dns-packet';
import { ClusterDns } from '../../../../../agent/network/clusterdns/cluster-dns.ts';
import { ResponseCache } from '../../../../../agent/network/clusterdns/response-cache.ts';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import type { EndpointSlice, Service } from '../../../../../api/kinds/kinds.ts';

const { services, slices, answers } = JSON.parse(
  readFileSync(join(import.meta.dirname, 'coredns-answers.json'), 'utf8'),
) as { readonly services: Service[]; readonly slices: EndpointSlice[]; readonly answers: string[] };

/** Questions to which the answer differs from that of CoreDNS, with the reasons. */
const DIFFERENT: readonly (readonly [RegExp, string])[] = [
  [/^\S+ bare\.svc\./, 'the server knows no namespaces: one without services does not exist'],
  [/^\S+ 10-0-0-7\.none\.pod\./, 'the server knows no namespaces: the name of a pod is an address in each'],
  [/^SRV \S+\.shop\.pod\./, 'CoreDNS has a port 0 of pods'],
  [/^(?!PTR)\S+ \S+\.arpa /, 'a name that has a PTR record has no others: CoreDNS asks the next server'],
  [/^(?!TXT)\S+ dns-version\./, 'the name exists, with a record of another type'],
  [/^(A|PTR) ns\.dns\./, 'CoreDNS ran outside of the cluster, where it has no address'],
];

describe('the answers of the name server', () => {
  const upstream = createSocket('udp4');
  const dns = new ClusterDns({
    names: {
      nameServers: () => ['10.96.0.10'],
      service: (namespace, name) => services.find(({ metadata: m }) => m.namespace === namespace && m.name === name),
      slicesOf: (namespace, name) =>
        slices.filter(
          ({ metadata: m }) => m.namespace === namespace && m.labels?.['kubernetes.io/service-name'] === name,
        ),
      hasServices: (namespace) => services.some(({ metadata }) => metadata.namespace === namespace),
      serviceAt: (address) => services.find(({ spec }) => spec?.clusterIPs?.includes(address)),
      slicesAt: (address) =>
        slices.filter(({ endpoints = [] }) => endpoints.some(({ addresses }) => addresses.includes(address))),
    },
    ...{ domain: 'cluster.local', synced: () => true, cache: new ResponseCache({ clock: systemClock }) },
    ...{ clock: systemClock, logger: silentLogger },
    upstreams: () => Promise.resolve([`127.0.0.1:${upstream.address().port}`]),
  });

  before(async () => {
    upstream.on('message', (message, peer) => {
      const { id = 0, questions = [] } = dnsPacket.decode(message);
      const [{ name, type } = { name: '', type: 'A' }] = questions;
      const isGone = name.startsWith('gone');
      const found = type === 'A' && !isGone ? [{ type: 'A' as const, name, data: '203.0.113.5', ttl: 30 }] : [];
      const response = { type: 'response', id, flags: isGone ? 3 : 0, questions, answers: found } as const;
      upstream.send(dnsPacket.encode(response), peer.port, peer.address);
    });
    await new Promise<void>((resolve) => upstream.bind(0, '127.0.0.1', resolve));
    await dns.listen(0, ['127.0.0.1']);
    dns.serve('IPv4');
  });
  after(async () => {
    await dns.close();
    upstream.close();
  });

  async function answered(type: string, name: string): Promise<string> {
    const client = createSocket('udp4');
    const questions = [{ name, type: type as RecordType }];
    client.send(dnsPacket.encode({ type: 'query', id: 7, flags: 0x100, questions }), dns.port, '127.0.0.1');
    const [message] = (await once(client, 'message')) as [Buffer];
    client.close();
    const { flags = 0, flag_aa: isOwn, ...sections } = dnsPacket.decode(message);
    const code = ['NOERROR', 'FORMERR', 'SERVFAIL', 'NXDOMAIN'][flags & 0xf];
    const records = [
      ...(sections.answers ?? []).map(shown).toSorted(),
      ...(sections.authorities ?? []).map((record) => `ns ${shown(record)}`),
      ...(sections.additionals ?? []).map((record) => `+ ${shown(record)}`).toSorted(),
    ];
    return [`${type} ${name} ${code} ${isOwn ? 'aa' : '-'}`, ...records].join('; ');
  }

  it('are those of CoreDNS', async () => {
    const compared = answers.filter((line) => !DIFFERENT.some(([pattern]) => pattern.test(line)));
    assert.ok(compared.length > 250, `${compared.length} answers`);
    const differing: (readonly [string, string])[] = [];
    for (const line of compared) {
      const [type = '', name = ''] = line.split(' ');
      const ours = await answered(type, name);
      // CoreDNS takes over the case of the domain, which has no meaning.
      if (ours.toLowerCase() !== line.toLowerCase()) differing.push([ours, line]);
    }
    assert.deepEqual(differing, []);
  });

  it('differ from those of CoreDNS for the listed questions', async () => {
    for (const [pattern, reason] of DIFFERENT) {
      const lines = answers.filter((line) => pattern.test(line));
      const ours = await Promise.all(lines.map((line) => answered(line.split(' ')[0] ?? '', line.split(' ')[1] ?? '')));
      assert.ok(
        lines.some((line) => !ours.includes(line)),
        reason,
      );
    }
  });
});

function shown(record: Answer): string {
  if (record.type === 'SOA') return `SOA ${record.name}`;
  const data: unknown = 'data' in record ? record.data : undefined;
  const ttl = 'ttl' in record ? record.ttl : undefined;
  if (record.type !== 'SRV') return `${record.name} ${ttl} ${record.type} ${String(data)}`;
  const { priority, weight, port, target } = record.data;
  return `${record.name} ${ttl} SRV ${priority} ${weight} ${port} ${target}`;
}
