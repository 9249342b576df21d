/** Which nodes a pod fits, and for each other node why not, in the reference's words. Pure. */
import type { Cluster, NodeInfo, PodInfo } from './cluster-state.ts';
import { interPodAffinity } from './filters/inter-pod-affinity.ts';
import {
  nodeAffinity,
  nodeName,
  nodePorts,
  nodeResourcesFit,
  nodeUnschedulable,
  taintToleration,
} from './filters/node-filters.ts';
import { podTopologySpread } from './filters/topology-spread.ts';
import { nodeVolumeLimits, volumeBinding, volumeRestrictions, volumeZone } from './filters/volume-filters.ts';
import type { FilterPlugin, NodeFilter, Rejection } from './plugin.ts';

/** In this order; the first that rejects a node speaks for it. */
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
];

export interface NodeRejection extends Rejection {
  readonly node: NodeInfo;
}

export interface Fit {
  readonly nodes: readonly NodeInfo[];
  readonly rejections: readonly NodeRejection[];
  /** Names of the filters that rejected something. */
  readonly rejectedBy: ReadonlySet<string>;
  /** A filter refused the pod as a whole, for this. */
  readonly refusal: string;
}

interface Prepared {
  readonly name: string;
  readonly filter: NodeFilter;
}

export type Preparation =
  | { readonly filters: readonly Prepared[] }
  | { readonly refusedBy: string; readonly rejection: Rejection };

export function prepare(pod: PodInfo, cluster: Cluster): Preparation {
  const filters: Prepared[] = [];
  for (const plugin of plugins) {
    const prepared = plugin.prepare(pod, cluster);
    if (prepared === undefined) continue;
    if (typeof prepared !== 'function') return { refusedBy: plugin.name, rejection: prepared };
    filters.push({ name: plugin.name, filter: prepared });
  }
  return { filters };
}

/** Pods that are to come to a node and must be reckoned with, by node. */
export type Nominations = (node: NodeInfo) => readonly PodInfo[];

export function fitOf(pod: PodInfo, cluster: Cluster, nominated: Nominations): Fit {
  const preparation = prepare(pod, cluster);
  if ('refusedBy' in preparation) {
    const { rejection, refusedBy } = preparation;
    const rejections = cluster.nodes.map((node): NodeRejection => ({ ...rejection, node }));
    return { nodes: [], rejections, rejectedBy: new Set([refusedBy]), refusal: rejection.reasons.join(', ') };
  }
  const nodes: NodeInfo[] = [];
  const rejections: NodeRejection[] = [];
  const rejectedBy = new Set<string>();
  for (const node of cluster.nodes) {
    const rejected = rejectionOf(preparation.filters, node) ?? rejectionWith(pod, node, cluster, nominated(node));
    if (rejected === undefined) {
      nodes.push(node);
      continue;
    }
    rejections.push({ ...rejected.rejection, node });
    rejectedBy.add(rejected.name);
  }
  return { nodes, rejections, rejectedBy, refusal: '' };
}

function rejectionOf(
  filters: readonly Prepared[],
  node: NodeInfo,
): { readonly name: string; readonly rejection: Rejection } | undefined {
  for (const { name, filter } of filters) {
    const rejection = filter(node);
    if (rejection !== undefined) return { name, rejection };
  }
  return undefined;
}

/** Whether the pod still fits when the nominated pods have come. */
function rejectionWith(pod: PodInfo, node: NodeInfo, cluster: Cluster, nominated: readonly PodInfo[]) {
  if (nominated.length === 0) return undefined;
  const crowded = node.clone();
  for (const other of nominated) crowded.add(other);
  return fitsChanged(pod, crowded, cluster);
}

/** Why the pod does not fit a node that differs from the cluster's; `undefined` when it fits. */
export function fitsChanged(pod: PodInfo, changed: NodeInfo, cluster: Cluster) {
  const nodes = cluster.nodes.map((node) => (node.name === changed.name ? changed : node));
  const preparation = prepare(pod, withNodes(cluster, nodes));
  if ('refusedBy' in preparation) return { name: preparation.refusedBy, rejection: preparation.rejection };
  return rejectionOf(preparation.filters, changed);
}

function withNodes(cluster: Cluster, nodes: readonly NodeInfo[]): Cluster {
  return {
    nodes,
    namespaceLabels: (namespace) => cluster.namespaceLabels(namespace),
    claim: (namespace, name) => cluster.claim(namespace, name),
    volume: (name) => cluster.volume(name),
    volumes: () => cluster.volumes(),
    storageClass: (name) => cluster.storageClass(name),
    csiNode: (name) => cluster.csiNode(name),
  };
}

/** `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable.` */
export function unavailableText(nodeCount: number, reasons: readonly string[], refusal = ''): string {
  const start = `0/${nodeCount} nodes are available:`;
  if (refusal !== '') return `${start} ${refusal}.`;
  const counts = new Map<string, number>();
  for (const reason of reasons) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  const parts = [...counts].map(([reason, count]) => `${count} ${reason}`).sort();
  return parts.length === 0 ? start : `${start} ${parts.join(', ')}.`;
}
