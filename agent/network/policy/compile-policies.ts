/**
 * Compiles network policies into profiles. A profile lists the peers of a pod in one direction: ranges of addresses, each with
 * the ports that are allowed. Pods with equal peers share a profile, whose id is a hash of its contents.
 *
 * A pod without a profile in a direction is not isolated in it. Pure: depends on the inputs only.
 */
import { createHash } from 'node:crypto';
import { canonicalIp } from '../../../api/meta/ip-addresses.ts';
import { fromLabelSelector, type Selector } from '../../../api/meta/selector.ts';
import {
  type AddressRange,
  addressRange,
  ALL_ADDRESSES,
  blockRanges,
  divideRanges,
  type PeerRange,
} from './address-ranges.ts';
import { ALL_PORTS, type AllowedPorts, allowedPorts, LAST_PORT, type PortRange, PROTOCOLS } from './allowed-ports.ts';
import type { PolicyInputs, PolicyPod, PolicySpec } from './policy-inputs.ts';

export type Direction = 'ingress' | 'egress';

export interface Profile {
  readonly id: string;
  /** Sorted, without overlaps. */
  readonly peers: readonly PeerRange[];
}

export interface CompiledPolicies {
  /** The profiles of isolated addresses of this node, by canonical address. */
  readonly ingress: ReadonlyMap<string, Profile>;
  readonly egress: ReadonlyMap<string, Profile>;
  /** The pods of this node whose peers exceed the limit. They are isolated completely. */
  readonly tooLarge: readonly string[];
}

type Rule = NonNullable<PolicySpec['ingress']>[number] & NonNullable<PolicySpec['egress']>[number];
type Peer = NonNullable<Rule['from']>[number];
type Port = NonNullable<Rule['ports']>[number];
type Policy = PolicyInputs['policies'][number];

/** The number of ranges of all profiles together. The kernel needs about 200 bytes for each. */
export const MAX_RANGES = 500_000;

export function compilePolicies(inputs: PolicyInputs, maxRanges = MAX_RANGES): CompiledPolicies {
  const compiler = new Compiler(inputs, maxRanges);
  const ingress = new Map<string, Profile>();
  const egress = new Map<string, Profile>();
  const tooLarge = new Set<string>();
  for (const pod of inputs.pods.filter(({ isLocal }) => isLocal)) {
    for (const [direction, profiles] of [
      ['ingress', ingress],
      ['egress', egress],
    ] as const) {
      const found = compiler.profile(pod, direction);
      if (found === undefined) continue;
      if (found.isCut) tooLarge.add(`${pod.namespace}/${pod.name}`);
      for (const ip of pod.ips) profiles.set(canonicalIp(ip) ?? ip, found.profile);
    }
  }
  return { ingress, egress, tooLarge: [...tooLarge] };
}

/** The policy types that are in effect. The API server sets the default, but objects may be older than it. */
export function policyTypes(spec: PolicySpec): readonly string[] {
  if ((spec.policyTypes ?? []).length > 0) return spec.policyTypes ?? [];
  return (spec.egress ?? []).length > 0 ? ['Ingress', 'Egress'] : ['Ingress'];
}

interface Found {
  readonly profile: Profile;
  readonly isCut: boolean;
}

class Compiler {
  readonly #index: PodIndex;
  readonly #byNamespace: Map<string, readonly { readonly policy: Policy; readonly selector: Selector }[]>;
  readonly #profiles = new Map<string, Found>();
  readonly #byId = new Map<string, Profile>();
  readonly #peers = new Map<string, readonly PeerMatch[]>();
  #left: number;

  constructor(inputs: PolicyInputs, maxRanges: number) {
    this.#index = new PodIndex(inputs);
    this.#left = maxRanges;
    const withSelector = inputs.policies.map((policy) => ({
      policy,
      // No selector selects all pods, as an empty one does.
      selector: fromLabelSelector(policy.spec.podSelector ?? {}),
    }));
    this.#byNamespace = Map.groupBy(withSelector, ({ policy }) => policy.namespace);
  }

