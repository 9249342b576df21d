/** Tests the compiled rules against an evaluator of their own: every pair of pods, ports, protocols and families. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { compileInSlices, compilePolicies } from '../../../../../agent/network/policy/compile-policies.ts';
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

  it('isolate the pods of a namespace with a selector that cannot be read, admit no peer by one, and hold for others', () => {
    const unreadable = { matchExpressions: [{ key: 'a', operator: 'Resembles', values: ['b'] }] };
    const types = ['Ingress'];
    const policies = [
      { namespace: 'x', name: 'p', spec: { podSelector: unreadable, policyTypes: types } },
      {
        namespace: 'y',
        name: 'q',
        spec: { podSelector: {}, policyTypes: types, ingress: [{ from: [{ podSelector: unreadable }] }] },
      },
    ];
    const { ingress } = compilePolicies({ policies, namespaces, pods });
    const isolated = pods.filter(({ namespace }) => namespace === 'x' || namespace === 'y').flatMap(({ ips }) => ips);
    assert.deepEqual([...ingress.keys()].sort(), [...isolated].sort());
    assert.deepEqual(new Set([...ingress.values()].map(({ peers }) => peers.length)), new Set([0]));
  });

  it('isolate a pod completely whose peers exceed the limit', () => {
    const spec: PolicySpec = {
      podSelector: { matchLabels: { pod: 'a' } },
      policyTypes: ['Ingress'],
      ingress: [{ from: ['10.1.0.0/24', '10.3.0.0/24', '10.5.0.0/24'].map((cidr) => ({ ipBlock: { cidr } })) }],
    };
    const compiled = compilePolicies(
      { policies: [{ namespace: 'x', name: 'p', spec }], namespaces, pods },
      { ranges: 2 },
    );
    assert.deepEqual(compiled.tooLarge, ['x/a']);
    const passes = simulator(policyScript('t', compiled));
    const connection = { family: 4, destination: '10.97.7.11', protocol: 'TCP', port: 80 } as const;
    assert.equal(passes({ ...connection, source: '10.1.0.1' }), false);
  });

  const everyPod = { podSelector: {}, policyTypes: ['Ingress'] };
  const numbers = (count: number): number[] => Array.from({ length: count }, (_, index) => index);
  const blockOf = (index: number): string => `10.${(index >> 8) & 255}.${index & 255}.0/24`;
  const hostile: Readonly<Record<string, PolicySpec>> = {
    'thousands of overlapping blocks with ports of their own': {
      ...everyPod,
      ingress: numbers(4000).map((index) => ({
        from: [{ ipBlock: { cidr: blockOf(index) } }, { ipBlock: { cidr: '0.0.0.0/0' } }],
        ports: [{ port: index + 1 }],
      })),
    },
    'thousands of selectors for all pods': {
      ...everyPod,
      ingress: [
        {
          from: numbers(4000).map((index) => ({
            namespaceSelector: {},
            podSelector: { matchExpressions: [{ key: `no-${index}`, operator: 'DoesNotExist' }] },
          })),
        },
      ],
    },
    'thousands of blocks with a named port': {
      podSelector: {},
      policyTypes: ['Egress'],
      egress: [{ to: numbers(4000).map((index) => ({ ipBlock: { cidr: blockOf(index) } })), ports: [{ port: 'web' }] }],
    },
  };
  for (const [what, spec] of Object.entries(hostile))
    it(`isolate the pods of a namespace whose policy has ${what}, and those of others as they say`, () => {
      const all = numbers(2000).map((index) => ({
        namespace: index === 0 ? 'good' : 'evil',
        name: `p${index}`,
        labels: { pod: `p${index}` },
        ips: [`10.1.${index >> 8}.${index & 255}`],
        ports: [{ name: 'web', protocol: 'TCP', port: 80 }],
        isLocal: index < 5,
      }));
      const policies = [
        { namespace: 'evil', name: 'p', spec },
        { namespace: 'good', name: 'p', spec: { ...everyPod, ingress: [{ from: [{ namespaceSelector: {} }] }] } },
      ];
      let pauses = 0;
      let asked = 0;
      const slice = {
        get isSpent() {
          return ++asked % 10 === 0;
        },
      };
      const work = compileInSlices(
        {
          policies,
          namespaces: [
            { name: 'good', labels: {} },
            { name: 'evil', labels: {} },
          ],
          pods: all,
        },
        slice,
      );
      let next = work.next();
      for (; next.done !== true; next = work.next()) pauses++;
      assert.deepEqual(
        next.value.tooLarge,
        numbers(4).map((index) => `evil/p${index + 1}`),
      );
      assert.equal(next.value.ingress.get('10.1.0.0')?.peers[0]?.last, 0x0a_01_07_cfn, 'up to the last pod');
      assert.ok(pauses > 100, `others get the event loop: ${pauses} pauses`);
    });

  it('give the namespaces with the fewest ranges theirs first', () => {
    const spec = (count: number): PolicySpec => ({
      ...everyPod,
      ingress: [{ from: numbers(count).map((index) => ({ ipBlock: { cidr: blockOf(index * 2) } })) }],
    });
    const policies = [
      { namespace: 'big', name: 'p', spec: spec(90) },
      { namespace: 'small', name: 'p', spec: spec(20) },
    ];
    const own = ['big', 'small'].map((namespace, index) => ({
      ...{ namespace, name: 'p', labels: {}, ips: [`10.200.0.${index}`], ports: [], isLocal: true },
    }));
    const { ingress, tooLarge } = compilePolicies({ policies, namespaces, pods: own }, { ranges: 100 });
    assert.deepEqual(tooLarge, ['big/p']);
    assert.equal(ingress.get('10.200.0.0')?.peers.length, 0);
    assert.equal(ingress.get('10.200.0.1')?.peers.length, 20);
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
