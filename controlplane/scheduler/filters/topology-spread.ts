/**
 * Filters by topology spread constraints with `DoNotSchedule`: no topology value may exceed the least one by more than
 * `maxSkew`.
 */
import type { Selector } from '../../../api/meta/selector.ts';
import type { NodeInfo } from '../node-info.ts';
import { podSelectsNode, toleratesTaint } from '../../../api/kinds/node-selection.ts';
import { ownMember } from '../../../api/meta/own-member.ts';
import type { PodInfo } from '../pod-info.ts';
import { mergedSelector, type Spec } from '../pod-selection.ts';
import {
  unresolvable,
  unschedulable,
  type FilterPlugin,
  type PodMove,
  type PreparedFilter,
  type SchedulingContext,
} from '../plugin.ts';

type Constraint = NonNullable<Spec['topologySpreadConstraints']>[number];

const MISMATCH = "node(s) didn't match pod topology spread constraints";

/** A node without the topology key of a constraint is rejected. */
export const podTopologySpread: FilterPlugin = {
  name: 'PodTopologySpread',
  async prepare(pod, cluster, slice) {
    const spreads = await spreadsOf(pod, { cluster, slice }, 'DoNotSchedule');
    return spreads.length === 0 ? undefined : new SpreadLimits(pod, spreads);
  },
};

class SpreadLimits implements PreparedFilter {
  /** The constraints. `selfMatch` is 1 if the constraint selects the pod itself, or else 0. */
  readonly #limits: readonly { readonly spread: Spread; readonly selfMatch: number }[];

  constructor(pod: PodInfo, spreads: readonly Spread[]) {
    this.#limits = spreads.map((spread) => ({ spread, selfMatch: spread.selector.matches(pod.labels) ? 1 : 0 }));
  }

  check(node: NodeInfo) {
    for (const { spread, selfMatch } of this.#limits) {
      const { topologyKey, maxSkew } = spread.constraint;
      const value = ownMember(node.labels, topologyKey);
      if (value === undefined) return unresolvable(`${MISMATCH} (missing required label)`);
      if ((spread.counts.get(value) ?? 0) + selfMatch - spread.least > maxSkew) return unschedulable(MISMATCH);
    }
    return undefined;
  }

  moved(move: PodMove): void {
    for (const { spread } of this.#limits) spread.moved(move);
  }
}

/** Counts the matching pods of one constraint by topology value, over the nodes that count. */
class Spread {
  readonly constraint: Constraint;
  readonly selector: Selector;
  readonly counts = new Map<string, number>();
  readonly #pod: PodInfo;
  readonly #takesPart: (node: NodeInfo) => boolean;
  #least: number | undefined;

  constructor(pod: PodInfo, constraint: Constraint, takesPart: (node: NodeInfo) => boolean) {
    this.#pod = pod;
    this.constraint = constraint;
    this.#takesPart = takesPart;
    this.selector = mergedSelector(
      constraint.labelSelector as Parameters<typeof mergedSelector>[0],
      pod,
      constraint.matchLabelKeys,
    );
  }

  /** The number of pods of the emptiest topology value. It is 0 while there are fewer values than `minDomains`. */
  get least(): number {
    this.#least ??= this.counts.size < (this.constraint.minDomains ?? 1) ? 0 : smallest(this.counts.values());
    return this.#least;
  }

  addNode(node: NodeInfo): void {
    if (!this.#takesPart(node)) return;
    let matching = 0;
    for (const other of node.pods.values()) if (this.#matches(other)) matching += 1;
    this.#change(node, matching);
  }

  moved({ pod, node, by }: PodMove): void {
    if (this.#matches(pod) && this.#takesPart(node)) this.#change(node, by);
  }

  #matches(other: PodInfo): boolean {
    return (
      other.namespace === this.#pod.namespace &&
      other.pod.metadata.deletionTimestamp === undefined &&
      this.selector.matches(other.labels)
    );
  }

  #change(node: NodeInfo, by: number): void {
    const value = ownMember(node.labels, this.constraint.topologyKey);
    if (value === undefined) return;
    this.counts.set(value, (this.counts.get(value) ?? 0) + by);
    this.#least = undefined;
  }
}

function smallest(values: Iterable<number>): number {
  let least = Infinity;
  for (const value of values) if (value < least) least = value;
  return least === Infinity ? 0 : least;
}

/** Counts the selected pods by topology value for each constraint with that action. */
export async function spreadsOf(
  pod: PodInfo,
  { cluster, slice }: SchedulingContext,
  action: Constraint['whenUnsatisfiable'],
): Promise<readonly Spread[]> {
  const constraints = (pod.pod.spec?.topologySpreadConstraints ?? []).filter((one) => one.whenUnsatisfiable === action);
  const keys = [...new Set(constraints.map((constraint) => constraint.topologyKey))];
  const spreads: Spread[] = [];
  for (const constraint of constraints) {
    const takesPart = (node: NodeInfo): boolean =>
      keys.every((key) => Object.hasOwn(node.labels, key)) && isCounted(constraint, pod, node);
    const spread = new Spread(pod, constraint, takesPart);
    for (const node of cluster.nodes) {
      spread.addNode(node);
      if (slice.isSpent) await slice.pause();
    }
    spreads.push(spread);
  }
  return spreads;
}

/** Whether the node counts according to the constraint's node policies. */
function isCounted(constraint: Constraint, pod: PodInfo, node: NodeInfo): boolean {
  if ((constraint.nodeAffinityPolicy ?? 'Honor') === 'Honor' && !podSelectsNode(pod.pod, node)) return false;
  if (constraint.nodeTaintsPolicy !== 'Honor') return true;
  const tolerations = pod.pod.spec?.tolerations ?? [];
  return node.taints.every((taint) => taint.effect === 'PreferNoSchedule' || toleratesTaint(tolerations, taint));
}
