/** Sets of NUMA nodes as bit masks, and the order in which combinations of nodes are tried. Pure. */

/** A set of NUMA nodes: the bit with the number of the node id. */
export type NumaMask = bigint;

/** Returns the set of these node ids. */
export function maskOf(nodes: Iterable<number>): NumaMask {
  let mask = 0n;
  for (const node of nodes) mask |= 1n << BigInt(node);
  return mask;
}

/** Returns the node ids of the set, in ascending order. */
export function nodesOf(mask: NumaMask): number[] {
  const nodes: number[] = [];
  for (let remaining = mask, node = 0; remaining > 0n; remaining >>= 1n, node++)
    if ((remaining & 1n) === 1n) nodes.push(node);
  return nodes;
}

/** Returns the number of nodes in the set. */
export function countNodes(mask: NumaMask): number {
  return nodesOf(mask).length;
}

/** Whether the set has the node. */
export function hasNode(mask: NumaMask, node: number): boolean {
  return ((mask >> BigInt(node)) & 1n) === 1n;
}

/** Whether the mask has fewer nodes, or as many nodes with lower ids. */
export function isNarrower(mask: NumaMask, than: NumaMask): boolean {
  const [count, other] = [countNodes(mask), countNodes(than)];
  return count === other ? mask < than : count < other;
}

/** Yields every combination of `size` elements, in the order of the list. */
export function* combinations<T>(list: readonly T[], size: number, start = 0): Generator<readonly T[]> {
  if (size === 0) {
    yield [];
    return;
  }
  for (let at = start; at <= list.length - size; at++) {
    const first = list[at] as T;
    for (const others of combinations(list, size - 1, at + 1)) yield [first, ...others];
  }
}

/** Yields every non-empty set of the nodes: single nodes first, all nodes last. */
export function* numaMasks(nodes: readonly number[]): Generator<NumaMask> {
  for (let size = 1; size <= nodes.length; size++) for (const chosen of combinations(nodes, size)) yield maskOf(chosen);
}
