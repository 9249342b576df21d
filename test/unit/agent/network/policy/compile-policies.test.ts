/** Tests the compiled rules against an evaluator of their own: every pair of pods, ports, protocols and families. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { compilePolicies } from '../../../../../agent/network/policy/compile-policies.ts';
import { policyScript } from '../../../../../agent/network/policy/nft-ruleset.ts';
import type { PolicySpec } from '../../../../../agent/network/policy/policy-inputs.ts';
import { assertLinearTime } from '../../../../fuzz/growth.ts';
import { CASES, isAllowed, namespaces, pods, type Probe, probeAddress } from './policy-cases.ts';
import { simulator } from './script-simulator.ts';

const PROBES: readonly Probe[] = [...pods, undefined].flatMap((from) =>
  [...pods, undefined].flatMap((to) =>
    ([4, 6] as const).flatMap((family) =>
      (['TCP', 'UDP', 'SCTP', 'ICMP'] as const).flatMap((protocol) =>
        (protocol === 'ICMP' ? [0] : [80, 81]).map((port) => ({ from, to, family, protocol, port })),
      ),
    ),
  ),
);

const describeProbe = ({ from, to, family, protocol, port }: Probe): string => {
  const name = (pod: Probe['from']): string => (pod === undefined ? 'outside' : `${pod.namespace}/${pod.name}`);
  return `${name(from)} to ${name(to)} by ${protocol} ${port}, IPv${family}`;
};

describe('compiled network policies', () => {
  for (const [name, policies] of CASES)
    it(`allow what the specification allows: ${name}`, () => {
      const passes = simulator(policyScript('t', compilePolicies({ policies, namespaces, pods })));
      const wrong = PROBES.filter(({ from, to, family, protocol, port }) => {
        const source = probeAddress(from, family);
        const destination = probeAddress(to, family);
        const passed = passes({ family, source, destination, protocol, port });
        return passed !== isAllowed(policies, { from, to, family, protocol, port });
      });
      assert.deepEqual(wrong.map(describeProbe), []);
    });

  it('concern the pods of this node only', () => {
    const elsewhere = pods.map((pod) => ({ ...pod, isLocal: pod.name === 'a' }));
    const policies = [{ namespace: 'x', name: 'deny', spec: { podSelector: {}, policyTypes: ['Ingress'] } }];
    const { ingress, egress } = compilePolicies({ policies, namespaces, pods: elsewhere });
    assert.deepEqual([[...ingress.keys()], [...egress.keys()]], [['10.97.7.11', 'fd97::11'], []]);
  });

  it('share one profile among pods with equal peers', () => {
    const policies = [{ namespace: 'x', name: 'deny', spec: { podSelector: {}, policyTypes: ['Ingress'] } }];
    const { ingress } = compilePolicies({ policies, namespaces, pods });
    assert.equal(new Set([...ingress.values()].map(({ id }) => id)).size, 1);
  });

  it('isolate a pod completely whose peers exceed the limit', () => {
    const spec: PolicySpec = {
      podSelector: { matchLabels: { pod: 'a' } },
      policyTypes: ['Ingress'],
      ingress: [{ from: ['10.1.0.0/24', '10.3.0.0/24', '10.5.0.0/24'].map((cidr) => ({ ipBlock: { cidr } })) }],
    };
    const compiled = compilePolicies({ policies: [{ namespace: 'x', name: 'p', spec }], namespaces, pods }, 2);
    assert.deepEqual(compiled.tooLarge, ['x/a']);
    const passes = simulator(policyScript('t', compiled));
    const connection = { family: 4, destination: '10.97.7.11', protocol: 'TCP', port: 80 } as const;
    assert.equal(passes({ ...connection, source: '10.1.0.1' }), false);
  });

  it('contain no text of the API', () => {
    const evil = '"; flush ruleset; x';
    const spec = {
      podSelector: {},
      policyTypes: ['Ingress', evil],
      ingress: [{ ports: [{ port: evil, protocol: evil }] }],
    };
    const inputs = { policies: [{ namespace: 'x', name: evil, spec }], namespaces, pods };
    const script = policyScript('t', compilePolicies(inputs as never));
    assert.doesNotMatch(script, /flush/);
  });

  it('take time in proportion to the pods of the cluster', () => {
    const spec: PolicySpec = {
      podSelector: {},
      policyTypes: ['Ingress', 'Egress'],
      ingress: [{ from: [{ namespaceSelector: {} }], ports: [{ port: 'web' }] }],
      egress: [{ to: [{ ipBlock: { cidr: '10.0.0.0/8' } }], ports: [{ port: 'web' }] }],
    };
    return assertLinearTime(
      (size) => {
        const many = Array.from({ length: size }, (_, index) => ({
          namespace: 'x',
          name: `p${index}`,
          labels: { pod: `p${index}` },
          ips: [`10.${index >> 16}.${(index >> 8) & 255}.${index & 255}`],
          ports: [{ name: 'web', protocol: 'TCP', port: 1000 + (index % 50) }],
          isLocal: index < 20,
        }));
        const policies = [{ namespace: 'x', name: 'p', spec }];
        return policyScript('t', compilePolicies({ policies, namespaces, pods: many }));
      },
      { minBytes: 256, maxBytes: 16_384 },
    );
  });
});
