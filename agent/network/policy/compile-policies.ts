/**
 * Compiles network policies into profiles. A profile lists the peers of a pod in one direction: ranges of addresses, each with
 * the ports that are allowed. Pods with equal peers share a profile, whose id is a hash of its contents.
 *
 * A pod without a profile in a direction is not isolated in it. Pure: depends on the inputs only.
 */
import { createHash } from 'node:crypto';
import { inOneSlice, type TimeSlice } from '../../../api/machinery/time-slice.ts';
import { canonicalIp } from '../../../api/meta/ip-addresses.ts';
import { everything, type Selector } from '../../../api/meta/selector.ts';
import { type AddressRange, divideRanges, type PeerRange } from './address-ranges.ts';
import { ALL_PORTS, type AllowedPorts, allowedPorts, LAST_PORT, type PortRange, PROTOCOLS } from './allowed-ports.ts';
import { refusedQueries, type RefusedQueries } from './name-servers.ts';
import { Budget, type PeerMatch, PodIndex, readSelector, TooManySteps } from './pod-index.ts';
import type { PolicyInputs, PolicyPeer, PolicyPod, PolicySpec } from './policy-inputs.ts';

/** The direction of packets, seen from the pod. */
export type Direction = 'ingress' | 'egress';

/** The peers of pods in one direction. An empty list denies everything. */
export interface Profile {
  readonly id: string;
  /** The ranges of the peers, sorted and without overlaps. */
  readonly peers: readonly PeerRange[];
}

/** The profiles of all pods of this node, within the limits on ranges and steps. */
export interface CompiledPolicies {
  /** The profiles of isolated addresses of this node, by canonical address. */
  readonly ingress: ReadonlyMap<string, Profile>;
  readonly egress: ReadonlyMap<string, Profile>;
  /** The pods of this node whose peers exceed a limit in a direction. They have no peers in it. */
  readonly tooLarge: readonly string[];
  readonly refusedQueries: readonly RefusedQueries[];
}

type Rule = NonNullable<PolicySpec['ingress']>[number] & NonNullable<PolicySpec['egress']>[number];
type Port = NonNullable<Rule['ports']>[number];
type Policy = PolicyInputs['policies'][number];

/** The maximum number of ranges of all profiles together. */
const MAX_RANGES = 200_000;
/**
 * The maximum number of comparisons for the policies of one namespace, because a few megabytes of policies could need any
 * number.
 */
const MAX_STEPS = 2_000_000;

interface CompileLimits {
  readonly ranges: number;
  readonly steps: number;
}

/** Compiles without pauses. */
export function compilePolicies(inputs: PolicyInputs, limits: Partial<CompileLimits> = {}): CompiledPolicies {
  return inOneSlice(compileInSlices(inputs, { isSpent: false }, limits));
}

/** Compiles the policies to the profiles of the local pods, within the limits. Yields when the slice is spent. */
export function* compileInSlices(
  inputs: PolicyInputs,
  slice: Pick<TimeSlice, 'isSpent'>,
  { ranges = MAX_RANGES, steps = MAX_STEPS }: Partial<CompileLimits> = {},
): Generator<void, CompiledPolicies, undefined> {
  const compiler = new Compiler(inputs, slice, steps);
  const isolated: Isolated[] = [];
  for (const pod of inputs.pods) {
    if (!pod.isLocal) continue;
    for (const direction of ['ingress', 'egress'] as const) {
      const profile = yield* compiler.profile(pod, direction);
      if (profile !== undefined) isolated.push({ pod, direction, profile });
      if (slice.isSpent) yield;
    }
  }
  const limited = withinLimit(isolated, ranges);
  return { ...limited, refusedQueries: refusedQueries(limited.egress, inputs.nameServers ?? []) };
}

interface Isolated {
  readonly pod: PolicyPod;
  readonly direction: Direction;
  readonly profile: Profile | 'too-large';
}

const NO_PEERS: Profile = { id: profileId([]), peers: [] };

/**
 * Gives the namespaces up to `maxRanges` address ranges together. Those with the fewest ranges come first, so that no
 * namespace uses up the ranges of others. Other isolated pods have no peers, and are listed in `tooLarge`.
 */
