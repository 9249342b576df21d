/** What a filter or a score is: prepared once for a pod and a state of the cluster, then asked node by node. All pure. */
import type { Cluster, NodeInfo, PodInfo } from './cluster-state.ts';

export interface Rejection {
  /** `unresolvable`: no removal of other pods would help. */
  readonly kind: 'unschedulable' | 'unresolvable';
  readonly reasons: readonly string[];
}

export function unschedulable(...reasons: string[]): Rejection {
  return { kind: 'unschedulable', reasons };
}

export function unresolvable(...reasons: string[]): Rejection {
  return { kind: 'unresolvable', reasons };
}

export type NodeFilter = (node: NodeInfo) => Rejection | undefined;

export interface FilterPlugin {
  readonly name: string;
  /** `undefined`: it has nothing to say of this pod. A rejection counts for all nodes. */
  prepare(pod: PodInfo, cluster: Cluster): NodeFilter | Rejection | undefined;
}

export interface ScorePlugin {
  readonly name: string;
  readonly weight: number;
  /** Scores 0 to 100, one for each of `nodes`; `undefined`: it has nothing to say. */
  score(pod: PodInfo, nodes: readonly NodeInfo[], cluster: Cluster): readonly number[] | undefined;
}
