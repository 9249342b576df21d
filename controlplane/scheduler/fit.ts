/**
 * Finds the nodes that a pod fits, with kube-scheduler's messages for the others. It works in time slices, and stops once
 * it has found enough nodes to compare.
 */
import type { TimeSlice } from '../../api/machinery/time-slice.ts';
import type { Cluster } from './cluster-state.ts';
import { dynamicResources } from './filters/dynamic-resources.ts';
import { interPodAffinity } from './filters/inter-pod-affinity.ts';
import {
  nodeAffinity,
  nodeDeclaredFeatures,
  nodeName,
  nodePorts,
  nodeResourcesFit,
  nodeUnschedulable,
  taintToleration,
} from './filters/node-filters.ts';
import { podTopologySpread } from './filters/topology-spread.ts';
import { nodeVolumeLimits, volumeBinding, volumeRestrictions, volumeZone } from './filters/volume-filters.ts';
import type { NodeInfo } from './node-info.ts';
import type { PodInfo } from './pod-info.ts';
import { type FilterPlugin, type PreparedFilter, type Rejection, unresolvable } from './plugin.ts';

/** The filters in order. The first rejection of a node is the one that is reported. */
const plugins: readonly FilterPlugin[] = [
  nodeUnschedulable,
  nodeName,
  taintToleration,
  nodeAffinity,
  nodePorts,
  nodeResourcesFit,
  volumeRestrictions,
  nodeVolumeLimits,
  volumeBinding,
  volumeZone,
  podTopologySpread,
  interPodAffinity,
  dynamicResources,
  nodeDeclaredFeatures,
];

interface NodeRejection extends Rejection {
  readonly node: NodeInfo;
}

/** The nodes that fit, and why the others do not. */
export interface Fit {
  readonly nodes: readonly NodeInfo[];
  readonly rejections: readonly NodeRejection[];
  /** The names of the filters that rejected a node. */
  readonly rejectedBy: ReadonlySet<string>;
  /** The reason why a filter refused the pod as a whole. Empty if no filter refused it. */
  readonly refusal: string;
  /** The trials for preemption. Absent if the pod was refused as a whole. */
  readonly trials: Trials | undefined;
  /**
   * The number of examined nodes, from the first one on. 0 if the preferred node fits, or the pod was refused as a whole.
   */
  readonly examined: number;
}

/** Returns the nominated pods that count on a node for the scheduled pod. */
export type Nominated = (node: NodeInfo) => readonly PodInfo[];

/** What a search reads. The cluster must not change until it has ended. */
interface Search {
  readonly cluster: Cluster;
  readonly nominated: Nominated;
  readonly slice: TimeSlice;
  /** The index of the node with which to begin. */
  readonly first: number;
  /** The name of a node that suffices if the pod fits there. */
  readonly preferred: string;
}

interface Rejected {
  readonly name: string;
  readonly rejection: Rejection;
}

/** The prepared filters of one pod, which are updated for the pods that a trial moves. */
export class Trials {
  readonly #filters: readonly { readonly name: string; readonly filter: PreparedFilter }[];
  readonly #nominated: Nominated;

  constructor(filters: readonly { readonly name: string; readonly filter: PreparedFilter }[], nominated: Nominated) {
    this.#filters = filters;
    this.#nominated = nominated;
  }

  /** Returns the nodes to check, and the name of the filter that excludes all others without a check. */
  candidates(cluster: Cluster): { readonly possible: readonly NodeInfo[]; readonly excludedBy?: string } {
    for (const { name, filter } of this.#filters) {
      if (filter.onlyNodes === undefined) continue;
      const possible = [...filter.onlyNodes].flatMap((node) => cluster.node(node) ?? []);
      return { possible, excludedBy: name };
    }
    return { possible: cluster.nodes };
  }

  /**
   * Returns why the pod does not fit on the node. It must fit without the pods that are nominated to the node, and also beside
   * them, because they may or may not arrive.
   */
  rejectionOn(node: NodeInfo): Rejected | undefined {
    const rejected = this.#rejectionNow(node);
    if (rejected !== undefined) return rejected;
    const nominated = this.#nominated(node).filter((other) => !node.pods.has(other.uid));
    if (nominated.length === 0) return undefined;
    const crowded = node.clone();
    for (const other of nominated) this.add(other, crowded);
    const rejectedThen = this.#rejectionNow(crowded);
    for (const other of nominated) this.remove(other, crowded);
    return rejectedThen;
  }

