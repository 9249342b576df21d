/** Which pods a term of pod affinity or a spread constraint selects. Pure. */
import { fromLabelSelector, newSelector, type LabelRequirement, type Selector } from '../../api/meta/selector.ts';
import type { AffinityTerm, Cluster, PodInfo } from './cluster-state.ts';

type LabelSelector = Parameters<typeof fromLabelSelector>[0];

export interface PodTerm {
  readonly topologyKey: string;
  selects(pod: PodInfo): boolean;
}

/** `owner`: the pod whose term it is. */
export function podTerm(term: AffinityTerm, owner: PodInfo, cluster: Cluster): PodTerm {
  const selector = mergedSelector(
    term.labelSelector as LabelSelector,
    owner,
    term.matchLabelKeys,
    term.mismatchLabelKeys,
  );
  const namespaces = new Set(term.namespaces ?? []);
  const namespaceSelector =
    term.namespaceSelector === undefined ? undefined : fromLabelSelector(term.namespaceSelector as LabelSelector);
  if (namespaces.size === 0 && namespaceSelector === undefined) namespaces.add(owner.namespace);
  return {
    topologyKey: term.topologyKey,
    selects: (pod) =>
      (namespaces.has(pod.namespace) || namespaceSelector?.matches(cluster.namespaceLabels(pod.namespace)) === true) &&
      selector.matches(pod.labels),
  };
}

/** The selector with the owner's own values of `keys` required, and of `otherKeys` excluded. */
export function mergedSelector(
  selector: LabelSelector,
  owner: PodInfo,
  keys: readonly string[] = [],
  otherKeys: readonly string[] = [],
): Selector {
  const base = fromLabelSelector(selector);
  const more: LabelRequirement[] = [];
  const has = (requirement: LabelRequirement): boolean =>
    base.requirements.some((one) => one.key === requirement.key && one.values[0] === requirement.values[0]);
  for (const [list, operator] of [
    [keys, 'in'],
    [otherKeys, 'notin'],
  ] as const) {
    for (const key of list) {
      const value = owner.labels[key];
      const requirement: LabelRequirement = { key, operator, values: [value ?? ''] };
      // The API has merged them into stored objects already; those of older ones are added here.
      if (value !== undefined && !has(requirement)) more.push(requirement);
    }
  }
  if (more.length === 0 || (base.requirements.length === 0 && !base.isEmpty)) return base;
  return newSelector([...base.requirements, ...more]);
}