function withinLimit(isolated: readonly Isolated[], maxRanges: number): Omit<CompiledPolicies, 'refusedQueries'> {
  const sizes = new Map<string, { readonly ids: Set<string>; size: number }>();
  for (const { pod, profile } of isolated) {
    if (profile === 'too-large') continue;
    const entry = sizes.get(pod.namespace) ?? { ids: new Set<string>(), size: 0 };
    if (!entry.ids.has(profile.id)) entry.size += profile.peers.length;
    entry.ids.add(profile.id);
    sizes.set(pod.namespace, entry);
  }
  let left = maxRanges;
  const fits = new Set<string>();
  for (const [namespace, { size }] of [...sizes].sort(([, a], [, b]) => a.size - b.size)) {
    if (size > left) break;
    left -= size;
    fits.add(namespace);
  }
  const directions = { ingress: new Map<string, Profile>(), egress: new Map<string, Profile>() };
  const tooLarge = new Set<string>();
  for (const { pod, direction, profile } of isolated) {
    const isCut = profile === 'too-large' || !fits.has(pod.namespace);
    if (isCut) tooLarge.add(`${pod.namespace}/${pod.name}`);
    for (const ip of pod.ips) directions[direction].set(canonicalIp(ip) ?? ip, isCut ? NO_PEERS : profile);
  }
  return { ...directions, tooLarge: [...tooLarge] };
}

/** Returns the policy types that are in effect. The API server sets the default, but objects may be older than it. */
function policyTypes(spec: PolicySpec): readonly string[] {
  if ((spec.policyTypes ?? []).length > 0) return spec.policyTypes ?? [];
  return (spec.egress ?? []).length > 0 ? ['Ingress', 'Egress'] : ['Ingress'];
}

/** The rules of all policies that isolate a pod in one direction, and the budget of the steps of their compilation. */
interface Task {
  readonly rules: readonly { readonly namespace: string; readonly rule: Rule }[];
  readonly direction: Direction;
  readonly pod: PolicyPod;
  readonly budget: Budget;
}

class Compiler {
  readonly #index: PodIndex;
  readonly #byNamespace: Map<string, readonly { readonly policy: Policy; readonly selector: Selector }[]>;
  readonly #budgets = new Map<string, Budget>();
  readonly #profiles = new Map<string, Profile | 'too-large'>();
  readonly #byId = new Map<string, Profile>();
  readonly #peerMatches = new Map<string, readonly PeerMatch[]>();
  readonly #slice: Pick<TimeSlice, 'isSpent'>;
  readonly #steps: number;

  constructor(inputs: PolicyInputs, slice: Pick<TimeSlice, 'isSpent'>, steps: number) {
    this.#index = new PodIndex(inputs);
    this.#slice = slice;
    this.#steps = steps;
    const withSelector = inputs.policies.map((policy) => ({
      policy,
      // A missing selector selects all pods, as an empty one does. So does one that cannot be read, to isolate these pods.
      selector: readSelector(policy.spec.podSelector ?? {}, everything),
    }));
    this.#byNamespace = Map.groupBy(withSelector, ({ policy }) => policy.namespace);
  }

  /**
   * Returns the profile of a pod in one direction, `undefined` if no policy isolates the pod in it, or `too-large` if the
   * policies of the pod's namespace take too many steps.
   */
  *profile(pod: PolicyPod, direction: Direction): Generator<void, Profile | 'too-large' | undefined, undefined> {
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
    if (found === undefined) {
      const budget = this.#budgets.get(pod.namespace) ?? new Budget(this.#steps);
      this.#budgets.set(pod.namespace, budget);
      found = yield* this.#compileWithinBudget({ rules, direction, pod, budget });
      this.#profiles.set(key, found);
    }
    return found;
  }

