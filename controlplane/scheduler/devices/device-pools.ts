/**
 * Groups the devices of ResourceSlices by the nodes that can use them. A pool is usable once all slices of its newest
 * generation exist, as GatherPools of kube-scheduler decides it: for each node by the slices that concern it.
 */
import { matchesNodeSelector, type NodeSelector, type SelectableNode } from '../../../api/kinds/node-selection.ts';
import type { ResourceSlice } from '../../../api/kinds/kinds.ts';
import { deviceKey } from '../../../api/kinds/device-claims.ts';
import type { DevicesInUse } from './allocated-devices.ts';
import { addQuantities, parseQuantity, type Quantity } from '../../../api/meta/quantity.ts';

type SliceSpec = NonNullable<ResourceSlice['spec']>;
/** A device as its driver publishes it. */
export type Device = NonNullable<SliceSpec['devices']>[number];

/** A device that the node can use. */
export interface PooledDevice {
  readonly driver: string;
  readonly pool: string;
  readonly device: Device;
  /** The nodes that can use the allocated device; `undefined` if every node can. */
  readonly nodes: { readonly name: string } | { readonly selector: NodeSelector } | undefined;
}

/** The devices of one pool that one node can use. */
export interface DevicePool {
  readonly driver: string;
  readonly name: string;
  /** Whether slices of its newest generation are missing. */
  readonly isIncomplete: boolean;
  readonly devices: readonly PooledDevice[];
  /** The remaining counters of each set, which the partitions of one device share. */
  readonly counters: ReadonlyMap<string, ReadonlyMap<string, Quantity>>;
}

/** A slice, and where its devices can be used. */
interface PublishedSlice {
  readonly spec: SliceSpec;
  /** The devices of single nodes, by the name of the node. */
  readonly local: ReadonlyMap<string, readonly PooledDevice[]>;
  /** The devices that several nodes can use. */
  readonly shared: readonly PooledDevice[];
}

/** The slices of one generation of a pool. */
interface Generation {
  readonly specs: SliceSpec[];
  hasCounters: boolean;
}

/** All slices with the name of a pool, of any generation. */
interface PublishedPool {
  /** The slices of single nodes. A node can publish only such slices, so it changes no complete pool of another node. */
  readonly ofNode: Map<string, PublishedSlice[]>;
  readonly ofSeveral: PublishedSlice[];
  readonly generations: Map<number, Generation>;
  newest: number;
}

/** The pools of some slices, indexed by node, so that the devices of other nodes cost nothing. */
export class DevicePools {
  readonly #byNode = new Map<string, Set<PublishedPool>>();
  readonly #shared = new Set<PublishedPool>();

  constructor(slices: readonly ResourceSlice[]) {
    const pools = new Map<string, PublishedPool>();
    for (const { spec } of slices) {
      if (spec === undefined) continue;
      const key = `${spec.driver}/${spec.pool.name}`;
      const pool = pools.get(key) ?? { ofNode: new Map(), ofSeveral: [], generations: new Map(), newest: 0 };
      pools.set(key, pool);
      const slice = addSlice(pool, spec);
      for (const node of slice.local.keys()) {
        const ofNode = this.#byNode.get(node);
        if (ofNode === undefined) this.#byNode.set(node, new Set([pool]));
        else ofNode.add(pool);
      }
      if (slice.shared.length > 0) this.#shared.add(pool);
    }
  }

