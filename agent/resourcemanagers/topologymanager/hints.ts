/**
 * Topology hints and how they merge: each provider says for each resource from which sets of NUMA nodes it could give what a
 * container asks; of every choice of one hint a resource the common nodes are taken, and the best of those wins. Pure.
 */
import { countNodes, isNarrower, maskOf, nodesOf, type NumaMask } from '../topology/numa-mask.ts';
import type { NumaNode } from '../topology/host-topology.ts';

export interface TopologyHint {
  /** `undefined`: any node will do. */
  readonly affinity: NumaMask | undefined;
  readonly preferred: boolean;
}

/**
 * One provider's hints by resource. An empty object, or `undefined` of a resource: no preference. An empty list: the resource
 * cannot be given from any nodes.
 */
export type ProviderHints = Readonly<Record<string, readonly TopologyHint[] | undefined>>;

const TOPOLOGY_POLICIES = ['none', 'best-effort', 'restricted', 'single-numa-node'] as const;
export type TopologyPolicy = (typeof TOPOLOGY_POLICIES)[number];

export interface MergeOptions {
  readonly policy: Exclude<TopologyPolicy, 'none'>;
  readonly numaNodes: readonly NumaNode[];
  /** `prefer-closest-numa-nodes`. */
  readonly preferClosest: boolean;
}

/** The hint to allocate by, and whether the policy lets the container in with it. */
export function mergeHints(
  providers: readonly ProviderHints[],
  options: MergeOptions,
): { readonly hint: TopologyHint; readonly admitted: boolean } {
  const all = maskOf(options.numaNodes.map(({ id }) => id));
  let lists = hintLists(providers);
  if (options.policy === 'single-numa-node') lists = lists.map((hints) => hints.filter(isSingleNode));
  const mostNeeded = largestSmallestCount(lists);
  let best: TopologyHint | undefined;
  for (const choice of choices(lists)) {
    const merged = mergeChoice(all, choice);
    best = better(best, merged, mostNeeded, options);
  }
  let hint = best ?? { affinity: all, preferred: false };
  if (options.policy === 'single-numa-node' && hint.affinity === all) hint = { ...hint, affinity: undefined };
  return { hint, admitted: options.policy === 'best-effort' || hint.preferred };
}

/** One list a resource and provider; who does not care has one hint for any node. */
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

/** The nodes that the neediest resource takes at least. */
function largestSmallestCount(lists: readonly (readonly TopologyHint[])[]): number {
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
  for (const hint of list) for (const rest of choices(lists, at + 1)) yield [hint, ...rest];
}

/** Preferred only where all are, and all mean the same nodes. */
function mergeChoice(all: NumaMask, choice: readonly TopologyHint[]): { affinity: NumaMask; preferred: boolean } {
  const given = choice.flatMap(({ affinity }) => (affinity === undefined ? [] : [affinity]));
  return {
    affinity: given.reduce((mask, affinity) => mask & affinity, all),
    preferred: choice.every(({ preferred }) => preferred) && given.every((affinity) => affinity === given[0]),
  };
}

function better(
  current: TopologyHint | undefined,
  candidate: { readonly affinity: NumaMask; readonly preferred: boolean },
  mostNeeded: number,
  options: MergeOptions,
): TopologyHint | undefined {
  if (candidate.affinity === 0n) return current;
  if (current?.affinity === undefined) return candidate;
  if (current.preferred !== candidate.preferred) return current.preferred ? current : candidate;
  const known = current.affinity;
  const closer = (): TopologyHint => (isBetterMask(candidate.affinity, known, options) ? candidate : current);
  if (current.preferred) return closer();
  // None of both is preferred: as near as can be to what the neediest resource takes, so that it is not torn apart further.
  const [has, would] = [countNodes(known), countNodes(candidate.affinity)];
  if (has > mostNeeded) return closer();
  if (has === mostNeeded) return would === mostNeeded ? closer() : current;
  if (would > mostNeeded || would < has) return current;
  return would > has ? candidate : closer();
}

function isBetterMask(mask: NumaMask, than: NumaMask, { policy, preferClosest, numaNodes }: MergeOptions): boolean {
  if (mask === than) return false;
  if (!preferClosest || policy === 'single-numa-node' || countNodes(mask) !== countNodes(than))
    return isNarrower(mask, than);
  const [distance, other] = [averageDistance(mask, numaNodes), averageDistance(than, numaNodes)];
  return distance === other ? isNarrower(mask, than) : distance < other;
}

/** Between all pairs of the nodes, each with itself included. */
function averageDistance(mask: NumaMask, numaNodes: readonly NumaNode[]): number {
  const nodes = nodesOf(mask);
  let sum = 0;
  for (const from of nodes) {
    const distances = numaNodes.find(({ id }) => id === from)?.distances;
    for (const to of nodes) sum += distances?.get(to) ?? 0;
  }
  return nodes.length === 0 ? 0 : sum / nodes.length ** 2;
}
