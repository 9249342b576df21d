/**
 * Chooses CPUs for a container from the free ones: in whole groups such as NUMA nodes and cores if possible, so that most
 * cores stay whole for other containers, or distributed evenly over NUMA nodes. Pure.
 */
import type { CpuSet } from '../cpu-set.ts';
import type { CpuInfo, CpuTopology } from '../topology/host-topology.ts';
import { combinations } from '../topology/numa-mask.ts';

interface TakeOptions {
  /** The option `distribute-cpus-across-cores`: takes CPUs in the order of their ids, and not core by core. */
  readonly spread: boolean;
  /** The option `prefer-align-cpus-by-uncorecache`. */
  readonly alignByUncoreCache: boolean;
}

interface DistributeOptions extends TakeOptions {
  /** The number of CPUs that stay together: those of a core with `full-pcpus-only`, otherwise 1. */
  readonly groupSize: number;
}

/** Fewer CPUs are free than requested. */
class CpuAllocationError extends Error {
  override readonly name = 'CpuAllocationError';
}

type Group = Exclude<keyof CpuInfo, 'cpu'>;
type Level = 'numaNode' | 'socket';

class Accumulator {
  readonly result = new Set<number>();
  needed: number;
  free: CpuSet;
  readonly #topology: CpuTopology;
  /** NUMA nodes and sockets, first the one that contains the other. */
  readonly #levels: readonly [outer: Level, inner: Level];

  constructor(topology: CpuTopology, available: CpuSet, count: number) {
    this.#topology = topology;
    this.free = available.intersection(topology.all);
    this.needed = count;
    this.#levels =
      topology.sockets.length >= topology.numaNodes.length ? ['numaNode', 'socket'] : ['socket', 'numaNode'];
  }

  get satisfied(): boolean {
    return this.needed < 1;
  }

  take(cpus: CpuSet): void {
    for (const cpu of cpus) this.result.add(cpu);
    this.free = this.free.difference(cpus);
    this.needed -= cpus.size;
  }

