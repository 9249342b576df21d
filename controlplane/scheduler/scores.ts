/**
 * Scores the nodes that passed the filters. Each score is 0 to 100, and they are weighted and added. The best node wins, and
 * ties are broken at random.
 */
import { initAndMainContainers } from '../../api/kinds/pod-containers.ts';
import type { TimeSlice } from '../../api/machinery/time-slice.ts';
import type { Cluster } from './cluster-state.ts';
import type { NodeInfo } from './node-info.ts';
import { matchesTerm, tolerates } from '../../api/kinds/node-selection.ts';
import { ownMember } from '../../api/meta/own-member.ts';
import type { PodInfo } from './pod-info.ts';
import type { ScorePlugin } from './plugin.ts';
import { spreadsOf } from './filters/topology-spread.ts';
import { ZONE_LABEL } from '../../api/meta/well-known-labels.ts';

/** The highest score of a node, as in kube-scheduler (`MaxNodeScore`). */
const MAX = 100;
const BALANCED = ['cpu', 'memory'] as const;

async function scoreEach<T>(
  nodes: readonly NodeInfo[],
  slice: TimeSlice,
  score: (node: NodeInfo) => T,
): Promise<readonly T[]> {
  const scores: T[] = [];
  for (const node of nodes) {
    scores.push(score(node));
    if (slice.isSpent) await slice.pause();
  }
  return scores;
}

/** Scales the scores so that the highest becomes 100. All stay 0 if the highest is 0. */
function normalized(scores: readonly number[]): number[] {
  const highest = Math.max(0, ...scores);
  return scores.map((score) => (highest === 0 ? 0 : Math.floor((score * MAX) / highest)));
}

function usedShare(pod: PodInfo, node: NodeInfo, resource: string): number {
  const allocatable = node.allocatable.get(resource) ?? 0;
  if (allocatable === 0) return 1;
  const used = (node.requestedForScoring.get(resource) ?? 0) + (pod.requests.forScoring.get(resource) ?? 0);
  return Math.min(1, used / allocatable);
}

const leastAllocated: ScorePlugin = {
  name: 'NodeResourcesFit',
  weight: 1,
  score: (pod, nodes) =>
    nodes.map((node) => {
      const free = BALANCED.map((resource) => Math.floor((1 - usedShare(pod, node, resource)) * MAX));
      return Math.floor(free.reduce((sum, one) => sum + one, 0) / free.length);
    }),
};

const balancedAllocation: ScorePlugin = {
  name: 'NodeResourcesBalancedAllocation',
  weight: 1,
  score: (pod, nodes) =>
    nodes.map((node) => {
      const [cpu = 0, memory = 0] = BALANCED.map((resource) => usedShare(pod, node, resource));
      return Math.floor((1 - Math.abs(cpu - memory) / 2) * MAX);
    }),
};

const MIB = 1024 * 1024;
/**
 * The sizes of all images together below and above which the score does not change, as in kube-scheduler. The upper one is
 * multiplied by the number of containers, without image volumes.
 */
const MIN_IMAGE = 23 * MIB;
const MAX_IMAGE = 1000 * MIB;

const imageLocality: ScorePlugin = {
  name: 'ImageLocality',
  weight: 1,
  async score(pod, nodes, { cluster, slice }) {
    const containers = initAndMainContainers(pod.pod.spec);
    const volumes = (pod.pod.spec?.volumes ?? []).flatMap(({ image }) => image ?? []);
    const names = [
      ...containers.map(({ image = '' }) => withTag(image)),
      ...volumes.map(({ reference = '' }) => withTag(reference)),
    ];
    const share = new Map<string, number>();
    for (const name of names) {
      if (share.has(name)) continue;
      share.set(name, cluster.nodes.filter((node) => node.images.has(name)).length / cluster.nodes.length);
      if (slice.isSpent) await slice.pause();
    }
    return await scoreEach(nodes, slice, (node) => {
      let bytes = 0;
      // An image on few nodes counts less, because all pods would otherwise gather on those nodes.
      for (const name of names) bytes += (node.images.get(name) ?? 0) * (share.get(name) ?? 0);
      const maxBytes = MAX_IMAGE * Math.max(1, containers.length);
      return Math.floor((MAX * (Math.min(Math.max(bytes, MIN_IMAGE), maxBytes) - MIN_IMAGE)) / (maxBytes - MIN_IMAGE));
    });
  },
};

function withTag(image: string): string {
  return image.lastIndexOf(':') <= image.lastIndexOf('/') ? `${image}:latest` : image;
}

const taintToleration: ScorePlugin = {
  name: 'TaintToleration',
  weight: 3,
  async score(pod, nodes, { slice }) {
    const tolerations = (pod.pod.spec?.tolerations ?? []).filter(
      ({ effect = '' }) => effect === '' || effect === 'PreferNoSchedule',
    );
    const counts = await scoreEach(
      nodes,
      slice,
      (node) =>
        node.taints.filter(
          (taint) => taint.effect === 'PreferNoSchedule' && !tolerations.some((one) => tolerates(one, taint)),
        ).length,
    );
    return normalized(counts).map((score) => MAX - score);
  },
};

