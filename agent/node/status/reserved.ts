/** Computes how much of the node's resources is reserved, and the limits of all pods together. Pure. */
import { approximate, parseQuantity } from '../../../api/meta/quantity.ts';
import { amountOf, type Threshold } from '../../resources/eviction/thresholds.ts';
import type { CgroupLimits } from '../../host/cgroups/node-allocatable.ts';

interface Reservations {
  /** `--kube-reserved` and `--system-reserved`: quantities by resource. */
  readonly kube: Readonly<Record<string, string>>;
  readonly system: Readonly<Record<string, string>>;
  /** `--reserved-cpus`, such as `0-3,7`. The number of these CPUs replaces the reserved amounts of cpu. */
  readonly cpus: string;
}

/** The resources of a host. */
export interface Capacity {
  readonly cpus: number;
  readonly memoryBytes: number;
  /** The size of the node's ephemeral storage; 0 if it is unknown. */
  readonly storageBytes: number;
  readonly pids: number;
}

const amount = (text: string | undefined): number => (text === undefined ? 0 : approximate(parseQuantity(text)));

/** Returns the number of CPUs in a list such as `0-3,7`. */
export function countCpus(list: string): number {
  return list
    .split(',')
    .filter((part) => part !== '')
    .reduce((sum, part) => {
      const [first = 0, last] = part.split('-').map(Number);
      return sum + (last ?? first) - first + 1;
    }, 0);
}

/** Returns the reserved amounts by resource, in cores and bytes, without eviction thresholds. */
export function reservedFor({ kube, system, cpus }: Reservations): Readonly<Record<string, number>> {
  const total: Record<string, number> = {};
  for (const list of [kube, system])
    for (const [name, text] of Object.entries(list)) total[name] = (total[name] ?? 0) + amount(text);
  if (cpus !== '') total['cpu'] = countCpus(cpus);
  return total;
}

/**
 * Returns the reserved amounts with the hard eviction thresholds of memory and of the node's filesystem added, because pods
 * must not be promised resources for which they would be evicted.
 */
export function withEviction(
  reserved: Readonly<Record<string, number>>,
  thresholds: readonly Threshold[],
  capacity: Capacity,
): Readonly<Record<string, number>> {
  const total: Record<string, number> = { ...reserved };
  for (const { signal, value, gracePeriodMs } of thresholds) {
    if (gracePeriodMs > 0) continue;
    if (signal === 'memory.available') total['memory'] = (total['memory'] ?? 0) + amountOf(value, capacity.memoryBytes);
    if (signal === 'nodefs.available')
      total['ephemeral-storage'] = (total['ephemeral-storage'] ?? 0) + amountOf(value, capacity.storageBytes);
  }
  return total;
}

/**
 * Returns what all pods together may use. Hard thresholds are not subtracted, so that eviction starts before the kernel's
 * limit. `pids` is 0, which sets no limit, if no process ids are reserved.
 */
export function podLimits(reserved: Readonly<Record<string, number>>, capacity: Capacity): CgroupLimits {
  const pids = reserved['pid'] ?? 0;
  return {
    milliCpu: Math.max(0, Math.floor(capacity.cpus * 1000 - (reserved['cpu'] ?? 0) * 1000)),
    memoryBytes: Math.max(0, Math.floor(capacity.memoryBytes - (reserved['memory'] ?? 0))),
    pids: pids === 0 ? 0 : Math.max(0, capacity.pids - pids),
  };
}

/** Converts a reservation to the limits of its cgroup. */
export function reservationLimits(list: Readonly<Record<string, string>>): CgroupLimits {
  return {
    milliCpu: Math.floor(amount(list['cpu']) * 1000),
    memoryBytes: Math.floor(amount(list['memory'])),
    pids: Math.floor(amount(list['pid'])),
  };
}
