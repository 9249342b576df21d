import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { compilePolicies } from '../../../../../agent/network/policy/compile-policies.ts';
import { policyScript } from '../../../../../agent/network/policy/nft-ruleset.ts';
import { type PolicyInputs, policyInputs, type PolicySpec } from '../../../../../agent/network/policy/policy-inputs.ts';

const SERVER = '10.96.0.10';

function inputs(spec: PolicySpec, nameServers: readonly string[] = [SERVER]): PolicyInputs {
  const pod = {
    metadata: { namespace: 'shop', name: 'web' },
    spec: { nodeName: 'here', containers: [] },
    status: { phase: 'Running', podIPs: [{ ip: '10.244.0.7' }, { ip: 'fd00::7' }] },
  };
  return policyInputs({
    policies: [{ metadata: { namespace: 'shop', name: 'p' }, spec } as never],
    namespaces: ['shop', 'kube-system'].map((name) => ({
      metadata: { name, labels: { 'kubernetes.io/metadata.name': name } },
    })) as never,
    pods: [pod as never],
    ...{ nodeName: 'here', nameServers },
  });
}

const refused = (spec: PolicySpec, nameServers?: readonly string[]): readonly string[] =>
  compilePolicies(inputs(spec, nameServers)).refusedQueries.map(
    ({ pod, server, protocol }) => `${pod} ${server} ${protocol}`,
  );

const egress = (rules: PolicySpec['egress']): PolicySpec => ({
  podSelector: {},
  policyTypes: ['Egress'],
  egress: rules ?? [],
});

const ALL = [`10.244.0.7 ${SERVER} UDP`, `10.244.0.7 ${SERVER} TCP`];

describe('queries to the name server of the node', () => {
  const cases: readonly (readonly [name: string, spec: PolicySpec, expected: readonly string[]])[] = [
    ['are free without an egress policy', { podSelector: {}, policyTypes: ['Ingress'] }, []],
    ['are refused by a policy that denies all egress', egress([]), ALL],
    ['are allowed with everything', egress([{}]), []],
    ['are allowed by port', egress([{ ports: [{ protocol: 'UDP', port: 53 }] }]), [ALL[1] ?? '']],
    ['are allowed to the namespace', egress([{ to: [{ namespaceSelector: { matchLabels: {} } }] }]), []],
    [
      'are allowed to pods of CoreDNS, by the name of their port',
      egress([
        {
          to: [{ namespaceSelector: {}, podSelector: { matchLabels: { 'k8s-app': 'kube-dns' } } }],
          ports: [{ protocol: 'UDP', port: 'dns' }],
        },
      ]),
      [ALL[1] ?? ''],
    ],
    ['are refused with other pods', egress([{ to: [{ podSelector: {} }] }]), ALL],
    ['are refused outside of the blocks', egress([{ to: [{ ipBlock: { cidr: '192.0.2.0/24' } }] }]), ALL],
    ['are refused with other ports', egress([{ ports: [{ protocol: 'UDP', port: 5353 }] }]), ALL],
  ];
  for (const [name, spec, expected] of cases) it(name, () => assert.deepEqual(refused(spec), expected));

  it('are judged with each address of the service, by the address of its family', () => {
    assert.deepEqual(refused(egress([]), ['10.96.0.10', 'fd96::a']), [
      ...ALL,
      'fd00::7 fd96::a UDP',
      'fd00::7 fd96::a TCP',
    ]);
  });

  it('are left alone where the node serves no names', () => {
    assert.deepEqual(refused(egress([]), []), []);
    assert.doesNotMatch(policyScript('t', compilePolicies(inputs(egress([]), []))), /hook input/);
  });

  it('are dropped by the address that the pod has chosen', () => {
    const script = policyScript('t', compilePolicies(inputs(egress([]))));
    assert.match(
      script,
      /elements = \{ 10\.244\.0\.7 \. 10\.96\.0\.10 \. tcp, 10\.244\.0\.7 \. 10\.96\.0\.10 \. udp \}/,
    );
    assert.match(
      script,
      /proto-dst 53 ct original ip saddr \. ct original ip daddr \. meta l4proto @refused_queries4 drop/,
    );
  });
});
