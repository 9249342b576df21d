/**
 * Pod affinity and anti-affinity, of the pod towards those that run and of those towards it: counts matching pods by
 * topology value once, then each node is a few look-ups.
 */
import type { Cluster, NodeInfo, PodInfo } from '../cluster-state.ts';
import { unresolvable, unschedulable, type FilterPlugin } from '../plugin.ts';
import { podTerm, type PodTerm } from '../pod-selection.ts';

/** Of one term: the topology values where a matching pod runs. */
interface Presence {
  readonly term: PodTerm;
  readonly values: Set<string>;
}

export const interPodAffinity: FilterPlugin = {
  name: 'InterPodAffinity',
  prepare(pod, cluster) {
    const terms = pod.requiredAffinity.map((term) => podTerm(term, pod, cluster));
    const affinity = matchingAll(terms, cluster);
    const anti = pod.requiredAntiAffinity.map((term) => presenceOf(podTerm(term, pod, cluster), cluster));
    const existing = existingAntiAffinity(pod, cluster);
    if (terms.length === 0 && anti.length === 0 && existing.size === 0) return undefined;
    // The first of a group that wants to be together may go anywhere.
    const first = affinity.every(({ values }) => values.size === 0) && terms.every((term) => term.selects(pod));
    return (node) => {
      if (!together(affinity, node, first)) return unresolvable("node(s) didn't match pod affinity rules");
      if (anti.some((one) => isPresent(one, node)))
        return unschedulable("node(s) didn't match pod anti-affinity rules");
      for (const [key, values] of existing) {
        const value = node.labels[key];
        if (value !== undefined && values.has(value))
          return unschedulable("node(s) didn't satisfy existing pods anti-affinity rules");
      }
      return undefined;
    };
  },
};

function together(affinity: readonly Presence[], node: NodeInfo, first: boolean): boolean {
  if (!affinity.every(({ term }) => Object.hasOwn(node.labels, term.topologyKey))) return false;
  return first || affinity.every((one) => isPresent(one, node));
}

function isPresent({ term, values }: Presence, node: NodeInfo): boolean {
  const value = node.labels[term.topologyKey];
  return value !== undefined && values.has(value);
}

/** Pods must match all terms to count for any of them. */
function matchingAll(terms: readonly PodTerm[], cluster: Cluster): Presence[] {
  const presences = terms.map((term): Presence => ({ term, values: new Set() }));
  if (terms.length === 0) return presences;
  for (const node of cluster.nodes) {
    for (const other of node.pods.values()) {
      if (!terms.every((term) => term.selects(other))) continue;
      for (const { term, values } of presences) {
        const value = node.labels[term.topologyKey];
        if (value !== undefined) values.add(value);
      }
    }
  }
  return presences;
}

function presenceOf(term: PodTerm, cluster: Cluster): Presence {
  const values = new Set<string>();
  for (const node of cluster.nodes) {
    const value = node.labels[term.topologyKey];
    if (value === undefined || values.has(value)) continue;
    for (const other of node.pods.values()) {
      if (!term.selects(other)) continue;
      values.add(value);
      break;
    }
  }
  return { term, values };
}

/** Topology values, by key, where a pod runs that does not want this one beside it. */
function existingAntiAffinity(pod: PodInfo, cluster: Cluster): Map<string, Set<string>> {
  const forbidden = new Map<string, Set<string>>();
  for (const node of cluster.nodes) {
    for (const other of node.pods.values()) {
      for (const term of other.requiredAntiAffinity) {
        const value = node.labels[term.topologyKey];
        if (value === undefined || !podTerm(term, other, cluster).selects(pod)) continue;
        const values = forbidden.get(term.topologyKey);
        if (values === undefined) forbidden.set(term.topologyKey, new Set([value]));
        else values.add(value);
      }
    }
  }
  return forbidden;
}
