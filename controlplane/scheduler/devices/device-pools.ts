/**
 * Groups the devices of ResourceSlices by the nodes that can use them. A pool is usable once all slices of its newest
 * generation exist. Pure.
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
  /** The nodes that can use the allocated device. Absent if every node can. */
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

/** The slices of the newest generation of a pool, and where their devices can be used. */
interface Published {
  readonly members: readonly SliceSpec[];
  readonly isIncomplete: boolean;
  /** The devices of single nodes, by the name of the node. */
  readonly local: ReadonlyMap<string, readonly PooledDevice[]>;
  /** The devices that several nodes can use. */
  readonly shared: readonly PooledDevice[];
}

/** The pools of some slices, indexed by node, so that the devices of other nodes cost nothing. */
export class DevicePools {
  readonly #byNode = new Map<string, Published[]>();
  readonly #shared: Published[] = [];

  constructor(slices: readonly ResourceSlice[]) {
    for (const members of newestSlices(slices).values()) {
      const published = publishedBy(members);
      for (const node of published.local.keys()) {
        const known = this.#byNode.get(node);
        if (known === undefined) this.#byNode.set(node, [published]);
        else known.push(published);
      }
      if (published.shared.length > 0) this.#shared.push(published);
    }
  }

  /** Returns the pools with devices for the node. Allocated devices have consumed their counters. */
  for(node: SelectableNode, allocated: DevicesInUse): readonly DevicePool[] {
    const candidates = new Set([...(this.#byNode.get(node.name) ?? []), ...this.#shared]);
    return [...candidates].flatMap(({ members, isIncomplete, local, shared }) => {
      const [first] = members;
      const devices = [
        ...(local.get(node.name) ?? []),
        ...shared.filter(
          ({ nodes }) => nodes === undefined || !('selector' in nodes) || matchesNodeSelector(nodes.selector, node),
        ),
      ];
      if (first === undefined || devices.length === 0) return [];
      const { driver, pool } = first;
      return [{ driver, name: pool.name, isIncomplete, devices, counters: countersLeft(members, allocated) }];
    });
  }
}

function newestSlices(slices: readonly ResourceSlice[]): ReadonlyMap<string, readonly SliceSpec[]> {
  const pools = new Map<string, SliceSpec[]>();
  for (const { spec } of slices) {
    if (spec === undefined) continue;
    const key = `${spec.driver}/${spec.pool.name}`;
    const known = pools.get(key);
    const difference = spec.pool.generation - (known?.[0]?.pool.generation ?? -1);
    if (known === undefined || difference > 0) pools.set(key, [spec]);
    else if (difference === 0) known.push(spec);
  }
  return pools;
}

function publishedBy(members: readonly SliceSpec[]): Published {
  const local = new Map<string, PooledDevice[]>();
  const shared: PooledDevice[] = [];
  for (const spec of members) {
    const { driver, pool, devices = [], perDeviceNodeSelection } = spec;
    for (const device of devices) {
      const { nodeName = '', nodeSelector, allNodes } = perDeviceNodeSelection === true ? device : spec;
      const place = { driver, pool: pool.name, device };
      if (nodeName !== '') {
        const known = local.get(nodeName) ?? [];
        local.set(nodeName, known);
        known.push({ ...place, nodes: { name: nodeName } });
      } else if (nodeSelector !== undefined)
        shared.push({ ...place, nodes: { selector: nodeSelector as NodeSelector } });
      else if (allNodes === true) shared.push({ ...place, nodes: undefined });
    }
  }
  return { members, isIncomplete: members.length < (members[0]?.pool.resourceSliceCount ?? 1), local, shared };
}

function countersLeft(
  members: readonly SliceSpec[],
  allocated: DevicesInUse,
): ReadonlyMap<string, ReadonlyMap<string, Quantity>> {
  const left = new Map<string, Map<string, Quantity>>();
  for (const { sharedCounters = [] } of members) {
    for (const { name, counters } of sharedCounters)
      left.set(name, new Map(Object.entries(counters).map(([counter, { value }]) => [counter, parseQuantity(value)])));
  }
  if (left.size === 0) return left;
  for (const { driver, pool, devices = [] } of members) {
    for (const device of devices) {
      const key = deviceKey({ driver, pool: pool.name, device: device.name });
      if (allocated.isTaken(key) || allocated.consumed(key) !== undefined) consume(left, device, -1);
    }
  }
  return left;
}

/**
 * Adds what the device consumes to the counters (`by` 1), or subtracts it (`by` -1). Returns whether no counter is overdrawn.
 */
export function consume(
  counters: ReadonlyMap<string, Map<string, Quantity>>,
  { consumesCounters = [] }: Device,
  by: 1 | -1,
): boolean {
  let suffices = true;
  for (const { counterSet, counters: consumed } of consumesCounters) {
    const known = counters.get(counterSet);
    for (const [name, { value }] of Object.entries(consumed)) {
      const before = known?.get(name);
      if (known === undefined || before === undefined) {
        suffices = false;
        continue;
      }
      const amount = parseQuantity(value);
      const after = addQuantities(before, by === 1 ? amount : { ...amount, nano: -amount.nano });
      known.set(name, after);
      suffices &&= after.nano >= 0n;
    }
  }
  return suffices;
}
