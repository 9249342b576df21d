/**
 * Provides a small cluster, policies for it, and an evaluator of the semantics of NetworkPolicy that shares no code with the
 * compiler. The unit test compares the rules with the evaluator, the integration test real packets.
 */
import { BlockList } from 'node:net';
import type { PolicyInputs, PolicyPod, PolicySpec } from '../../../../../agent/network/policy/policy-inputs.ts';

/** The addresses of a host outside the cluster. */
export const OUTSIDE = { v4: '192.0.2.9', v6: '2001:db8:7::9' } as const;
const NAMESPACES = ['x', 'y', 'z'];
const NAMES = ['a', 'b', 'c'];

/** Pod `x/a` has the addresses 10.97.7.11 and fd97::11. */
export const pods: readonly PolicyPod[] = NAMESPACES.flatMap((namespace, row) =>
  NAMES.map((name, column) => {
    const number = 10 * (row + 1) + column + 1;
    return {
      namespace,
      name,
      labels: { pod: name, ...(name === 'c' ? { tier: 'back' } : {}) },
      ips: [`10.97.7.${number}`, `fd97::${number}`],
      ports: [
        // The name means another port in the pods `b`.
        { name: 'web', protocol: 'TCP', port: name === 'b' ? 81 : 80 },
        { name: 'query', protocol: 'UDP', port: 81 },
      ],
      isLocal: true,
    };
  }),
);
/** The namespaces with their labels. */
export const namespaces = NAMESPACES.map((name) => ({
  name,
  labels: { ns: name, ...(name === 'z' ? {} : { team: 'one' }) },
}));

type Policies = PolicyInputs['policies'];
const policy = (namespace: string, name: string, spec: PolicySpec): Policies[number] => ({ namespace, name, spec });
const ingress = (rules: PolicySpec['ingress'], podSelector: PolicySpec['podSelector'] = {}): PolicySpec => ({
  podSelector,
  policyTypes: ['Ingress'],
  ingress: rules ?? [],
});
const egress = (rules: PolicySpec['egress'], podSelector: PolicySpec['podSelector'] = {}): PolicySpec => ({
  podSelector,
  policyTypes: ['Egress'],
  egress: rules ?? [],
});
const ofPod = (pod: string) => ({ matchLabels: { pod } });
const ofNamespace = (ns: string) => ({ matchLabels: { ns } });

