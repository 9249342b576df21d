/** Cuts the links of a cluster of two hosts one after the other: `orchlet doctor` names the link that is cut. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { Finding } from '../../cli/doctor/host-checks.ts';
import { until } from '../until.ts';
import { skipWithoutNamespaces } from './namespaced-nodes.ts';
import { PodsOfHosts } from './pods-of-hosts.ts';

const CHILD = join(import.meta.dirname, 'network-doctor-child.ts');

describe('doctor on one of two hosts', { skip: skipWithoutNamespaces, timeout: 280_000 }, () => {
  let cluster: PodsOfHosts;
  let pod = '';

  before(async () => {
    cluster = await PodsOfHosts.start(['a', 'b'], { runtime: 'containerd', isDualStack: false });
    await cluster.run(['x']);
    const [a] = cluster.host.nodes;
    const item = cluster.list('pods').find(({ spec }) => spec.nodeName === a?.name);
    pod = a?.processOf(item?.status.containerStatuses?.[0]?.containerID ?? '') ?? '';
    await cluster.connected();
  });
  after(async () => {
    await cluster?.remove();
  });

  const nodes = () => {
    const [a, b] = cluster.host.nodes;
    assert.ok(a && b);
    return { a, b };
  };
  const findings = (): readonly Finding[] => {
    const { a } = nodes();
    const args = [join(a.directory, 'agent.kubeconfig'), join(a.directory, 'a'), pod];
    const output = a.exec(process.execPath, ['--disable-warning=ExperimentalWarning', CHILD, ...args]);
    return JSON.parse(output) as Finding[];
  };
  const faults = (): string[] =>
    findings()
      .filter(({ verdict }) => verdict !== 'ok')
      .map(({ name, text, remedy }) => `${name}: ${text} -> ${remedy}`);
  /** Drops packets on the host until the work is over. */
  const dropped = async (chain: string, rule: string, work: () => void | Promise<void>): Promise<void> => {
    const { a } = nodes();
    a.exec('nft', ['add', 'table', 'inet', 'cut']);
    a.exec('nft', ['add', 'chain', 'inet', 'cut', 'c', `{ type filter hook ${chain} priority -300; }`]);
    a.exec('nft', ['add', 'rule', 'inet', 'cut', 'c', ...rule.split(' '), 'drop']);
    try {
      await work();
    } finally {
      a.exec('nft', ['delete', 'table', 'inet', 'cut']);
    }
  };

  test('finds nothing where all links are whole', () => {
    assert.deepEqual(
      findings().map(({ name, verdict }) => [name, verdict]),
      ['API server', 'nodes', 'pod network', 'service', 'names'].map((name) => [name, 'ok']),
    );
  });

  test('names a firewall before the pod network', () =>
    dropped('output', 'udp dport 8472', () => {
      assert.match(faults().join('\n'), /^pod network: from this host to \S+ of b: timed out -> .*8472\/udp[^\n]*$/);
    }));

  test('names a firewall before agents', () =>
    dropped('output', 'tcp dport 10250', () => {
      assert.match(faults().join('\n'), /^nodes: b \(\S+:10250\): timed out -> [^\n]*10250\/tcp[^\n]*$/);
    }));

  test('names a host that forwards no packets of its pods', () =>
    dropped('forward', 'oifname orchlet.vxlan', () => {
      assert.match(
        faults().join('\n'),
        /^pod network: this host reaches pods [^\n]*its pods do not[^\n]*-> [^\n]*FORWARD/,
      );
    }));

  test('names a firewall before the API server', () =>
    dropped('output', `tcp dport ${cluster.host.plane.port}`, () => {
      assert.match(faults().join('\n'), /^API server: [^\n]*does not answer[^\n]* -> [^\n]*a firewall before its port/);
    }));

  test('names rules of services that are gone', async () => {
    nodes().a.exec('nft', ['delete', 'table', 'ip', 'orchlet-services']);
    const found = faults();
    assert.match(found[0] ?? '', /^service: 10\.96\.0\.1:443 from this host: .* -> the rules of services/);
    await until('the rules', () => faults().length === 0, 90_000);
  });

  test('names queries that do not arrive at the name server', () =>
    dropped('prerouting', 'udp dport 53', () => {
      assert.match(
        faults().join('\n'),
        /^names: 10\.96\.0\.10 has no answer[^\n]*-> the name server is in the agent of this host/,
      );
    }));

  test('names an agent that is stopped, and a host that is down', async () => {
    const { b } = nodes();
    await b.stopAgent();
    assert.match(faults().join('\n'), /^nodes: b \(\S+:10250\): refused -> [^\n]*orchlet-agent\.service on that host$/);
    b.cut(true);
    const found = faults();
    b.cut(false);
    assert.match(
      found[0] ?? '',
      /^nodes: b \(\S+:10250\): .* -> a firewall between the hosts before 10250\/tcp, or a host/,
    );
  });
});
