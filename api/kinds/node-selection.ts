/** Matches nodes against what pods require of them: node selectors, affinity terms, taints and tolerations. Pure. */
import type { Node, Pod } from './kinds.ts';
import { ownMember } from '../meta/own-member.ts';
import { newSelector, OBJECT_OPERATORS, type LabelOperator, type Selector } from '../meta/selector.ts';

type Spec = NonNullable<Pod['spec']>;

/** The parts of a node that selectors and terms read. */
export interface SelectableNode {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
}

type NodeAffinity = NonNullable<NonNullable<Spec['affinity']>['nodeAffinity']>;
/** Terms of which one must match. */
export type NodeSelector = NonNullable<NodeAffinity['requiredDuringSchedulingIgnoredDuringExecution']>;
type NodeSelectorTerm = NodeSelector['nodeSelectorTerms'][number];
/** A taint of a node. */
export type Taint = NonNullable<NonNullable<Node['spec']>['taints']>[number];
type Toleration = NonNullable<Spec['tolerations']>[number];

/** The operators of node selectors, which are two more than those of label selectors. */
const OPERATORS: ReadonlyMap<string, LabelOperator> = new Map<string, LabelOperator>([
  ...OBJECT_OPERATORS,
  ['Gt', 'gt'],
  ['Lt', 'lt'],
]);

/** The parsed terms, kept as long as the objects that contain them, because a term is evaluated once for each node. */
const selectors = new WeakMap<NodeSelectorTerm, Selector>();

/** Returns the selector of the term's label expressions. */
function labelSelectorOf(term: NodeSelectorTerm): Selector {
  const cached = selectors.get(term);
  if (cached !== undefined) return cached;
  const { matchExpressions = [] } = term;
  const selector = newSelector(
    matchExpressions.map(({ key, operator, values = [] }) => ({
      key,
      operator: OPERATORS.get(operator) ?? 'in',
      values,
    })),
  );
  selectors.set(term, selector);
  return selector;
}

/**
 * Whether the node matches all requirements of the term. An empty term matches nothing, and neither does one with another field
 * than `metadata.name`.
 */
export function matchesTerm(term: NodeSelectorTerm, node: SelectableNode): boolean {
  const { matchExpressions = [], matchFields = [] } = term;
  if (matchExpressions.length === 0 && matchFields.length === 0) return false;
  if (!labelSelectorOf(term).matches(node.labels)) return false;
  return matchFields.every(({ key, operator, values = [] }) => {
    if (key !== 'metadata.name') return false;
    return operator === 'NotIn' ? !values.includes(node.name) : values.includes(node.name);
  });
}

/** Whether one of the terms matches. */
export function matchesNodeSelector(selector: NodeSelector, node: SelectableNode): boolean {
  return selector.nodeSelectorTerms.some((term) => matchesTerm(term, node));
}

/** Whether the node matches `spec.nodeSelector` and the required node affinity. */
export function podSelectsNode(pod: { readonly spec?: Spec | undefined }, node: SelectableNode): boolean {
  for (const [key, value] of Object.entries(pod.spec?.nodeSelector ?? {})) {
    if (ownMember(node.labels, key) !== value) return false;
  }
  const required = pod.spec?.affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution;
  return required === undefined || matchesNodeSelector(required, node);
}

/** Whether key, value and effect of the taint match. The time of the toleration is up to the caller. */
export function tolerates(toleration: Toleration, taint: Taint): boolean {
  if (toleration.effect !== undefined && toleration.effect !== '' && toleration.effect !== taint.effect) return false;
  const operator = toleration.operator ?? 'Equal';
  if (toleration.key === undefined || toleration.key === '') return operator === 'Exists';
  if (toleration.key !== taint.key) return false;
  if (operator === 'Exists') return true;
  if (operator === 'Gt' || operator === 'Lt') {
    const wanted = Number(toleration.value ?? Number.NaN);
    const has = Number(taint.value ?? Number.NaN);
    return operator === 'Gt' ? has > wanted : has < wanted;
  }
  return (toleration.value ?? '') === (taint.value ?? '');
}

/** Whether one of the tolerations tolerates the taint. */
export function toleratesTaint(tolerations: readonly Toleration[], taint: Taint): boolean {
  return tolerations.some((toleration) => tolerates(toleration, taint));
}