/** The sets of policies that are tested, each with its name. */
export const CASES: readonly (readonly [name: string, policies: Policies])[] = [
  ['no policies', []],
  ['default deny of ingress in a namespace', [policy('x', 'deny', ingress([]))]],
  ['default deny of egress in a namespace', [policy('x', 'deny', egress([]))]],
  ['default deny in both directions', [policy('y', 'deny', { podSelector: {}, policyTypes: ['Ingress', 'Egress'] })]],
  ['policy types by default', [policy('x', 'both', { podSelector: ofPod('a'), egress: [{ ports: [{ port: 80 }] }] })]],
  ['a rule without peers and ports', [policy('x', 'open', ingress([{}])), policy('x', 'deny', ingress([]))]],
  ['pods of the own namespace', [policy('x', 'own', ingress([{ from: [{ podSelector: ofPod('b') }] }]))]],
  ['all pods of the own namespace', [policy('y', 'own', ingress([{ from: [{ podSelector: {} }] }], ofPod('a')))]],
  [
    'namespaces by label, by expression',
    [
      policy(
        'x',
        'team',
        ingress([{ from: [{ namespaceSelector: { matchExpressions: [{ key: 'team', operator: 'DoesNotExist' }] } }] }]),
      ),
    ],
  ],
  ['all namespaces', [policy('x', 'all', ingress([{ from: [{ namespaceSelector: {} }] }]))]],
  [
    'pods and namespaces together',
    [
      policy(
        'x',
        'and',
        ingress([{ from: [{ namespaceSelector: ofNamespace('y'), podSelector: ofPod('b') }], ports: [{ port: 80 }] }]),
      ),
    ],
  ],
  [
    'pods or namespaces',
    [
      policy(
        'x',
        'or',
        ingress([
          { from: [{ namespaceSelector: ofNamespace('y') }, { podSelector: ofPod('b') }], ports: [{ port: 81 }] },
        ]),
      ),
    ],
  ],
  [
    'the union of policies',
    [
      policy('x', 'one', ingress([{ from: [{ podSelector: ofPod('a') }], ports: [{ port: 80 }] }])),
      policy('x', 'two', ingress([{ from: [{ podSelector: {} }], ports: [{ port: 81 }] }], ofPod('c'))),
      policy('x', 'three', ingress([{ ports: [{ protocol: 'UDP', port: 80 }] }])),
    ],
  ],
  ['a protocol without a port', [policy('x', 'udp', ingress([{ ports: [{ protocol: 'UDP' }] }]))]],
  ['a range of ports', [policy('x', 'range', ingress([{ ports: [{ port: 79, endPort: 80 }] }]))]],
  ['a named port of the destination', [policy('x', 'web', ingress([{ ports: [{ port: 'web' }] }]))]],
  ['a named port of another protocol', [policy('x', 'web', ingress([{ ports: [{ protocol: 'UDP', port: 'web' }] }]))]],
  ['a named port with egress', [policy('x', 'web', egress([{ ports: [{ port: 'web' }] }]))]],
  [
    'a named port with egress to a block',
    [
      policy(
        'x',
        'web',
        egress([{ to: [{ ipBlock: { cidr: '10.97.7.16/28' } }], ports: [{ protocol: 'UDP', port: 'query' }] }]),
      ),
    ],
  ],
  [
    'a block with exceptions',
    [
      policy(
        'x',
        'block',
        ingress([
          {
            from: [
              { ipBlock: { cidr: '10.97.7.0/24', except: ['10.97.7.20/30', '10.97.7.32/32'] } },
              { ipBlock: { cidr: 'fd97::/64', except: ['fd97::20/124'] } },
            ],
          },
        ]),
      ),
    ],
  ],
  [
    'an exception that another peer allows',
    [
      policy(
        'x',
        'block',
        ingress([
          { from: [{ ipBlock: { cidr: '10.97.0.0/16', except: ['10.97.7.21/32'] } }], ports: [{ port: 80 }] },
          { from: [{ namespaceSelector: ofNamespace('y'), podSelector: ofPod('a') }], ports: [{ port: 81 }] },
        ]),
      ),
    ],
  ],
  ['the world outside', [policy('x', 'outside', ingress([{ from: [{ ipBlock: { cidr: '192.0.2.0/24' } }] }]))]],
  [
    'egress to the world outside, and to a namespace',
    [
      policy(
        'y',
        'out',
        egress([
          { to: [{ ipBlock: { cidr: '0.0.0.0/0', except: ['10.0.0.0/8'] } }, { ipBlock: { cidr: '2001:db8::/32' } }] },
          { to: [{ namespaceSelector: ofNamespace('z') }], ports: [{ port: 81 }, { protocol: 'UDP', port: 81 }] },
        ]),
      ),
    ],
  ],
  [
    'both sides at once',
    [
      policy('x', 'out', egress([{ to: [{ namespaceSelector: ofNamespace('y') }] }], ofPod('a'))),
      policy('y', 'in', ingress([{ from: [{ namespaceSelector: ofNamespace('x') }], ports: [{ port: 80 }] }])),
    ],
  ],
  ['a selector that selects nothing', [policy('x', 'none', ingress([], ofPod('nobody')))]],
  [
    'a peer that matches nothing',
    [policy('x', 'none', ingress([{ from: [{ namespaceSelector: ofNamespace('nowhere') }] }], ofPod('a')))],
  ],
];

