/**
 * Finds the pods that a term of pod affinity or a spread constraint selects. Pure. A term is parsed once for the pod that has
 * it.
 */
import {
  fromLabelSelector,
  newSelector,
  type LabelRequirement,
  type Labels,
  type Selector,
} from '../../api/meta/selector.ts';
import type { Pod } from '../../api/kinds/kinds.ts';
import { ownMember } from '../../api/meta/own-member.ts';

type LabelSelector = Parameters<typeof fromLabelSelector>[0];
/** The specification of a pod. */
export type Spec = NonNullable<Pod['spec']>;
/** A required term of pod affinity or anti-affinity. */
export type AffinityTerm = NonNullable<
  NonNullable<NonNullable<Spec['affinity']>['podAffinity']>['requiredDuringSchedulingIgnoredDuringExecution']
>[number];

/** The parts of a pod that a term reads. */
interface SelectablePod {
  readonly namespace: string;
  readonly labels: Labels;
}

/** The labels of a namespace, which terms with a namespace selector read. */
export interface NamespaceLabels {
  namespaceLabels(namespace: string): Labels;
}

/** A parsed term of pod affinity or anti-affinity. */
export interface PodTerm {
  readonly topologyKey: string;
  selects(pod: SelectablePod, namespaces: NamespaceLabels): boolean;
}

/** Parses a term of pod affinity. `owner` is the pod that has the term. */
export function podTerm(term: AffinityTerm, owner: SelectablePod): PodTerm {
  const selector = mergedSelector(
    term.labelSelector as LabelSelector,
    owner,
    term.matchLabelKeys,
    term.mismatchLabelKeys,
  );
  const names = new Set(term.namespaces ?? []);
  const namespaceSelector =
    term.namespaceSelector === undefined ? undefined : fromLabelSelector(term.namespaceSelector as LabelSelector);
  if (names.size === 0 && namespaceSelector === undefined) names.add(owner.namespace);
  const inNamespace = ({ namespace }: SelectablePod, { namespaceLabels }: NamespaceLabels): boolean =>
    names.has(namespace) || namespaceSelector?.matches(namespaceLabels(namespace)) === true;
  return {
    topologyKey: term.topologyKey,
    selects: (pod, namespaces) => inNamespace(pod, namespaces) && selector.matches(pod.labels),
  };
}

/**
 * Returns the selector that also requires the owner's values of `keys` and excludes its values of `otherKeys`. A selector that
 * matches nothing stays as it is.
 */
export function mergedSelector(
  selector: LabelSelector,
  owner: SelectablePod,
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
      const value = ownMember(owner.labels, key);
      const requirement: LabelRequirement = { key, operator, values: [value ?? ''] };
      // The API server adds these requirements to the selector when it stores a pod. Pods that older versions stored lack them.
      if (value !== undefined && !has(requirement)) more.push(requirement);
    }
  }
  if (more.length === 0 || (base.requirements.length === 0 && !base.isEmpty)) return base;
  return newSelector([...base.requirements, ...more]);
}
