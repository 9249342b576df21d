/** Topology spread constraints with `DoNotSchedule`: no topology value may get more than `maxSkew` above the least one. */
import type { Selector } from '../../../api/meta/selector.ts';
import type { Cluster, NodeInfo, PodInfo, Spec } from '../cluster-state.ts';
import { podSelectsNode, toleratesTaint } from '../node-selection.ts';
import { unresolvable, unschedulable, type FilterPlugin } from '../plugin.ts';
import { mergedSelector } from '../pod-selection.ts';

export type Constraint = NonNullable<Spec['topologySpreadConstraints']>[number];

export interface Spread {
  readonly constraint: Constraint;
  readonly selector: Selector;
  /** Matching pods by topology value, over the nodes that count. */
  readonly counts: Map<string, number>;
}

const MISMATCH = "node(s) didn't match pod topology spread constraints";

export const podTopologySpread: FilterPlugin = {
  name: 'PodTopologySpread',
  prepare(pod, cluster) {
    const spreads = spreadsOf(pod, cluster, 'DoNotSchedule');
    if (spreads.length === 0) return undefined;
    const limits = spreads.map((spread) => ({
      spread,
      least: leastOf(spread),
      own: spread.selector.matches(pod.labels) ? 1 : 0,
    }));
    return (node) => {
      for (const { spread, least, own } of limits) {
        const { constraint, counts } = spread;
        const value = node.labels[constraint.topologyKey];
        if (value === undefined) return unresolvable(`${MISMATCH} (missing required label)`);
        if ((counts.get(value) ?? 0) + own - least > constraint.maxSkew) return unschedulable(MISMATCH);
      }
      return undefined;
    };
  },
};

function leastOf({ constraint, counts }: Spread): number {
  if (counts.size < (constraint.minDomains ?? 1)) return 0;
  return counts.size === 0 ? 0 : Math.min(...counts.values());
}

export function spreadsOf(pod: PodInfo, cluster: Cluster, action: Constraint['whenUnsatisfiable']): Spread[] {
  const constraints = (pod.pod.spec?.topologySpreadConstraints ?? []).filter((one) => one.whenUnsatisfiable === action);
  return constraints.map((constraint) => {
    const selector = mergedSelector(
      constraint.labelSelector as Parameters<typeof mergedSelector>[0],
      pod,
      constraint.matchLabelKeys,
    );
    const counts = new Map<string, number>();
    for (const node of cluster.nodes) {
      const value = node.labels[constraint.topologyKey];
      if (value === undefined || !constraints.every((one) => one.topologyKey in node.labels)) continue;
      if (!counts.has(value) && counted(constraint, pod, node)) counts.set(value, 0);
      if (counted(constraint, pod, node)) counts.set(value, (counts.get(value) ?? 0) + matching(node, pod, selector));
    }
    return { constraint, selector, counts };
  });
}

/** Whether the node takes part, by the constraint's node policies. */
function counted(constraint: Constraint, pod: PodInfo, node: NodeInfo): boolean {
  if ((constraint.nodeAffinityPolicy ?? 'Honor') === 'Honor' && !podSelectsNode(pod.pod, node)) return false;
  if (constraint.nodeTaintsPolicy !== 'Honor') return true;
  const tolerations = pod.pod.spec?.tolerations ?? [];
  return node.taints.every((taint) => taint.effect === 'PreferNoSchedule' || toleratesTaint(tolerations, taint));
}

function matching(node: NodeInfo, pod: PodInfo, selector: Selector): number {
  let count = 0;
  for (const other of node.pods.values()) {
    if (other.pod.metadata.deletionTimestamp !== undefined || other.namespace !== pod.namespace) continue;
    if (selector.matches(other.labels)) count += 1;
  }
  return count;
}