export interface Probe {
  /** A pod, or `undefined` for a host outside. */
  readonly from: PolicyPod | undefined;
  readonly to: PolicyPod | undefined;
  readonly family: 4 | 6;
  readonly protocol: 'TCP' | 'UDP' | 'SCTP' | 'ICMP';
  readonly port: number;
}

/** Returns the address of a pod, or that of the host outside if there is no pod. */
export function probeAddress(pod: PolicyPod | undefined, family: 4 | 6): string {
  if (pod === undefined) return family === 4 ? OUTSIDE.v4 : OUTSIDE.v6;
  return pod.ips[family === 4 ? 0 : 1] ?? '';
}

type LabelSelector = PolicySpec['podSelector'];

function selects(selector: LabelSelector, labels: Readonly<Record<string, string>>): boolean {
  const { matchLabels = {}, matchExpressions = [] } = selector ?? {};
  return (
    Object.entries(matchLabels).every(([key, value]) => labels[key] === value) &&
    matchExpressions.every(({ key, operator, values = [] }) => {
      if (operator === 'Exists') return key in labels;
      if (operator === 'DoesNotExist') return !(key in labels);
      const found = values.includes(labels[key] ?? '');
      return operator === 'In' ? found : !found;
    })
  );
}

function inBlock(address: string, family: 4 | 6, cidr: string): boolean {
  const [base = '', length = ''] = cidr.split('/');
  if (base.includes(':') !== (family === 6)) return false;
  const list = new BlockList();
  list.addSubnet(base, Number(length), family === 6 ? 'ipv6' : 'ipv4');
  return list.check(address, family === 6 ? 'ipv6' : 'ipv4');
}

/** Judges a connection as the documentation of NetworkPolicy says, rule by rule. */
export function isAllowed(policies: Policies, probe: Probe): boolean {
  if (probe.from !== undefined && probe.from === probe.to) return true;
  return (['ingress', 'egress'] as const).every((direction) => {
    const subject = direction === 'ingress' ? probe.to : probe.from;
    const peer = direction === 'ingress' ? probe.from : probe.to;
    if (subject === undefined) return true;
    const own = policies.filter(({ namespace, spec }) => {
      const types = spec.policyTypes ?? (spec.egress === undefined ? ['Ingress'] : ['Ingress', 'Egress']);
      const type = direction === 'ingress' ? 'Ingress' : 'Egress';
      return namespace === subject.namespace && selects(spec.podSelector, subject.labels) && types.includes(type);
    });
    if (own.length === 0) return true;
    return own.some(({ namespace, spec }) =>
      (direction === 'ingress'
        ? (spec.ingress ?? []).map(({ from, ports }) => ({ peers: from, ports }))
        : (spec.egress ?? []).map(({ to, ports }) => ({ peers: to, ports }))
      ).some(({ peers = [], ports = [] }) => {
        const fitsPort =
          ports.length === 0 ||
          ports.some(({ protocol = 'TCP', port, endPort }) => {
            if (protocol !== probe.protocol) return false;
            if (port === undefined) return true;
            if (typeof port === 'number') return probe.port >= port && probe.port <= (endPort ?? port);
            return (probe.to?.ports ?? []).some(
              (named) => named.name === port && named.protocol === protocol && named.port === probe.port,
            );
          });
        const fitsPeer =
          peers.length === 0 ||
          peers.some(({ podSelector, namespaceSelector, ipBlock }) => {
            if (ipBlock !== undefined) {
              const address = probeAddress(peer, probe.family);
              const within = (cidr: string): boolean => inBlock(address, probe.family, cidr);
              return within(ipBlock.cidr) && !(ipBlock.except ?? []).some(within);
            }
            if (peer === undefined) return false;
            const labels = namespaces.find(({ name }) => name === peer.namespace)?.labels ?? {};
            const fitsNamespace =
              namespaceSelector === undefined ? peer.namespace === namespace : selects(namespaceSelector, labels);
            return fitsNamespace && (podSelector === undefined || selects(podSelector, peer.labels));
          });
        return fitsPort && fitsPeer;
      }),
    );
  });
}