  /** Returns the groups that have free CPUs, sorted by the number of free CPUs and then by id. */
  #sorted(key: Group, within: CpuSet = this.free): number[] {
    const sizes = new Map(
      this.#topology.groups(key, within).map((id) => [id, this.#topology.cpusIn(key, [id], this.free).size]),
    );
    return [...sizes].sort(([a, left], [b, right]) => left - right || a - b).map(([id]) => id);
  }

  /**
   * Returns the groups that have free CPUs, in the order of their outer groups. At each level, the fewest free CPUs come first.
   */
  ordered(key: Group): number[] {
    const [outer, inner] = this.#levels;
    if (key === outer) return this.#sorted(outer);
    const parents = key === inner ? outer : key === 'uncoreCache' ? 'numaNode' : inner;
    return this.ordered(parents).flatMap((id) => this.#sorted(key, this.#topology.cpusIn(parents, [id], this.free)));
  }

  /** Takes whole groups as long as the request needs that many CPUs. */
  takeFull(key: Group): void {
    const whole = this.ordered(key).filter((id) => this.#isFree(key, id));
    for (const id of whole) {
      const cpus = this.#topology.cpusIn(key, [id]);
      if (this.needed >= cpus.size) this.take(cpus);
    }
  }

  #isFree(key: Group, id: number): boolean {
    return this.#topology.cpusIn(key, [id]).isSubsetOf(this.free);
  }

  takeLevels(): void {
    for (const level of this.#levels) {
      this.takeFull(level);
      if (this.satisfied) return;
    }
  }

  /** Takes whole uncore caches, and then the rest of the request from free cores of one cache that has enough of them. */
  takeUncoreCaches(): void {
    const { cpusPerUncoreCache, cpusPerCore } = this.#topology;
    for (const cache of this.ordered('uncoreCache')) {
      if (this.needed >= cpusPerUncoreCache) this.takeFull('uncoreCache');
      if (this.satisfied) return;
      const inCache = this.#topology.cpusIn('uncoreCache', [cache], this.free);
      const cores = this.#topology
        .groups('core', inCache)
        .filter((core) => this.#isFree('core', core))
        .slice(0, Math.ceil(this.needed / cpusPerCore));
      const cpus = this.#topology.cpusIn('core', cores, this.free);
      if (cpus.size === this.needed) this.take(cpus);
      if (this.satisfied) return;
    }
  }

  takeRemaining({ spread }: { readonly spread: boolean }): void {
    const groups = spread ? ('socket' as const) : ('core' as const);
    const order = this.ordered(groups).flatMap((id) =>
      [...this.#topology.cpusIn(groups, [id], this.free)].sort((left, right) => left - right),
    );
    for (const cpu of order) {
      if (this.satisfied) return;
      this.take(new Set([cpu]));
    }
  }
}

/** Fills NUMA nodes one after the other. Throws `CpuAllocationError`. */
export function takePacked(topology: CpuTopology, available: CpuSet, count: number, options: TakeOptions): CpuSet {
  const acc = new Accumulator(topology, available, count);
  if (acc.satisfied) return acc.result;
  if (acc.needed > acc.free.size) throw notEnough(count, available);
  acc.takeLevels();
  if (!acc.satisfied && options.alignByUncoreCache) acc.takeUncoreCaches();
  if (!acc.satisfied && !options.spread) acc.takeFull('core');
  if (!acc.satisfied) acc.takeRemaining(options);
  if (!acc.satisfied) throw new CpuAllocationError('failed to allocate cpus');
  return acc.result;
}

const notEnough = (count: number, available: CpuSet): CpuAllocationError =>
  new CpuAllocationError(
    `not enough cpus available to satisfy request: requested=${count}, available=${available.size}`,
  );

interface Distribution {
  readonly nodes: readonly number[];
  /** The nodes that provide more groups than the others. */
  readonly remainder: readonly number[];
  readonly balance: number;
}

/**
 * Takes the CPUs in whole groups and evenly from the fewest NUMA nodes that can provide them, else as `takePacked` without
 * alignment to caches. Throws `CpuAllocationError`.
 */
export function takeDistributed(
  topology: CpuTopology,
  available: CpuSet,
  count: number,
  { groupSize, ...options }: DistributeOptions,
): CpuSet {
  const packed = { ...options, alignByUncoreCache: false };
  if (count % groupSize !== 0) return takePacked(topology, available, count, packed);
  const acc = new Accumulator(topology, available, count);
  if (acc.satisfied) return acc.result;
  if (acc.needed > acc.free.size) throw notEnough(count, available);
  const nodes = acc.ordered('numaNode');
  const freeOn = (node: number): number => topology.cpusIn('numaNode', [node], acc.free).size;
  const groupsPerNode = Math.ceil(Math.ceil(topology.all.size / groupSize) / topology.numaNodes.length);
  const groupsNeeded = Math.ceil(count / groupSize);
  const maxNodes = Math.min(groupsNeeded, nodes.length);
  for (let size = Math.ceil(groupsNeeded / groupsPerNode); size <= maxNodes; size++) {
    const share = Math.floor(count / size / groupSize) * groupSize;
    const best = bestDistribution(nodes, size, { count, share, groupSize, freeOn });
    if (best === undefined) continue;
    const takeFrom = (node: number, cpus: number): void =>
      acc.take(takePacked(topology, topology.cpusIn('numaNode', [node], acc.free), cpus, packed));
    for (const node of best.nodes) takeFrom(node, share);
    for (let left = count - share * size; left > 0;) {
      for (const node of best.remainder) {
        if (left === 0) break;
        if (freeOn(node) < groupSize) continue;
        takeFrom(node, groupSize);
        left -= groupSize;
      }
    }
    return acc.result;
  }
  return takePacked(topology, available, count, packed);
}

/** Which CPUs to distribute over the NUMA nodes. */
interface DistributionRequest {
  /** The number of CPUs in total. */
  readonly count: number;
  /** The number of CPUs that every node provides. */
  readonly share: number;
  /** CPUs are taken in groups of this size. */
  readonly groupSize: number;
  /** Returns the number of free CPUs of a node. */
  readonly freeOn: (node: number) => number;
}

/** Returns the set of `size` nodes that leaves the free CPUs most evenly distributed, or `undefined` if no set has enough. */
function bestDistribution(
  nodes: readonly number[],
  size: number,
  request: DistributionRequest,
): Distribution | undefined {
  const { count, share, groupSize, freeOn } = request;
  let best: Distribution | undefined;
  for (const combo of combinations(nodes, size)) {
    if (best?.balance === 0) break;
    const groups = combo.reduce((sum, node) => sum + Math.floor(freeOn(node) / groupSize), 0);
    if (groups * groupSize < count || combo.some((node) => freeOn(node) < share)) continue;
    const left = new Map(nodes.map((node) => [node, freeOn(node) - (combo.includes(node) ? share : 0)]));
    const found = bestRemainder(combo, left, count - share * size, groupSize);
    if (found !== undefined && found.balance < (best?.balance ?? Infinity)) best = { nodes: combo, ...found };
  }
  return best;
}

/**
 * Finds the nodes that provide the remainder so that the free CPUs of all nodes are balanced best. Returns `undefined` if
 * no nodes suffice.
 */
function bestRemainder(
  combo: readonly number[],
  left: ReadonlyMap<number, number>,
  remainder: number,
  groupSize: number,
): Omit<Distribution, 'nodes'> | undefined {
  if (remainder === 0) return { remainder: [], balance: standardDeviation([...left.values()]) };
  let best: Omit<Distribution, 'nodes'> | undefined;
  const candidates = combo.filter((node) => (left.get(node) ?? 0) >= groupSize);
  for (let size = candidates.length; size >= 1; size--) {
    for (const subset of combinations(candidates, size)) {
      const after = new Map(left);
      let missing = remainder;
      const room = subset.reduce((sum, node) => sum + Math.floor((after.get(node) ?? 0) / groupSize) * groupSize, 0);
      if (room < missing) continue;
      while (missing > 0) {
        for (const node of subset) {
          const free = after.get(node) ?? 0;
          if (missing === 0 || free < groupSize) continue;
          after.set(node, free - groupSize);
          missing -= groupSize;
        }
      }
      const balance = standardDeviation([...after.values()]);
      if (balance < (best?.balance ?? Infinity)) best = { remainder: subset, balance };
    }
  }
  return best;
}

function standardDeviation(values: readonly number[]): number {
  if (values.length === 0) return 0;
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length;
  // Rounds to three decimals, so that smaller differences count as equal.
  return Math.round(Math.sqrt(variance) * 1000) / 1000;
}
