import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { NftablesTransactions } from '../../../../../agent/network/serviceproxy/nftables-transactions.ts';
import type { RuleSettings } from '../../../../../agent/network/serviceproxy/rule-writer.ts';
import type { ServicePort } from '../../../../../agent/network/serviceproxy/service-ports.ts';
import { inOneSlice } from '../../../../../api/machinery/time-slice.ts';
import { servicePort, SETTINGS } from './service-port.ts';

/** Work that ends in its first slice. */
const SLICE = { isSpent: false };

function written(ports: readonly ServicePort[], settings: RuleSettings = SETTINGS): NftablesTransactions {
  const made = new NftablesTransactions('t', settings);
  inOneSlice(made.change([{ before: [], after: ports }], SLICE));
  return made;
}

const textOf = (made: NftablesTransactions): string => inOneSlice(made.transaction(SLICE));

const change = (made: NftablesTransactions, before: readonly ServicePort[], after: readonly ServicePort[]): string => {
  inOneSlice(made.change([{ before, after }], SLICE));
  return textOf(made);
};

const linesOf = (text: string, ...parts: readonly string[]): string[] =>
  text.split('\n').filter((line) => parts.every((part) => line.includes(part)));

/** Returns the lines of the port alone, without the hashes of names. */
function own(port: ServicePort, settings: RuleSettings = SETTINGS): string[] {
  const made = new NftablesTransactions('t', settings);
  textOf(made);
  inOneSlice(made.commit(0, SLICE));
  return change(made, [], [port])
    .trim()
    .split('\n')
    .map((line) => line.replaceAll(/[0-9a-f]{12}-/g, '').replace(/ ip6? t /, ' '));
}