const nodeAffinity: ScorePlugin = {
  name: 'NodeAffinity',
  weight: 2,
  async score(pod, nodes, { slice }) {
    const terms = pod.pod.spec?.affinity?.nodeAffinity?.preferredDuringSchedulingIgnoredDuringExecution ?? [];
    if (terms.length === 0) return undefined;
    return normalized(
      await scoreEach(nodes, slice, (node) =>
        terms.reduce((sum, { weight, preference }) => sum + (matchesTerm(preference, node) ? weight : 0), 0),
      ),
    );
  },
};

const podTopologySpread: ScorePlugin = {
  name: 'PodTopologySpread',
  weight: 2,
  async score(pod, nodes, context) {
    const spreads = await spreadsOf(pod, context, 'ScheduleAnyway');
    if (spreads.length === 0) return spreadOfOwner(pod, nodes, context.cluster);
    const raw = await scoreEach(nodes, context.slice, (node) => {
      let score = 0;
      for (const { constraint, counts } of spreads) {
        const value = ownMember(node.labels, constraint.topologyKey);
        if (value === undefined) return undefined;
        score += (counts.get(value) ?? 0) * Math.log(counts.size + 2) + constraint.maxSkew - 1;
      }
      return score;
    });
    return fewestFirst(raw);
  },
};

/**
 * Returns the scores of the nodes by the default spreading, which separates the pods of one owner by host and by zone. Returns
 * `undefined` for a pod without an owner.
 */
function spreadOfOwner(pod: PodInfo, nodes: readonly NodeInfo[], cluster: Cluster): readonly number[] | undefined {
  const { controller } = pod;
  if (controller === undefined) return undefined;
  const zoneOf = (node: NodeInfo): string => node.labels[ZONE_LABEL] ?? '';
  const inZone = new Map<string, number>();
  for (const node of cluster.nodes) {
    const count = node.podsOfController.get(controller) ?? 0;
    if (count > 0) inZone.set(zoneOf(node), (inZone.get(zoneOf(node)) ?? 0) + count);
  }
  return fewestFirst(
    nodes.map((node) => (node.podsOfController.get(controller) ?? 0) * 2 + (inZone.get(zoneOf(node)) ?? 0)),
  );
}

/** Converts numbers of pods to scores: the fewer pods, the higher the score. A node without a number gets 0. */
function fewestFirst(raw: readonly (number | undefined)[]): number[] {
  const defined = raw.filter((score) => score !== undefined);
  const highest = Math.max(0, ...defined);
  const lowest = defined.length === 0 ? 0 : Math.min(...defined);
  return raw.map((score) => {
    if (score === undefined) return 0;
    return highest === 0 ? MAX : Math.floor((MAX * (highest + lowest - score)) / highest);
  });
}

const interPodAffinity: ScorePlugin = {
  name: 'InterPodAffinity',
  weight: 2,
  async score(pod, nodes, { cluster, slice }) {
    /** The points by topology key and then by topology value. */
    const points = new Map<string, Map<string, number>>();
    const addPoints = (key: string, node: NodeInfo, weight: number): void => {
      const value = ownMember(node.labels, key);
      if (value === undefined) return;
      const values = points.get(key) ?? new Map<string, number>();
      points.set(key, values);
      values.set(value, (values.get(value) ?? 0) + weight);
    };
    for (const node of cluster.nodes) {
      if (pod.preferences.length > 0) {
        for (const other of node.pods.values()) {
          for (const { term, weight } of pod.preferences)
            if (term.selects(other, cluster)) addPoints(term.topologyKey, node, weight);
          if (slice.isSpent) await slice.pause();
        }
      }
      for (const other of node.attracting.values()) {
        for (const { term, weight } of other.attractions)
          if (term.selects(pod, cluster)) addPoints(term.topologyKey, node, weight);
        if (slice.isSpent) await slice.pause();
      }
    }
    if (points.size === 0) return undefined;
    const raw = await scoreEach(nodes, slice, (node) => {
      let sum = 0;
      for (const [key, values] of points) {
        const value = ownMember(node.labels, key);
        if (value !== undefined) sum += values.get(value) ?? 0;
      }
      return sum;
    });
    const [lowest, highest] = [Math.min(...raw), Math.max(...raw)];
    return raw.map((score) => (highest === lowest ? 0 : Math.floor((MAX * (score - lowest)) / (highest - lowest))));
  },
};

const plugins: readonly ScorePlugin[] = [
  taintToleration,
  nodeAffinity,
  leastAllocated,
  podTopologySpread,
  interPodAffinity,
  balancedAllocation,
  imageLocality,
];

/** What a choice between nodes reads. */
interface Choice {
  readonly cluster: Cluster;
  /** Returns a number from 0 to below 1. */
  readonly random: () => number;
  readonly slice: TimeSlice;
}

/** Returns the best of `nodes`, which must not be empty. */
export async function bestNode(
  pod: PodInfo,
  nodes: readonly NodeInfo[],
  { cluster, random, slice }: Choice,
): Promise<NodeInfo> {
  const totals = nodes.map(() => 0);
  if (nodes.length > 1) {
    for (const plugin of plugins) {
      const scores = (await plugin.score(pod, nodes, { cluster, slice })) ?? [];
      for (const [at, score] of scores.entries()) totals[at] = (totals[at] ?? 0) + score * plugin.weight;
      if (slice.isSpent) await slice.pause();
    }
  }
  const highest = Math.max(...totals);
  const best = nodes.filter((_, at) => totals[at] === highest);
  const chosen = best[Math.floor(random() * best.length)] ?? best[0];
  if (chosen === undefined) throw new RangeError('there is no node to choose from');
  return chosen;
}