  /** Adds a pod to `node`, which is a clone, because the cluster's own nodes must not change. */
  add(pod: PodInfo, node: NodeInfo): void {
    node.add(pod);
    for (const { filter } of this.#filters) filter.moved?.({ pod, node, by: 1 });
  }

  /** Takes a pod off the node, for the filters as well. */
  remove(pod: PodInfo, node: NodeInfo): void {
    node.remove(pod.uid);
    for (const { filter } of this.#filters) filter.moved?.({ pod, node, by: -1 });
  }

  #rejectionNow(node: NodeInfo): Rejected | undefined {
    for (const { name, filter } of this.#filters) {
      const rejection = filter.check(node);
      if (rejection !== undefined) return { name, rejection };
    }
    return undefined;
  }
}

/** Returns the nodes that fit, and why others do not. Throws `FilterError` if a filter ends the attempt on all nodes. */
export async function fitOf(pod: PodInfo, search: Search): Promise<Fit> {
  const { cluster, nominated, slice } = search;
  const filters: { name: string; filter: PreparedFilter }[] = [];
  for (const plugin of plugins) {
    const prepared = await plugin.prepare(pod, cluster, slice);
    if (slice.isSpent) await slice.pause();
    if (prepared === undefined) continue;
    if ('reasons' in prepared) return refused(cluster, plugin.name, prepared);
    filters.push({ name: plugin.name, filter: prepared });
  }
  return examine(new Trials(filters, nominated), search);
}

async function examine(trials: Trials, { cluster, slice, first, preferred }: Search): Promise<Fit> {
  const preferredNode = cluster.node(preferred);
  if (preferredNode !== undefined && trials.rejectionOn(preferredNode) === undefined) {
    return { nodes: [preferredNode], rejections: [], rejectedBy: new Set(), refusal: '', trials, examined: 0 };
  }
  const nodes: NodeInfo[] = [];
  const rejections: NodeRejection[] = [];
  const rejectedBy = new Set<string>();
  const { possible, excludedBy } = trials.candidates(cluster);
  const wanted = nodesToFind(possible.length);
  let examined = 0;
  while (examined < possible.length && nodes.length < wanted) {
    const node = possible[(first + examined) % possible.length];
    examined += 1;
    if (node === undefined) continue;
    const rejected = trials.rejectionOn(node);
    if (rejected === undefined) nodes.push(node);
    else {
      rejections.push({ ...rejected.rejection, node });
      rejectedBy.add(rejected.name);
    }
    if (slice.isSpent) await slice.pause();
  }
  if (excludedBy !== undefined && nodes.length === 0) {
    rejectedBy.add(excludedBy);
    const checked = new Set(possible);
    const rejection = unresolvable(`node(s) didn't satisfy plugin(s) [${excludedBy}]`);
    for (const node of cluster.nodes) if (!checked.has(node)) rejections.push({ ...rejection, node });
  }
  return { nodes, rejections, rejectedBy, refusal: '', trials, examined };
}

function refused(cluster: Cluster, name: string, rejection: Rejection): Fit {
  const rejections = cluster.nodes.map((node): NodeRejection => ({ ...rejection, node }));
  const refusal = rejection.reasons.join(', ');
  return { nodes: [], rejections, rejectedBy: new Set([name]), refusal, trials: undefined, examined: 0 };
}

/** Filtering goes on at least until so many nodes fit, as in kube-scheduler (`minFeasibleNodesToFind`). */
const FEWEST_TO_FIND = 100;

/**
 * Returns the number of nodes by kube-scheduler's default for `percentageOfNodesToScore`: 50 % minus 1 % for each 125 nodes,
 * but at least 5 % and 100 nodes, or all if there are fewer.
 */
export function nodesToFind(count: number): number {
  if (count < FEWEST_TO_FIND) return count;
  const percentage = Math.max(5, 50 - Math.floor(count / 125));
  return Math.max(FEWEST_TO_FIND, Math.floor((count * percentage) / 100));
}

/** Formats `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable.` */
export function unavailableText(nodeCount: number, reasons: readonly string[], refusal = ''): string {
  const start = `0/${nodeCount} nodes are available:`;
  if (refusal !== '') return `${start} ${refusal}.`;
  const counts = new Map<string, number>();
  for (const reason of reasons) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  const parts = [...counts].map(([reason, count]) => `${count} ${reason}`).sort();
  return parts.length === 0 ? start : `${start} ${parts.join(', ')}.`;
}