  /** Returns the pools with devices for the node. Allocated devices have consumed their counters. */
  for(node: SelectableNode, allocated: DevicesInUse): readonly DevicePool[] {
    const candidates = new Set([...(this.#byNode.get(node.name) ?? []), ...this.#shared]);
    return [...candidates].flatMap((pool) => poolOf(pool, node, allocated) ?? []);
  }
}

function addSlice(pool: PublishedPool, spec: SliceSpec): PublishedSlice {
  const slice = publishedBy(spec);
  const { nodeName = '', sharedCounters = [] } = spec;
  const ofNode = pool.ofNode.get(nodeName) ?? [];
  if (nodeName === '') pool.ofSeveral.push(slice);
  else {
    pool.ofNode.set(nodeName, ofNode);
    ofNode.push(slice);
  }
  const generation = pool.generations.get(spec.pool.generation) ?? { specs: [], hasCounters: false };
  pool.generations.set(spec.pool.generation, generation);
  generation.specs.push(spec);
  generation.hasCounters ||= sharedCounters.length > 0;
  pool.newest = Math.max(pool.newest, spec.pool.generation);
  return slice;
}

/** Returns the pool as the node sees it, or `undefined` if it has no devices for the node. */
function poolOf(pool: PublishedPool, node: SelectableNode, allocated: DevicesInUse): DevicePool | undefined {
  const concerned = pool.ofSeveral.filter((slice) => concerns(slice, node));
  const found = newestOf([...(pool.ofNode.get(node.name) ?? []), ...concerned]);
  const [first] = found;
  if (first === undefined) return undefined;
  const { driver, pool: named } = first.spec;
  const count = named.resourceSliceCount ?? 1;
  const isAll = found.length === count;
  if (!isAll && pool.newest > named.generation) return undefined;
  const devices = found.flatMap(({ local, shared }) => [
    ...(local.get(node.name) ?? []),
    ...shared.filter((device) => isUsable(device, node)),
  ]);
  if (devices.length === 0) return undefined;
  const { specs: all = [], hasCounters = false } = pool.generations.get(named.generation) ?? {};
  const counters = hasCounters
    ? remainingCounters(isAll ? found.map(({ spec }) => spec) : all, allocated)
    : new Map<string, Map<string, Quantity>>();
  return { driver, name: named.name, isIncomplete: !isAll && all.length !== count, devices, counters };
}

/**
 * Whether the slice matters for the node. A slice with shared counters matters for every node that can use a device of its
 * pool.
 */
const concerns = ({ spec, local, shared }: PublishedSlice, node: SelectableNode): boolean =>
  (spec.sharedCounters ?? []).length > 0 || local.has(node.name) || shared.some((device) => isUsable(device, node));

const isUsable = ({ nodes }: PooledDevice, node: SelectableNode): boolean =>
  nodes === undefined || !('selector' in nodes) || matchesNodeSelector(nodes.selector, node);

function newestOf(slices: readonly PublishedSlice[]): readonly PublishedSlice[] {
  const newest = slices.reduce((generation, { spec }) => Math.max(generation, spec.pool.generation), 0);
  return slices.filter(({ spec }) => spec.pool.generation === newest);
}

function publishedBy(spec: SliceSpec): PublishedSlice {
  const local = new Map<string, PooledDevice[]>();
  const shared: PooledDevice[] = [];
  const { driver, pool, devices = [], perDeviceNodeSelection } = spec;
  for (const device of devices) {
    const { nodeName = '', nodeSelector, allNodes } = perDeviceNodeSelection === true ? device : spec;
    const place = { driver, pool: pool.name, device };
    if (nodeName !== '') {
      const ofNode = local.get(nodeName) ?? [];
      local.set(nodeName, ofNode);
      ofNode.push({ ...place, nodes: { name: nodeName } });
    } else if (nodeSelector !== undefined) shared.push({ ...place, nodes: { selector: nodeSelector as NodeSelector } });
    else if (allNodes === true) shared.push({ ...place, nodes: undefined });
  }
  return { spec, local, shared };
}

function remainingCounters(
  members: readonly SliceSpec[],
  allocated: DevicesInUse,
): ReadonlyMap<string, ReadonlyMap<string, Quantity>> {
  const remaining = new Map<string, Map<string, Quantity>>();
  for (const { sharedCounters = [] } of members) {
    for (const { name, counters } of sharedCounters)
      remaining.set(
        name,
        new Map(Object.entries(counters).map(([counter, { value }]) => [counter, parseQuantity(value)])),
      );
  }
  if (remaining.size === 0) return remaining;
  for (const { driver, pool, devices = [], nodeName, perDeviceNodeSelection } of members) {
    for (const device of devices) {
      const node = perDeviceNodeSelection === true ? device.nodeName : nodeName;
      const key = deviceKey({ driver, pool: pool.name, device: device.name });
      if (allocated.isTaken(key, node) || allocated.consumed(key, node) !== undefined) consume(remaining, device, -1);
    }
  }
  return remaining;
}

/**
 * Adds what the device consumes to the counters (`by` 1), or subtracts it (`by` -1). Returns whether all counters exist and
 * none is overdrawn.
 */
export function consume(
  counters: ReadonlyMap<string, Map<string, Quantity>>,
  { consumesCounters = [] }: Device,
  by: 1 | -1,
): boolean {
  let suffices = true;
  for (const { counterSet, counters: consumed } of consumesCounters) {
    const set = counters.get(counterSet);
    for (const [name, { value }] of Object.entries(consumed)) {
      const before = set?.get(name);
      if (set === undefined || before === undefined) {
        suffices = false;
        continue;
      }
      const amount = parseQuantity(value);
      const after = addQuantities(before, by === 1 ? amount : { ...amount, nano: -amount.nano });
      set.set(name, after);
      suffices &&= after.nano >= 0n;
    }
  }
  return suffices;
}
