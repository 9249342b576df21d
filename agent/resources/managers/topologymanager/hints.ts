/**
 * Defines topology hints and merges them. The merge intersects the nodes of every combination of one hint per resource, and
 * selects the best result. Pure.
 */
import { countNodes, isNarrower, maskOf, nodesOf, type NumaMask } from '../topology/numa-mask.ts';
import type { NumaNode } from '../topology/host-topology.ts';

/** NUMA nodes that can serve a request, and whether they are as few as possible. */
export interface TopologyHint {
  /** `undefined` means any node. */
  readonly affinity: NumaMask | undefined;
  readonly preferred: boolean;
}

/**
 * One provider's hints by resource. An empty object, or `undefined` for a resource, means no preference. An empty list
 * means that no set of nodes can provide the resource.
 */
export type ProviderHints = Readonly<Record<string, readonly TopologyHint[] | undefined>>;

const TOPOLOGY_POLICIES = ['none', 'best-effort', 'restricted', 'single-numa-node'] as const;
/** The value of `--topology-manager-policy`. */
export type TopologyPolicy = (typeof TOPOLOGY_POLICIES)[number];

/** The policy and the NUMA nodes of the host. */
export interface MergeOptions {
  readonly policy: Exclude<TopologyPolicy, 'none'>;
  readonly numaNodes: readonly NumaNode[];
  /** The option `prefer-closest-numa-nodes`. */
  readonly preferClosest: boolean;
}

/** Returns the hint to allocate by, and whether the policy admits the container with it. */
export function mergeHints(
  providers: readonly ProviderHints[],
  options: MergeOptions,
): { readonly hint: TopologyHint; readonly admitted: boolean } {
  const all = maskOf(options.numaNodes.map(({ id }) => id));
  let lists = hintLists(providers);
  if (options.policy === 'single-numa-node') lists = lists.map((hints) => hints.filter(isSingleNode));
  const nodesNeeded = mostNodesNeeded(lists);
  let best: TopologyHint | undefined;
  for (const choice of choices(lists)) {
    const merged = mergeChoice(all, choice);
    best = better(best, merged, nodesNeeded, options);
  }
  let hint = best ?? { affinity: all, preferred: false };
  if (options.policy === 'single-numa-node' && hint.affinity === all) hint = { ...hint, affinity: undefined };
  return { hint, admitted: options.policy === 'best-effort' || hint.preferred };
}

/**
 * Returns one list of hints for each resource and provider. A provider without preference has one hint for any node.
 */
function hintLists(providers: readonly ProviderHints[]): readonly (readonly TopologyHint[])[] {
  const anyNode = [{ affinity: undefined, preferred: true }];
  return providers.flatMap((provider) => {
    const resources = Object.values(provider);
    if (resources.length === 0) return [anyNode];
    return resources.map((hints) => {
      if (hints === undefined) return anyNode;
      return hints.length === 0 ? [{ affinity: undefined, preferred: false }] : hints;
    });
  });
}

function isSingleNode({ affinity, preferred }: TopologyHint): boolean {
  return preferred && (affinity === undefined || countNodes(affinity) === 1);
}

/**
 * Returns how many nodes the most demanding resource needs at least. As in the kubelet, a resource without preference counts as
 * more demanding than any other.
 */
function mostNodesNeeded(lists: readonly (readonly TopologyHint[])[]): number {
  return Math.max(
    0,
    ...lists.map((hints) =>
      Math.min(
        Number.MAX_SAFE_INTEGER,
        ...hints.flatMap(({ affinity }) => (affinity === undefined ? [] : [countNodes(affinity)])),
      ),
    ),
  );
}

function* choices(lists: readonly (readonly TopologyHint[])[], at = 0): Generator<readonly TopologyHint[]> {
  const list = lists[at];
  if (list === undefined) {
    yield [];
    return;
  }
  for (const hint of list) for (const others of choices(lists, at + 1)) yield [hint, ...others];
}

/**
 * Intersects the hints of one combination. The result is preferred only if all hints are preferred, and all that name nodes
 * name the same ones.
 */
function mergeChoice(all: NumaMask, choice: readonly TopologyHint[]): { affinity: NumaMask; preferred: boolean } {
  const affinities = choice.flatMap(({ affinity }) => (affinity === undefined ? [] : [affinity]));
  return {
    affinity: affinities.reduce((mask, affinity) => mask & affinity, all),
    preferred: choice.every(({ preferred }) => preferred) && affinities.every((affinity) => affinity === affinities[0]),
  };
}

/** Returns the better of the best hint so far and a candidate. A candidate without nodes is not a hint. */
function better(
  current: TopologyHint | undefined,
  candidate: { readonly affinity: NumaMask; readonly preferred: boolean },
  nodesNeeded: number,
  options: MergeOptions,
): TopologyHint | undefined {
  if (candidate.affinity === 0n) return current;
  if (current?.affinity === undefined) return candidate;
  if (current.preferred !== candidate.preferred) return current.preferred ? current : candidate;
  const currentMask = current.affinity;
  const closer = (): TopologyHint => (isBetterMask(candidate.affinity, currentMask, options) ? candidate : current);
  if (current.preferred) return closer();
  // Neither hint is preferred. The one whose size is closest to what the largest request needs wins, so that the
  // resources are spread over no more nodes than necessary.
  const [currentCount, candidateCount] = [countNodes(currentMask), countNodes(candidate.affinity)];
  if (currentCount > nodesNeeded) return closer();
  if (currentCount === nodesNeeded) return candidateCount === nodesNeeded ? closer() : current;
  if (candidateCount > nodesNeeded || candidateCount < currentCount) return current;
  return candidateCount > currentCount ? candidate : closer();
}

function isBetterMask(mask: NumaMask, than: NumaMask, { policy, preferClosest, numaNodes }: MergeOptions): boolean {
  if (mask === than) return false;
  if (!preferClosest || policy === 'single-numa-node' || countNodes(mask) !== countNodes(than))
    return isNarrower(mask, than);
  const [distance, other] = [averageDistance(mask, numaNodes), averageDistance(than, numaNodes)];
  return distance === other ? isNarrower(mask, than) : distance < other;
}

/** Returns the average distance between all pairs of nodes, including each node and itself. */
function averageDistance(mask: NumaMask, numaNodes: readonly NumaNode[]): number {
  const nodes = nodesOf(mask);
  let sum = 0;
  for (const from of nodes) {
    const distances = numaNodes.find(({ id }) => id === from)?.distances;
    for (const to of nodes) sum += distances?.get(to) ?? 0;
  }
  return nodes.length === 0 ? 0 : sum / nodes.length ** 2;
}