  /** Returns `undefined` if no policy isolates the pod in this direction. */
  profile(pod: PolicyPod, direction: Direction): Found | undefined {
    const type = direction === 'ingress' ? 'Ingress' : 'Egress';
    const policies = (this.#byNamespace.get(pod.namespace) ?? [])
      .filter(({ policy, selector }) => policyTypes(policy.spec).includes(type) && selector.matches(pod.labels))
      .map(({ policy }) => policy);
    if (policies.length === 0) return undefined;
    const rules = policies.flatMap(({ namespace, spec }) =>
      ((spec[direction] ?? []) as readonly Rule[]).map((rule) => ({ namespace, rule })),
    );
    const names = policies.map(({ namespace, name }) => `${namespace}/${name}`).sort();
    // The peers depend on the pod itself only by its named ports, and only for traffic to it.
    const usesNames = direction === 'ingress' && rules.some(({ rule }) => (rule.ports ?? []).some(isNamed));
    const key = JSON.stringify([direction, names, usesNames ? pod.ports : []]);
    let found = this.#profiles.get(key);
    if (found === undefined) this.#profiles.set(key, (found = this.#compile(rules, direction, pod)));
    return found;
  }

  #compile(
    rules: readonly { readonly namespace: string; readonly rule: Rule }[],
    direction: Direction,
    pod: PolicyPod,
  ): Found {
    const all = rules.flatMap(({ namespace, rule }) => this.#ruleRanges(namespace, rule, direction, pod));
    const peers = [4, 6].flatMap((family) => divideRanges(all.filter((range) => range.family === family)));
    const isCut = peers.length > this.#left;
    const kept = isCut ? [] : peers;
    const id = profileId(kept);
    const profile = this.#byId.get(id) ?? { id, peers: kept };
    if (!this.#byId.has(id)) this.#left -= kept.length;
    this.#byId.set(id, profile);
    return { profile, isCut };
  }

  #ruleRanges(namespace: string, rule: Rule, direction: Direction, pod: PolicyPod): PeerRange[] {
    const peers = (direction === 'ingress' ? rule.from : rule.to) ?? [];
    const matches =
      peers.length === 0 ? [this.#index.everything()] : peers.flatMap((peer) => this.#match(namespace, peer));
    const ports = rule.ports ?? [];
    if (ports.length === 0) return matches.flatMap(({ ranges }) => withPorts(ranges, ALL_PORTS));
    const fixed = ports.filter((port) => !isNamed(port)).flatMap(numberedRange);
    const named = ports.filter(isNamed);
    if (direction === 'ingress') fixed.push(...named.flatMap((port) => namedRanges(port, pod)));
    const result = fixed.length === 0 ? [] : matches.flatMap(({ ranges }) => withPorts(ranges, allowedPorts(fixed)));
    if (direction === 'ingress' || named.length === 0) return result;
    // A name means the port of that name in each destination pod.
    for (const { pod: destination, ranges } of matches.flatMap(({ pods }) => pods())) {
      const own = named.flatMap((port) => namedRanges(port, destination));
      if (own.length > 0) result.push(...withPorts(ranges, allowedPorts(own)));
    }
    return result;
  }

  #match(namespace: string, peer: Peer): readonly PeerMatch[] {
    // Policies of many namespaces often have the same peers. The namespace matters only if the peer does not select it.
    const { namespaceSelector, ipBlock } = peer;
    const place = namespaceSelector === undefined && ipBlock === undefined ? namespace : '';
    const key = JSON.stringify([place, peer]);
    let matches = this.#peers.get(key);
    if (matches === undefined) this.#peers.set(key, (matches = this.#index.match(namespace, peer)));
    return matches;
  }
}

interface MatchedPod {
  readonly pod: PolicyPod;
  /** Those of its addresses that match: a block may contain only one of them. */
  readonly ranges: readonly AddressRange[];
}

/** The addresses that a peer means, and the pods among them. */
interface PeerMatch {
  readonly ranges: readonly AddressRange[];
  readonly pods: () => readonly MatchedPod[];
}

/** The pods by namespace and labels: pods of one template are matched once. */
class PodIndex {
  /** All pods with their addresses, sorted by the first one: sorted ranges are divided in linear time. */
  readonly #matched: readonly MatchedPod[];
  readonly #groups: readonly (readonly MatchedPod[])[];
  readonly #labels: ReadonlyMap<string, Readonly<Record<string, string>>>;

