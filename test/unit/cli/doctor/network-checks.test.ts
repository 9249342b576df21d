/** `orchlet doctor` names the first link of a cluster's network that fails, with a remedy. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Finding } from '../../../../cli/doctor/host-checks.ts';
import { apiServerFinding, checkNetwork, type ClusterFacts } from '../../../../cli/doctor/network-checks.ts';
import type { NetworkProbes, Outcome } from '../../../../cli/doctor/network-probes.ts';

const POD = 42;
const node = (name: string, number: number, podAddresses: readonly string[] = []) => ({
  name,
  addresses: [`10.0.0.${number}`],
  port: 10_250,
  podCidrs: [`10.244.${number}.0/24`],
  podAddresses,
});
const cluster: ClusterFacts = {
  server: 'https://10.0.0.1:6443',
  ownName: 'a',
  nodes: [node('a', 1, ['10.244.1.9']), node('b', 2, ['10.244.2.7']), node('c', 3)],
  kubernetes: { address: '10.96.0.1', port: 443 },
  nameServer: '10.96.0.10',
  domain: 'cluster.local',
};

interface Faults {
  /** The outcomes of connections: by `address` for those from this host, and by `pod>address` for those from a pod. */
  readonly outcomes?: Readonly<Record<string, Outcome>>;
  readonly answer?: readonly string[] | { readonly failed: string };
  readonly hasPod?: boolean;
}

/** Returns a network in which everything answers, except for the faults; pods refuse, as they have no such port. */
function probesWith({ outcomes = {}, answer = ['10.96.0.1'], hasPod = true }: Faults, tried: string[] = []) {
  const probes: NetworkProbes = {
    connect: (address, port, from) => {
      const key = from === undefined ? address : `pod>${address}`;
      tried.push(`${key}:${port}`);
      return Promise.resolve(outcomes[key] ?? (address.startsWith('10.244.') ? 'refused' : 'open'));
    },
    resolve: () => Promise.resolve(answer),
    podProcess: () => Promise.resolve(hasPod ? POD : undefined),
  };
  return probes;
}
const faults = async (of: Faults, facts: ClusterFacts = cluster): Promise<readonly Finding[]> =>
  (await checkNetwork(facts, probesWith(of))).filter(({ verdict }) => verdict !== 'ok');

it('a network in which everything answers passes each link, of other nodes and from a pod', async () => {
  const tried: string[] = [];
  const found = await checkNetwork(cluster, probesWith({}, tried));
  assert.deepEqual(
    found.map(({ name, verdict }) => [name, verdict]),
    [
      ['API server', 'ok'],
      ['nodes', 'ok'],
      ['pod network', 'ok'],
      ['service', 'ok'],
      ['names', 'ok'],
    ],
  );
  assert.deepEqual(tried.toSorted(), [
    ...['10.0.0.2:10250', '10.0.0.3:10250', '10.244.2.7:1', '10.244.3.1:1', '10.96.0.1:443'],
    ...['pod>10.244.2.7:1', 'pod>10.244.3.1:1', 'pod>10.96.0.1:443'],
  ]);
});

describe('the link that fails is named with a remedy', () => {
  const rows: readonly (readonly [what: string, faults: Faults, name: string, text: RegExp, remedy: RegExp])[] = [
    ['a host without an agent', { outcomes: { '10.0.0.2': 'refused' } }, 'nodes', /^b .*refused$/, /orchlet-agent/],
    ['a firewall before agents', { outcomes: { '10.0.0.3': 'timed out' } }, 'nodes', /^c .*timed out$/, /10250/],
    [
      'a tunnel that is cut',
      { outcomes: { '10.244.2.7': 'timed out' } },
      'pod network',
      /from this host to 10\.244\.2\.7 of b: timed out/,
      /8472\/udp/,
    ],
    [
      'a host that does not forward',
      { outcomes: { 'pod>10.244.2.7': 'timed out' } },
      'pod network',
      /but its pods do not: 10\.244\.2\.7 of b/,
      /ip_forward/,
    ],
    ['services without rules', { outcomes: { '10.96.0.1': 'timed out' } }, 'service', /timed out/, /--service-proxy/],
    [
      'services that only the host reaches',
      { outcomes: { 'pod>10.96.0.1': { failed: 'EHOSTUNREACH' } } },
      'service',
      /not its pods: EHOSTUNREACH/,
      /br_netfilter/,
    ],
    ['a name server that is silent', { answer: { failed: 'no answer' } }, 'names', /no answer/, /kube-dns/],
    ['a name server of others', { answer: ['192.0.2.1'] }, 'names', /returns 192\.0\.2\.1/, /--cluster-dns/],
  ];
  for (const [what, of, name, text, remedy] of rows)
    it(what, async () => {
      const found = await faults(of);
      assert.deepEqual(
        found.map((finding) => finding.name),
        [name],
      );
      assert.match(found[0]?.text ?? '', text);
      assert.match(found[0]?.remedy ?? '', remedy);
    });

  it('an API server that does not answer', () => {
    const { verdict, text } = apiServerFinding('https://10.0.0.1:6443', new Error('connect ECONNREFUSED'));
    assert.equal(verdict, 'fail');
    assert.match(text, /10\.0\.0\.1:6443 does not answer: connect ECONNREFUSED/);
  });

  it('pods with addresses outside of the range of their node', async () => {
    const nodes = [node('a', 1, ['10.98.0.5'])];
    const [found] = await faults({}, { ...cluster, nodes });
    assert.equal(found?.name, 'pod range');
    assert.match(found?.text ?? '', /10\.98\.0\.5, outside of 10\.244\.1\.0\/24/);
  });
});

it('a node without rights and pods tries what it can', async () => {
  const facts = { ...cluster, nodes: undefined, nameServer: undefined };
  const found = await checkNetwork(facts, probesWith({ hasPod: false }));
  assert.deepEqual(
    found.map(({ name, verdict }) => [name, verdict]),
    [
      ['API server', 'ok'],
      ['nodes', 'ok'],
      ['service', 'ok'],
    ],
  );
});
