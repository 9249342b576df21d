/**
 * The devices that a node can use, as drivers publish them in ResourceSlices. A pool is usable once all slices of its newest
 * generation are there. Pure.
 */
import { matchesNodeSelector, type NodeSelector, type SelectableNode } from '../../../api/kinds/node-selection.ts';
import type { ResourceSlice } from '../../../api/machinery/kinds.ts';
import { addQuantities, parseQuantity, type Quantity } from '../../../api/meta/quantity.ts';

type SliceSpec = NonNullable<ResourceSlice['spec']>;
export type Device = NonNullable<SliceSpec['devices']>[number];

/** A device that the node can use. */
export interface PooledDevice {
  readonly driver: string;
  readonly pool: string;
  readonly device: Device;
  /** What limits an allocated device to nodes; absent if every node can use it. */
  readonly nodes: { readonly name: string } | { readonly selector: NodeSelector } | undefined;
}

export interface DevicePool {
  readonly driver: string;
  readonly name: string;
  /** The slices of its newest generation are not all there. */
  readonly isIncomplete: boolean;
  readonly devices: readonly PooledDevice[];
  /** The counters that are left of each set, which partitions of one device share. */
  readonly counters: ReadonlyMap<string, ReadonlyMap<string, Quantity>>;
}

/** Identifies a device by driver, pool and name. */
export function deviceKey({ driver, pool, device }: { driver: string; pool: string; device: string }): string {
  return `${driver}/${pool}/${device}`;
}

/** Returns the pools that have something for the node. Allocated devices have used their counters. */
export function poolsFor(
  node: SelectableNode,
  slices: readonly ResourceSlice[],
  allocated: ReadonlySet<string>,
): readonly DevicePool[] {
  return [...newestSlices(slices).values()].flatMap((members) => {
    const [first] = members;
    if (first === undefined) return [];
    const { driver, pool } = first;
    const devices = members.flatMap((spec) => devicesFor(node, spec));
    if (devices.length === 0) return [];
    const isIncomplete = members.length < (pool.resourceSliceCount ?? 1);
    return [{ driver, name: pool.name, isIncomplete, devices, counters: countersLeft(members, allocated) }];
  });
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

function devicesFor(node: SelectableNode, spec: SliceSpec): PooledDevice[] {
  const { driver, pool, devices = [], perDeviceNodeSelection } = spec;
  const found: PooledDevice[] = [];
  for (const device of devices) {
    const { nodeName, nodeSelector, allNodes } = perDeviceNodeSelection === true ? device : spec;
    const selector = nodeSelector as NodeSelector | undefined;
    const place = { driver, pool: pool.name, device };
    if ((nodeName ?? '') !== '') {
      if (nodeName === node.name) found.push({ ...place, nodes: { name: node.name } });
    } else if (selector !== undefined) {
      if (matchesNodeSelector(selector, node)) found.push({ ...place, nodes: { selector } });
    } else if (allNodes === true) found.push({ ...place, nodes: undefined });
  }
  return found;
}

function countersLeft(
  members: readonly SliceSpec[],
  allocated: ReadonlySet<string>,
): ReadonlyMap<string, ReadonlyMap<string, Quantity>> {
  const left = new Map<string, Map<string, Quantity>>();
  for (const { sharedCounters = [] } of members) {
    for (const { name, counters } of sharedCounters)
      left.set(name, new Map(Object.entries(counters).map(([counter, { value }]) => [counter, parseQuantity(value)])));
  }
  if (left.size === 0) return left;
  for (const { driver, pool, devices = [] } of members) {
    for (const device of devices)
      if (allocated.has(deviceKey({ driver, pool: pool.name, device: device.name }))) consume(left, device, -1);
  }
  return left;
}

/** Adds what the device consumes to the counters (`by` 1), or takes it (`by` -1). Returns whether no counter is overdrawn. */
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