  constructor({ pods, namespaces }: PolicyInputs) {
    this.#matched = pods.map(matched).sort((a, b) => inOrder(a.ranges[0], b.ranges[0]));
    this.#labels = new Map(namespaces.map(({ name, labels }) => [name, labels]));
    const key = ({ pod: { namespace, labels } }: MatchedPod): string =>
      JSON.stringify([namespace, Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1))]);
    this.#groups = [...Map.groupBy(this.#matched, key).values()];
  }

  everything(): PeerMatch {
    return { ranges: ALL_ADDRESSES, pods: () => this.#matched };
  }

  match(namespace: string, { podSelector, namespaceSelector, ipBlock }: Peer): readonly PeerMatch[] {
    if (ipBlock !== undefined) {
      const ranges = blockRanges(ipBlock);
      return [
        { ranges, pods: () => this.#matched.map((own) => ({ pod: own.pod, ranges: within(own.ranges, ranges) })) },
      ];
    }
    if (podSelector === undefined && namespaceSelector === undefined) return [];
    // A missing pod selector means all pods of the namespaces, a missing namespace selector that of the policy.
    const ofPods = fromLabelSelector(podSelector ?? {});
    const ofNamespaces = namespaceSelector === undefined ? undefined : fromLabelSelector(namespaceSelector);
    const inNamespace = (name: string): boolean => {
      if (ofNamespaces === undefined) return name === namespace;
      const labels = this.#labels.get(name);
      return labels !== undefined && ofNamespaces.matches(labels);
    };
    const pods = this.#groups.flatMap((group) => {
      const [first] = group;
      return first !== undefined && inNamespace(first.pod.namespace) && ofPods.matches(first.pod.labels) ? group : [];
    });
    const ranges = pods.flatMap((own) => own.ranges).sort(inOrder);
    return [{ ranges, pods: () => pods }];
  }
}

const matched = (pod: PolicyPod): MatchedPod => ({ pod, ranges: pod.ips.flatMap(addressRange) });

const withPorts = (ranges: readonly AddressRange[], ports: AllowedPorts): PeerRange[] =>
  ranges.map((range) => ({ ...range, ports }));

function inOrder(a: AddressRange | undefined, b: AddressRange | undefined): number {
  if (a === undefined || b === undefined) return a === b ? 0 : a === undefined ? -1 : 1;
  return a.family - b.family || (a.first < b.first ? -1 : a.first > b.first ? 1 : 0);
}

/** Returns the addresses that lie in the ranges. */
function within(addresses: readonly AddressRange[], ranges: readonly AddressRange[]): AddressRange[] {
  return addresses.filter((own) =>
    ranges.some(({ family, first, last }) => family === own.family && first <= own.first && own.last <= last),
  );
}

const isNamed = ({ port }: Port): boolean => typeof port === 'string';

function numberedRange({ protocol = 'TCP', port, endPort }: Port): PortRange[] {
  const known = PROTOCOLS.find((name) => name === protocol);
  if (known === undefined || typeof port === 'string') return [];
  if (port === undefined) return [{ protocol: known, first: 0, last: LAST_PORT }];
  return [{ protocol: known, first: port, last: endPort ?? port }];
}

function namedRanges({ protocol = 'TCP', port }: Port, pod: PolicyPod): PortRange[] {
  const known = PROTOCOLS.find((name) => name === protocol);
  if (known === undefined) return [];
  return pod.ports
    .filter((own) => own.name === port && own.protocol === known)
    .map((own) => ({ protocol: known, first: own.port, last: own.port }));
}

function profileId(peers: readonly PeerRange[]): string {
  const hash = createHash('sha256');
  for (const { family, first, last, ports } of peers)
    hash.update(`${family} ${first.toString(16)} ${last.toString(16)} ${ports.key}\n`);
  return hash.digest('hex').slice(0, 32);
}
