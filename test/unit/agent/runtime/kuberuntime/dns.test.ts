import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { type DnsConfig, hostDns, podDns, podHostname } from '../../../../../agent/runtime/kuberuntime/dns.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const podOf = (spec: object): Pod =>
  ({ metadata: { name: 'p', namespace: 'ns', uid: 'u' }, spec: { containers: [], ...spec } }) as unknown as Pod;
const settings = { clusterDns: ['10.96.0.10'], clusterDomain: 'cluster.local', resolvConf: '/etc/resolv.conf' };
const host = { servers: ['9.9.9.9'], searches: ['example.org'], options: ['timeout:1'] };

function resolver(spec: object, changes: Partial<typeof settings> = {}): readonly [DnsConfig, readonly string[]] {
  const events: string[] = [];
  const config = podDns(podOf(spec), { ...settings, ...changes }, host, (reason, message) =>
    events.push(`${reason} ${message}`),
  );
  return [config, events];
}

describe("a pod's resolver", () => {
  const cluster = ['ns.svc.cluster.local', 'svc.cluster.local', 'cluster.local', 'example.org'];
  for (const [policy, spec, config] of [
    ['ClusterFirst', {}, { servers: ['10.96.0.10'], searches: cluster, options: ['ndots:5'] }],
    ['Default', {}, host],
    ['ClusterFirst', { hostNetwork: true }, host],
    [
      'ClusterFirstWithHostNet',
      { hostNetwork: true },
      { servers: ['10.96.0.10'], searches: cluster, options: ['ndots:5'] },
    ],
    [
      'None',
      { dnsConfig: { nameservers: ['1.1.1.1'], options: [{ name: 'edns0' }] } },
      { servers: ['1.1.1.1'], searches: [], options: ['edns0'] },
    ],
    [
      'Default',
      { dnsConfig: { nameservers: ['1.1.1.1'], searches: ['more'], options: [{ name: 'timeout', value: '3' }] } },
      { servers: ['9.9.9.9', '1.1.1.1'], searches: ['example.org', 'more'], options: ['timeout:3'] },
    ],
  ] as const) {
    it(`follows ${policy} with ${JSON.stringify(spec)}`, () =>
      assert.deepEqual(resolver({ dnsPolicy: policy, ...spec }), [config, []]));
  }
  it("is the host's without a server of the cluster, and says so", () => {
    const message =
      'MissingClusterDNS pod: "p_ns(u)". kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. Falling back to "Default" policy.';
    assert.deepEqual(resolver({}, { clusterDns: [] }), [host, [message]]);
  });
  it('has no option that would add lines to its file', () => {
    const options = [{ name: 'ndots', value: '2\nnameserver 6.6.6.6' }, { name: 'a b' }, { name: 'edns0' }];
    const [config, events] = resolver({ dnsPolicy: 'None', dnsConfig: { nameservers: ['1.1.1.1'], options } });
    assert.deepEqual(config.options, ['edns0']);
    assert.equal(events.length, 2);
  });

  it('has at most three servers, and reports the rest', () => {
    const [config, events] = resolver({ dnsPolicy: 'None', dnsConfig: { nameservers: ['1', '2', '3', '4'] } });
    assert.deepEqual(config.servers, ['1', '2', '3']);
    assert.deepEqual(events, [
      'DNSConfigForming Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 1 2 3',
    ]);
  });
  for (const [what, searches, kept] of [
    ['32 search domains', Array.from({ length: 33 }, (_, index) => `d${index}`), 32],
    ['2048 characters of them', Array.from({ length: 9 }, (_, index) => `${index}${'d'.repeat(249)}`), 8],
    ['none of more than 253', ['a', 'b'.repeat(254), 'c'], 2],
  ] as const) {
    it(`has ${what} at most, and reports the limit`, () => {
      const [config, events] = resolver({ dnsPolicy: 'None', dnsConfig: { nameservers: ['1'], searches } });
      assert.equal(config.searches.length, kept);
      assert.deepEqual(events, [
        `DNSConfigForming Search Line limits were exceeded, some search paths have been omitted, the applied search line is: ${config.searches.join(' ')}`,
      ]);
    });
  }
  it('has the servers behind the stub of systemd-resolved, which pods cannot reach', async () => {
    const directory = temporaryFolder();
    const [host, behind] = ['host', 'behind'].map((name) => join(directory, name));
    assert.ok(host !== undefined && behind !== undefined);
    const servers = async (): Promise<readonly string[]> =>
      (await hostDns({ ...settings, resolvConf: host }, behind)).servers;
    try {
      writeFileSync(host, 'nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch example.org\n');
      assert.deepEqual(await servers(), ['127.0.0.53'], 'nothing else is known');
      writeFileSync(behind, '# no servers yet\n');
      assert.deepEqual(await servers(), ['127.0.0.53']);
      writeFileSync(behind, 'nameserver 192.0.2.1\nsearch example.org\n');
      assert.deepEqual(await servers(), ['192.0.2.1']);
      writeFileSync(host, 'nameserver 127.0.0.1\n');
      assert.deepEqual(await servers(), ['127.0.0.1'], 'another server of the host');
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
  });
  it("is this host's own server where no file is named", async () => {
    assert.deepEqual(await hostDns({ ...settings, resolvConf: '' }), {
      servers: ['127.0.0.1'],
      searches: ['.'],
      options: [],
    });
  });
});

describe("a pod's host name", () => {
  const named = (spec: object): unknown => podHostname(podOf(spec), 'cluster.local');
  it('is its own, fully qualified on request', () => {
    assert.deepEqual(named({ hostname: 'h' }), { hostname: 'h', domain: '' });
    const full = { hostname: 'h', subdomain: 's', setHostnameAsFQDN: true };
    assert.deepEqual(named(full), { hostname: 'h.s.ns.svc.cluster.local', domain: 's.ns.svc.cluster.local' });
    assert.deepEqual(named({ ...full, hostnameOverride: 'other' }), { hostname: 'other', domain: '' });
  });
  it('is refused where the kernel would cut it', () => {
    assert.throws(
      () => named({ hostname: 'h'.repeat(60), subdomain: 's', setHostnameAsFQDN: true }),
      /^Error: failed to construct FQDN from pod hostname and cluster domain, FQDN h+\.s\.ns\.svc\.cluster\.local is too long \(64 characters is the max, 83 characters requested\)$/,
    );
  });
});
