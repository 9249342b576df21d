/**
 * Filters by the required affinity and anti-affinity of the pod, and by the required anti-affinity of running pods. It counts
 * matching pods by topology value once.
 */
import type { TimeSlice } from '../../../api/machinery/time-slice.ts';
import { ownMember } from '../../../api/meta/own-member.ts';
import type { Cluster } from '../cluster-state.ts';
import type { NodeInfo } from '../node-info.ts';
import type { PodInfo } from '../pod-info.ts';
import { unresolvable, unschedulable, type FilterPlugin, type PodMove, type PreparedFilter } from '../plugin.ts';
import type { PodTerm } from '../pod-selection.ts';

/** Preparing it visits all nodes and pauses between time slices. */
export const interPodAffinity: FilterPlugin = {
  name: 'InterPodAffinity',
  async prepare(pod, cluster, slice) {
    const counts = new AffinityCounts(pod, cluster);
    for (const node of cluster.nodes) await counts.addNode(node, slice);
    return counts;
  },
};

/** Counts matching pods by the value of the topology label of one term. */
class TopologyCounts {
  readonly term: PodTerm;
  readonly #counts = new Map<string, number>();

  constructor(term: PodTerm) {
    this.term = term;
  }

  get isEmpty(): boolean {
    return this.#counts.size === 0;
  }

  has(node: NodeInfo): boolean {
    const value = ownMember(node.labels, this.term.topologyKey);
    return value !== undefined && this.#counts.has(value);
  }

  change(node: NodeInfo, by: number): void {
    const value = ownMember(node.labels, this.term.topologyKey);
    if (value === undefined) return;
    const count = (this.#counts.get(value) ?? 0) + by;
    if (count === 0) this.#counts.delete(value);
    else this.#counts.set(value, count);
  }
}

class AffinityCounts implements PreparedFilter {
  readonly #pod: PodInfo;
  readonly #cluster: Cluster;
  readonly #affinity: readonly TopologyCounts[];
  readonly #antiAffinity: readonly TopologyCounts[];
  /** The number of anti-affinity terms of other pods that select this pod, by topology key and then by its value. */
  readonly #repelling = new Map<string, Map<string, number>>();
  readonly #matchesItself: boolean;

  constructor(pod: PodInfo, cluster: Cluster) {
    this.#pod = pod;
    this.#cluster = cluster;
    this.#affinity = pod.requiredAffinity.map((term) => new TopologyCounts(term));
    this.#antiAffinity = pod.requiredAntiAffinity.map((term) => new TopologyCounts(term));
    this.#matchesItself = pod.requiredAffinity.every((term) => term.selects(pod, cluster));
  }

  async addNode(node: NodeInfo, slice: TimeSlice): Promise<void> {
    for (const other of node.antiAffine.values()) {
      this.#countRepelling(other, node, 1);
      if (slice.isSpent) await slice.pause();
    }
    if (this.#affinity.length === 0 && this.#antiAffinity.length === 0) return;
    for (const other of node.pods.values()) {
      this.#countMatching(other, node, 1);
      if (slice.isSpent) await slice.pause();
    }
  }

  moved({ pod, node, by }: PodMove): void {
    this.#countRepelling(pod, node, by);
    this.#countMatching(pod, node, by);
  }

  check(node: NodeInfo) {
    if (!this.#meetsAffinity(node)) return unresolvable("node(s) didn't match pod affinity rules");
    if (this.#antiAffinity.some((counts) => counts.has(node)))
      return unschedulable("node(s) didn't match pod anti-affinity rules");
    for (const [key, values] of this.#repelling) {
      const value = ownMember(node.labels, key);
      if (value !== undefined && values.has(value))
        return unschedulable("node(s) didn't satisfy existing pods anti-affinity rules");
    }
    return undefined;
  }

  #meetsAffinity(node: NodeInfo): boolean {
    if (this.#affinity.length === 0) return true;
    if (!this.#affinity.every(({ term }) => Object.hasOwn(node.labels, term.topologyKey))) return false;
    if (this.#affinity.every((counts) => counts.has(node))) return true;
    // The first of a group of pods with affinity to each other may run anywhere.
    return this.#matchesItself && this.#affinity.every((counts) => counts.isEmpty);
  }

  /**
   * Adds or removes another pod in the counts of its node. A pod must match all affinity terms to count for any of them.
   * Anti-affinity terms count separately.
   */
  #countMatching(other: PodInfo, node: NodeInfo, by: 1 | -1): void {
    if (this.#affinity.length > 0 && this.#affinity.every(({ term }) => term.selects(other, this.#cluster))) {
      for (const counts of this.#affinity) counts.change(node, by);
    }
    for (const counts of this.#antiAffinity) {
      if (counts.term.selects(other, this.#cluster)) counts.change(node, by);
    }
  }

  #countRepelling(other: PodInfo, node: NodeInfo, by: 1 | -1): void {
    for (const term of other.requiredAntiAffinity) {
      const value = ownMember(node.labels, term.topologyKey);
      if (value === undefined || !term.selects(this.#pod, this.#cluster)) continue;
      const values = this.#repelling.get(term.topologyKey) ?? new Map<string, number>();
      this.#repelling.set(term.topologyKey, values);
      const count = (values.get(value) ?? 0) + by;
      if (count === 0) values.delete(value);
      else values.set(value, count);
    }
  }
}