  *#compileWithinBudget(task: Task): Generator<void, Profile | 'too-large', undefined> {
    try {
      return yield* this.#compile(task);
    } catch (error) {
      if (error instanceof TooManySteps) return 'too-large';
      throw error;
    }
  }

  *#compile(task: Task): Generator<void, Profile, undefined> {
    const { spend } = task.budget;
    const all: PeerRange[] = [];
    for (const { namespace, rule } of task.rules) {
      const ranges = yield* this.#ruleRanges(namespace, rule, task);
      spend(ranges.length);
      for (const range of ranges) all.push(range);
    }
    const peers: PeerRange[] = [];
    for (const family of [4, 6]) {
      const ofFamily = all.filter((range) => range.family === family);
      for (const range of yield* divideRanges(ofFamily, this.#slice, spend)) peers.push(range);
    }
    const id = profileId(peers);
    const profile = this.#byId.get(id) ?? { id, peers };
    this.#byId.set(id, profile);
    return profile;
  }

  *#ruleRanges(
    namespace: string,
    rule: Rule,
    { direction, pod, budget: { spend } }: Task,
  ): Generator<void, PeerRange[], undefined> {
    const peers = (direction === 'ingress' ? rule.from : rule.to) ?? [];
    const matches: PeerMatch[] = peers.length === 0 ? [this.#index.everything()] : [];
    for (const peer of peers) {
      matches.push(...this.#match(namespace, peer, spend));
      if (this.#slice.isSpent) yield;
    }
    const ports = rule.ports ?? [];
    if (ports.length === 0) return matches.flatMap(({ ranges }) => withPorts(ranges, ALL_PORTS));
    const fixed = ports.filter((port) => !isNamed(port)).flatMap(numberedRange);
    const named = ports.filter(isNamed);
    spend(ports.length);
    const names = new Set(named.map(({ protocol = 'TCP', port }) => `${protocol} ${port}`));
    if (direction === 'ingress') fixed.push(...namedRanges(names, pod));
    const result = fixed.length === 0 ? [] : matches.flatMap(({ ranges }) => withPorts(ranges, allowedPorts(fixed)));
    if (direction === 'ingress' || named.length === 0) return result;
    // A name means the port of that name in each destination pod.
    for (const { pods } of matches) {
      const destinations = pods(spend);
      for (const { pod: destination, ranges } of destinations) {
        spend(1 + destination.ports.length);
        const destinationPorts = namedRanges(names, destination);
        if (destinationPorts.length > 0) result.push(...withPorts(ranges, allowedPorts(destinationPorts)));
        if (this.#slice.isSpent) yield;
      }
    }
    return result;
  }

  #match(namespace: string, peer: PolicyPeer, spend: Budget['spend']): readonly PeerMatch[] {
    // Policies of many namespaces often have the same peers. The namespace matters only if the peer does not select it.
    const { namespaceSelector, ipBlock } = peer;
    const peerNamespace = namespaceSelector === undefined && ipBlock === undefined ? namespace : '';
    const key = JSON.stringify([peerNamespace, peer]);
    let matches = this.#peerMatches.get(key);
    if (matches === undefined) this.#peerMatches.set(key, (matches = this.#index.match(namespace, peer, spend)));
    for (const { ranges } of matches) spend(ranges.length);
    return matches;
  }
}

const withPorts = (ranges: readonly AddressRange[], ports: AllowedPorts): PeerRange[] =>
  ranges.map((range) => ({ ...range, ports }));

const isNamed = ({ port }: Port): boolean => typeof port === 'string';

function numberedRange({ protocol = 'TCP', port, endPort }: Port): PortRange[] {
  const supported = PROTOCOLS.find((name) => name === protocol);
  if (supported === undefined || typeof port === 'string') return [];
  if (port === undefined) return [{ protocol: supported, first: 0, last: LAST_PORT }];
  return [{ protocol: supported, first: port, last: endPort ?? port }];
}

/** Returns the ports of the pod that have one of the names, each `PROTOCOL name`. */
function namedRanges(names: ReadonlySet<string>, pod: PolicyPod): PortRange[] {
  if (names.size === 0) return [];
  return pod.ports.flatMap(({ name, protocol, port }) => {
    const supported = PROTOCOLS.find((one) => one === protocol);
    return supported === undefined || !names.has(`${protocol} ${name}`)
      ? []
      : [{ protocol: supported, first: port, last: port }];
  });
}

function profileId(peers: readonly PeerRange[]): string {
  const hash = createHash('sha256');
  for (const { family, first, last, ports } of peers)
    hash.update(`${family} ${first.toString(16)} ${last.toString(16)} ${ports.key}\n`);
  return hash.digest('hex').slice(0, 32);
}
