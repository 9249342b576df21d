/**
 * The pods of a cluster by namespace and labels, in which the peers of network policies are looked up.
 */
import { fromLabelSelector, nothing, type Selector } from '../../../api/meta/selector.ts';
import { type AddressRange, addressRange, ALL_ADDRESSES, blockRanges } from './address-ranges.ts';
import type { PolicyInputs, PolicyPeer, PolicyPod } from './policy-inputs.ts';

/** The steps that the policies of one namespace may still take. */
export class Budget {
  #stepsLeft: number;

  constructor(steps: number) {
    this.#stepsLeft = steps;
  }

  /** Counts steps. Throws `TooManySteps` if fewer are left. */
  readonly spend = (steps: number): void => {
    this.#stepsLeft -= steps;
    if (this.#stepsLeft < 0) throw new TooManySteps();
  };
}

/** The error of a namespace whose look-ups exceed its share of the work. */
export class TooManySteps extends Error {
  override readonly name = 'TooManySteps';
}

interface MatchedPod {
  readonly pod: PolicyPod;
  /** The addresses of the pod that match: a block may contain only one of them, or none. */
  readonly ranges: readonly AddressRange[];
}

/** The addresses that a peer means, and the pods among them. */
export interface PeerMatch {
  readonly ranges: readonly AddressRange[];
  readonly pods: (spend: Budget['spend']) => readonly MatchedPod[];
}

type Group = readonly MatchedPod[];

/** The pods by namespace and labels: pods of one template are matched once. */
export class PodIndex {
  /** All pods with their addresses, sorted by the first one: sorted ranges are divided in linear time. */
  readonly #matched: readonly MatchedPod[];
  readonly #groups: readonly Group[];
  readonly #groupsOfNamespace: ReadonlyMap<string, readonly Group[]>;
  /** The groups by key and value of each label. */
  readonly #groupsOfLabel = new Map<string, Group[]>();
  readonly #labels: ReadonlyMap<string, Readonly<Record<string, string>>>;

  constructor({ pods, namespaces }: PolicyInputs) {
    this.#matched = pods.map(matched).sort((a, b) => inOrder(a.ranges[0], b.ranges[0]));
    this.#labels = new Map(namespaces.map(({ name, labels }) => [name, labels]));
    const key = ({ pod: { namespace, labels } }: MatchedPod): string =>
      JSON.stringify([namespace, Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1))]);
    this.#groups = [...Map.groupBy(this.#matched, key).values()];
    this.#groupsOfNamespace = Map.groupBy(this.#groups, ([first]) => first?.pod.namespace ?? '');
    for (const group of this.#groups) {
      for (const [label, value] of Object.entries(group[0]?.pod.labels ?? {})) {
        const key = labelKey(label, value);
        const groups = this.#groupsOfLabel.get(key);
        if (groups === undefined) this.#groupsOfLabel.set(key, [group]);
        else groups.push(group);
      }
    }
  }

  /** Returns the match of a peer that is every address. */
  everything(): PeerMatch {
    return { ranges: ALL_ADDRESSES, pods: () => this.#matched };
  }

  /** Returns the pods and ranges of a peer in a policy of the namespace. `spend` is called with the work, and may throw. */
  match(
    namespace: string,
    { podSelector, namespaceSelector, ipBlock }: PolicyPeer,
    spend: Budget['spend'],
  ): readonly PeerMatch[] {
    if (ipBlock !== undefined) {
      const ranges = blockRanges(ipBlock);
      const pods = (spendMore: Budget['spend']): readonly MatchedPod[] => {
        spendMore(this.#matched.length * Math.max(1, ranges.length));
        return this.#matched.map((found) => ({ pod: found.pod, ranges: within(found.ranges, ranges) }));
      };
      return [{ ranges, pods }];
    }
    if (podSelector === undefined && namespaceSelector === undefined) return [];
    // A missing pod selector means all pods of the namespaces, and a missing namespace selector the namespace of the policy.
    const ofPods = readSelector(podSelector ?? {}, nothing);
    const ofNamespaces = namespaceSelector === undefined ? undefined : readSelector(namespaceSelector, nothing);
    const inNamespace = (name: string): boolean => {
      if (ofNamespaces === undefined) return name === namespace;
      const labels = this.#labels.get(name);
      return labels !== undefined && ofNamespaces.matches(labels);
    };
    const candidates = this.#candidates(ofNamespaces === undefined ? namespace : undefined, ofPods);
    spend(candidates.length * (1 + ofPods.requirements.length + (ofNamespaces?.requirements.length ?? 0)));
    const pods = candidates.flatMap((group) => {
      const [first] = group;
      return first !== undefined && inNamespace(first.pod.namespace) && ofPods.matches(first.pod.labels) ? group : [];
    });
    spend(pods.length);
    const ranges = pods.flatMap((found) => found.ranges).sort(inOrder);
    return [{ ranges, pods: () => pods }];
  }

  /** Returns the shortest list of groups that contains all that a selector can match. */
  #candidates(namespace: string | undefined, { requirements }: Selector): readonly Group[] {
    const sets = [namespace === undefined ? this.#groups : (this.#groupsOfNamespace.get(namespace) ?? [])];
    for (const { key, operator, values } of requirements) {
      const [value] = values;
      if (value === undefined || values.length > 1 || !EQUAL.has(operator)) continue;
      sets.push(this.#groupsOfLabel.get(labelKey(key, value)) ?? []);
    }
    return sets.reduce((fewest, set) => (set.length < fewest.length ? set : fewest));
  }
}

/**
 * Reads a selector. One that cannot be read, for example because its operator is of another release, becomes `otherwise`, since
 * it must not hold up the policies of others.
 */
export function readSelector(selector: Parameters<typeof fromLabelSelector>[0], otherwise: Selector): Selector {
  try {
    return fromLabelSelector(selector);
  } catch {
    // The error is not logged, because each change of a pod compiles the policies again.
    return otherwise;
  }
}

const EQUAL: ReadonlySet<string> = new Set(['in', '=', '==']);
const labelKey = (key: string, value: string): string => `${key}\n${value}`;

const matched = (pod: PolicyPod): MatchedPod => ({ pod, ranges: pod.ips.flatMap(addressRange) });

function inOrder(a: AddressRange | undefined, b: AddressRange | undefined): number {
  if (a === undefined || b === undefined) return a === b ? 0 : a === undefined ? -1 : 1;
  return a.family - b.family || (a.first < b.first ? -1 : a.first > b.first ? 1 : 0);
}

/** Returns the addresses that lie in the ranges. */
function within(addresses: readonly AddressRange[], ranges: readonly AddressRange[]): AddressRange[] {
  return addresses.filter((address) =>
    ranges.some(
      ({ family, first, last }) => family === address.family && first <= address.first && address.last <= last,
    ),
  );
}
