/**
 * Chooses devices by their NUMA nodes: the hints of a resource for the topology manager, and the devices that an allocation
 * takes. It holds no state and follows the rules of the kubelet's device manager.
 */
import { countNodes, hasNode, maskOf, type NumaMask, numaMasks } from '../topology/numa-mask.ts';
import type { TopologyHint } from '../topologymanager/hints.ts';

/** The devices of one resource. */
export interface DeviceTopology {
  /** The NUMA nodes of the host. */
  readonly numaNodes: readonly number[];
  readonly ids: readonly string[];
  /** The plugin reports the NUMA nodes of its devices. */
  readonly hasTopology: boolean;
  /** Returns the NUMA nodes of a device; none if it belongs to no node. */
  nodesOf(id: string): readonly number[];
}

/**
 * Returns the sets of NUMA nodes whose available devices suffice for `count`. Every set contains a node of each reusable device
 * that has nodes. A set is preferred if it has as few nodes as would suffice if no device were in use.
 */
export function deviceHints(
  { numaNodes, ids, nodesOf }: DeviceTopology,
  {
    count,
    available,
    reusable,
  }: { readonly count: number; readonly available: ReadonlySet<string>; readonly reusable: ReadonlySet<string> },
): readonly TopologyHint[] {
  const isOn = (id: string, mask: NumaMask): boolean => (maskOf(nodesOf(id)) & mask) !== 0n;
  let fewest = numaNodes.length;
  const masks: NumaMask[] = [];
  for (const mask of numaMasks(numaNodes)) {
    if (ids.filter((id) => isOn(id, mask)).length >= count) fewest = Math.min(fewest, countNodes(mask));
    if ([...reusable].some((id) => nodesOf(id).length > 0 && !isOn(id, mask))) continue;
    const matching = [...available.union(reusable)].filter((id) => reusable.has(id) || isOn(id, mask));
    if (matching.length >= count) masks.push(mask);
  }
  return masks.map((affinity) => ({ affinity, preferred: countNodes(affinity) === fewest }));
}

/** The request to a plugin for the devices that it prefers. */
interface PreferenceRequest {
  readonly available: readonly string[];
  readonly mustInclude: readonly string[];
  readonly count: number;
}

interface Choice {
  /** The number of devices that the container requests. */
  readonly count: number;
  /** Devices that are healthy and not in use. They are enough to complete the choice. */
  readonly available: ReadonlySet<string>;
  readonly topology: DeviceTopology;
  /** The NUMA nodes that the topology manager chose; `undefined` means any. */
  readonly affinity: NumaMask | undefined;
  readonly preferred: (request: PreferenceRequest) => Promise<readonly string[]>;
}

/**
 * Returns `count` devices: the initial ones, then those on the chosen NUMA nodes, then others. Among equals it takes those
 * that the plugin prefers.
 */
export async function completeChoice(initial: ReadonlySet<string>, choice: Choice): Promise<readonly string[]> {
  const { count, available, preferred } = choice;
  const chosen = new Set(initial);
  const add = (ids: Iterable<string>): void => {
    for (const id of ids) if (chosen.size < count) chosen.add(id);
  };
  const addPreferred = async (of: ReadonlySet<string>): Promise<void> => {
    const ids = await preferred({ available: [...of.union(chosen)], mustInclude: [...chosen], count });
    add(ids.filter((id) => of.has(id)));
  };
  const { aligned, unaligned, anywhere } = groupByAffinity(choice);
  if (count - chosen.size < aligned.size) {
    await addPreferred(aligned);
    add(aligned);
    return [...chosen];
  }
  add(aligned);
  if (chosen.size === count) return [...chosen];
  await addPreferred(available);
  add(unaligned);
  add(anywhere);
  return [...chosen];
}

/** Devices on the chosen NUMA nodes, devices on other nodes, and devices of no node. */
interface AffinityGroups {
  readonly aligned: ReadonlySet<string>;
  readonly unaligned: ReadonlySet<string>;
  readonly anywhere: ReadonlySet<string>;
}

function groupByAffinity({ available, topology, affinity }: Choice): AffinityGroups {
  if (affinity === undefined || !topology.hasTopology)
    return { aligned: new Set(), unaligned: new Set(), anywhere: available };
  const groups = { aligned: new Set<string>(), unaligned: new Set<string>(), anywhere: new Set<string>() };
  for (const id of available) {
    const nodes = topology.nodesOf(id);
    if (nodes.length === 0) groups.anywhere.add(id);
    else groups[nodes.some((node) => hasNode(affinity, node)) ? 'aligned' : 'unaligned'].add(id);
  }
  return groups;
}