describe('the service rules in nftables', () => {
  it('translate the address and port of a service to one of its endpoints', () => {
    assert.deepEqual(own(servicePort()), [
      'add chain service-shop/web/http/tcp',
      'add rule service-shop/web/http/tcp meta l4proto tcp dnat ip to numgen random mod 3 map { 0 : 10.0.0.1 . 8080, 1 : 10.0.0.2 . 8080, 2 : 10.0.0.3 . 8080 }',
      'add element cluster-ips { 10.96.0.7 }',
      'add element service-ips { 10.96.0.7 . tcp . 80 : goto service-shop/web/http/tcp }',
      'add element hairpin { 10.0.0.1 . 10.0.0.1, 10.0.0.2 . 10.0.0.2, 10.0.0.3 . 10.0.0.3 }',
    ]);
  });

  it('masquerade what comes by node ports and external addresses', () => {
    const cluster = [{ ip: '10.0.0.1', port: 8080 }];
    const port = servicePort({ cluster, nodePort: 30_080, externalIps: ['203.0.113.1'] });
    assert.deepEqual(own(port), [
      'add chain external-shop/web/http/tcp',
      'add chain service-shop/web/http/tcp',
      'add rule external-shop/web/http/tcp jump mark-for-masquerade',
      'add rule external-shop/web/http/tcp goto service-shop/web/http/tcp',
      'add rule service-shop/web/http/tcp meta l4proto tcp dnat to 10.0.0.1:8080',
      'add element cluster-ips { 10.96.0.7 }',
      'add element service-ips { 10.96.0.7 . tcp . 80 : goto service-shop/web/http/tcp, 203.0.113.1 . tcp . 80 : goto external-shop/web/http/tcp }',
      'add element service-nodeports { tcp . 30080 : goto external-shop/web/http/tcp }',
      'add element hairpin { 10.0.0.1 . 10.0.0.1 }',
    ]);
  });

  it('keep the source address under a Local policy, which does not limit this host and its pods', () => {
    const lines = own(
      servicePort({ nodePort: 30_080, externalLocal: true, external: [{ ip: '10.0.0.1', port: 8080 }] }),
    );
    assert.deepEqual(
      lines.filter((line) => /^add rule (external|local)/.test(line)).map((line) => line.replace(/^add rule \S+ /, '')),
      [
        'ip saddr 10.0.0.0/24 goto service-shop/web/http/tcp',
        'fib saddr type local jump mark-for-masquerade',
        'fib saddr type local goto service-shop/web/http/tcp',
        'goto local-shop/web/http/tcp',
        'meta l4proto tcp dnat to 10.0.0.1:8080',
      ],
    );
  });

  it('reject traffic without endpoints, and drop traffic that only other nodes can serve', () => {
    const none = { internal: [], external: [], nodePort: 30_080, externalIps: ['203.0.113.1'] };
    assert.deepEqual(own(servicePort({ ...none, cluster: [], hasEndpoints: false })), [
      'add element cluster-ips { 10.96.0.7 }',
      'add element no-endpoint-services { 10.96.0.7 . tcp . 80 : goto reject-packet, 203.0.113.1 . tcp . 80 : goto reject-packet }',
      'add element no-endpoint-nodeports { tcp . 30080 : goto reject-packet }',
    ]);
    const away = own(servicePort({ ...none, externalLocal: true })).join('\n');
    assert.match(
      away,
      /no-endpoint-services \{ 10\.96\.0\.7 \. tcp \. 80 : drop, 203\.0\.113\.1 \. tcp \. 80 : drop \}/,
    );
    assert.match(away, /no-endpoint-nodeports \{ tcp \. 30080 : drop \}/);
    assert.match(away, /service-nodeports \{ tcp \. 30080 : goto external-/, 'for the host and its pods');
  });

  it("only allow the source ranges at a load balancer's address", () => {
    const ranges = ['198.51.100.0/24', '198.51.100.0/25'];
    const text = own(servicePort({ loadBalancerIps: ['192.0.2.9'], sourceRanges: ranges, nodePort: 30_080 })).join(
      '\n',
    );
    assert.deepEqual(
      linesOf(text, 'add rule firewall-').map((line) => line.replace(/^.*?tcp /, '')),
      [...ranges.map((range) => `ip saddr ${range} return`), 'drop'],
    );
    assert.match(text, /firewall-ips \{ 192\.0\.2\.9 \. tcp \. 80 : goto firewall-\S+ \}/);
  });

  it('keep a client at its endpoint', () => {
    const cluster = [
      { ip: '10.0.0.1', port: 8080 },
      { ip: '10.0.0.2', port: 8080 },
    ];
    const lines = own(servicePort({ cluster, affinitySeconds: 60 }));
    const [one, two] = ['shop/web/http/tcp/10.0.0.1/8080', 'shop/web/http/tcp/10.0.0.2/8080'];
    assert.deepEqual(lines.slice(0, 2), [
      `add set affinity-60-${one} { type ipv4_addr; flags dynamic,timeout; timeout 60s; }`,
      `add set affinity-60-${two} { type ipv4_addr; flags dynamic,timeout; timeout 60s; }`,
    ]);
    assert.deepEqual(
      lines.filter((line) => line.startsWith('add rule')),
      [
        `add rule endpoint-${one} update @affinity-60-${one} { ip saddr }`,
        `add rule endpoint-${one} meta l4proto tcp dnat to 10.0.0.1:8080`,
        `add rule endpoint-${two} update @affinity-60-${two} { ip saddr }`,
        `add rule endpoint-${two} meta l4proto tcp dnat to 10.0.0.2:8080`,
        `add rule service-shop/web/http/tcp ip saddr @affinity-60-${one} goto endpoint-${one}`,
        `add rule service-shop/web/http/tcp ip saddr @affinity-60-${two} goto endpoint-${two}`,
        `add rule service-shop/web/http/tcp numgen random mod 2 vmap { 0 : goto endpoint-${one}, 1 : goto endpoint-${two} }`,
      ],
    );
  });

  it('match SCTP', () => {
    const cluster = [{ ip: '10.0.0.1', port: 3868 }];
    assert.deepEqual(own(servicePort({ protocol: 'SCTP', port: 3868, cluster, nodePort: 30_868 })).slice(2), [
      'add rule external-shop/web/http/sctp jump mark-for-masquerade',
      'add rule external-shop/web/http/sctp goto service-shop/web/http/sctp',
      'add rule service-shop/web/http/sctp meta l4proto sctp dnat to 10.0.0.1:3868',
      'add element cluster-ips { 10.96.0.7 }',
      'add element service-ips { 10.96.0.7 . sctp . 3868 : goto service-shop/web/http/sctp }',
      'add element service-nodeports { sctp . 30868 : goto external-shop/web/http/sctp }',
      'add element hairpin { 10.0.0.1 . 10.0.0.1 }',
    ]);
  });

  it('match IPv6', () => {
    const cluster = [{ ip: 'fd00::1', port: 53 }];
    const port = servicePort({ protocol: 'UDP', clusterIp: 'fd96::7', port: 53, cluster });
    const settings: RuleSettings = { ...SETTINGS, family: 'IPv6', podCidrs: ['fd00::/64'] };
    assert.deepEqual(own(port, settings).slice(1, 4), [
      'add rule service-shop/web/http/udp meta l4proto udp dnat to [fd00::1]:53',
      'add element cluster-ips { fd96::7 }',
      'add element service-ips { fd96::7 . udp . 53 : goto service-shop/web/http/udp }',
    ]);
    assert.match(textOf(written([port], settings)), /add rule ip6 t mark-from-outside ip6 saddr fd00::\/64 return/);
  });

  it('offer node ports at every address but loopback ones, or at those of the ranges', () => {
    assert.match(textOf(written([])), /fib daddr type local ip daddr != 127\.0\.0\.0\/8 .* vmap @service-nodeports/);
    const limited = textOf(written([], { ...SETTINGS, nodePortRanges: ['192.0.2.0/24', '198.51.100.1/32'] }));
    assert.equal(linesOf(limited, 'vmap @service-nodeports').length, 2);
    assert.equal(linesOf(limited, 'ip daddr 198.51.100.1/32', 'vmap @no-endpoint-nodeports').length, 1);
  });

  it("redirect DNS queries to the agent's server, which other clients cannot reach", () => {
    const text = textOf(written([], { ...SETTINGS, nameServer: { addresses: ['10.96.0.10'], port: 5300 } }));
    assert.equal(linesOf(text, 'ip daddr 10.96.0.10', 'th dport 53 redirect to :5300').length, 1);
    assert.equal(linesOf(text, 'th dport 5300', 'fib saddr type != local drop').length, 1);
  });

  it('have no text of the API in their names', () => {
    const text = textOf(written([servicePort({ id: 'shop/web:x }; flush ruleset; #\n' })]));
    assert.doesNotMatch(text, /flush ruleset/);
  });
});

describe('a transaction of service rules in nftables', () => {
  it('has only what differs from the last one', () => {
    const [web, old] = [servicePort(), servicePort({ id: 'shop/old:http', clusterIp: '10.96.0.8' })];
    const made = written([web, old]);
    assert.match(textOf(made), /^add table ip t\ndelete table ip t\nadd table ip t\n/);
    inOneSlice(made.commit(0, SLICE));
    assert.equal(textOf(made), '');
    const fewer = servicePort({ cluster: [{ ip: '10.0.0.1', port: 8080 }] });
    const text = change(made, [web], [fewer]).replaceAll(/[0-9a-f]{12}-/g, '');
    assert.equal(
      text,
      [
        'flush chain ip t service-shop/web/http/tcp',
        'add rule ip t service-shop/web/http/tcp meta l4proto tcp dnat to 10.0.0.1:8080',
        '',
      ].join('\n'),
      'the other service still needs the elements of the endpoints',
    );
    inOneSlice(made.commit(0, SLICE));
    const removal = change(made, [old], []);
    assert.deepEqual(
      linesOf(removal, 'delete element').map((line) => line.replace('delete element ip t ', '')),
      [
        'cluster-ips { 10.96.0.8 }',
        'service-ips { 10.96.0.8 . tcp . 80 }',
        'hairpin { 10.0.0.2 . 10.0.0.2, 10.0.0.3 . 10.0.0.3 }',
      ],
    );
  });

  it('empties a chain at once and deletes it a second later, unless it is needed again', () => {
    const port = servicePort();
    const made = written([port]);
    textOf(made);
    inOneSlice(made.commit(0, SLICE));
    assert.match(change(made, [port], []), /^flush chain ip t service-/);
    inOneSlice(made.commit(5000, SLICE));
    assert.equal(made.tidy(5999), '');
    assert.match(made.tidy(6000), /^delete chain ip t service-\S+\n$/);
    change(made, [], [port]);
    inOneSlice(made.commit(6500, SLICE));
    assert.equal(made.tidy(60_000), '');
    change(made, [port], []);
    inOneSlice(made.commit(7000, SLICE));
    made.tidied(9000);
    assert.equal(made.tidy(9000), '');
  });

  it('replaces the table when its state is not known', () => {
    const made = written([servicePort()]);
    const first = textOf(made);
    inOneSlice(made.commit(0, SLICE));
    inOneSlice(made.forget(SLICE));
    assert.equal(textOf(made), first);
  });

  it('keeps the clients of sets that remain when it replaces the table', () => {
    const made = written([servicePort({ affinitySeconds: 60, cluster: [{ ip: '10.0.0.1', port: 8080 }] })]);
    assert.equal(made.hasAffinity, true);
    const [, set = ''] = /add set ip t (affinity-60-\S+) /.exec(textOf(made)) ?? [];
    const clients = [
      { address: '192.0.2.1', seconds: 31 },
      { address: '192.0.2.2', seconds: 5 },
    ];
    const remembered = new Map([
      [set, clients],
      ['affinity-60-of-a-service-that-is-gone', clients],
    ]);
    const text = inOneSlice(made.transaction(SLICE, remembered));
    assert.deepEqual(linesOf(text, 'expires'), [
      `add element ip t ${set} { 192.0.2.1 expires 31s, 192.0.2.2 expires 5s }`,
    ]);
    inOneSlice(made.commit(0, SLICE));
    assert.equal(inOneSlice(made.transaction(SLICE, remembered)), '', 'the kernel has them');
    assert.equal(written([servicePort()]).hasAffinity, false);
  });

  it('contains everything that a failed one did', () => {
    const port = servicePort();
    const made = written([]);
    textOf(made);
    inOneSlice(made.commit(0, SLICE));
    const failed = change(made, [], [port]);
    assert.equal(textOf(made), failed);
    const other = servicePort({ id: 'shop/old:http', clusterIp: '10.96.0.8' });
    assert.match(change(made, [], [other]), /10\.96\.0\.7 \. tcp \. 80 .*10\.96\.0\.8 \. tcp \. 80/);
  });

  it('writes changed settings', () => {
    const port = servicePort({ nodePort: 30_080, externalLocal: true });
    const made = written([port]);
    textOf(made);
    inOneSlice(made.commit(0, SLICE));
    inOneSlice(made.configure({ ...SETTINGS, podCidrs: ['10.9.0.0/24'] }, SLICE));
    const text = textOf(made);
    assert.equal(linesOf(text, 'add rule ip t mark-from-outside ip saddr 10.9.0.0/24 return').length, 1);
    assert.equal(linesOf(text, 'add rule ip t external-', 'ip saddr 10.9.0.0/24 goto service-').length, 1);
    assert.doesNotMatch(text, /10\.0\.0\.0\/24|add rule ip t service-/);
  });

  it('of many services are computed in slices', () => {
    const count = 600;
    const changes = Array.from({ length: count }, (_, number) => ({
      before: [],
      after: [servicePort({ id: `shop/s${number}:http`, clusterIp: `10.96.${number >> 8}.${number & 255}` })],
    }));
    const made = new NftablesTransactions('t', SETTINGS);
    const spent = { isSpent: true };
    const pauses = (work: Generator<void, unknown>): number => [...work].length;
    assert.ok(pauses(made.change(changes, spent)) >= count);
    assert.ok(pauses(made.forget(spent)) >= count);
    assert.ok(pauses(made.transaction(spent)) >= count);
    assert.ok(pauses(made.commit(0, spent)) >= count);
    assert.ok(pauses(made.configure({ ...SETTINGS, podCidrs: ['10.9.0.0/24'] }, spent)) >= count);
  });
});
