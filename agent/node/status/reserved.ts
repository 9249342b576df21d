/** What of the node's resources is kept from pods, and what that leaves. Pure. */
import { approximate, parseQuantity } from '../../../api/meta/quantity.ts';
import { amountOf, type Threshold } from '../../resources/eviction/thresholds.ts';
import type { CgroupLimits } from '../../host/cgroups/node-allocatable.ts';

export interface Reservations {
  /** `--kube-reserved` and `--system-reserved`: quantities by resource. */
  readonly kube: Readonly<Record<string, string>>;
  readonly system: Readonly<Record<string, string>>;
  /** `--reserved-cpus`: `0-3,7`; their number replaces what both say of cpu. */
  readonly cpus: string;
}

export interface Capacity {
  readonly cpus: number;
  readonly memoryBytes: number;
  /** 0: not known. */
  readonly storageBytes: number;
  readonly pids: number;
}

const amount = (text: string | undefined): number => (text === undefined ? 0 : approximate(parseQuantity(text)));

/** How many processors a list such as `0-3,7` names. */
export function countCpus(list: string): number {
  return list
    .split(',')
    .filter((part) => part !== '')
    .reduce((sum, part) => {
      const [first = 0, last] = part.split('-').map(Number);
      return sum + (last ?? first) - first + 1;
    }, 0);
}

/** By resource, in its own unit (cores, bytes): what is reserved, without eviction thresholds. */
export function reservedFor({ kube, system, cpus }: Reservations): Readonly<Record<string, number>> {
  const total: Record<string, number> = {};
  for (const list of [kube, system])
    for (const [name, text] of Object.entries(list)) total[name] = (total[name] ?? 0) + amount(text);
  if (cpus !== '') total['cpu'] = countCpus(cpus);
  return total;
}

/** With what hard thresholds keep free: pods are not promised what they would be evicted for. */
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

/** What all pods together may use: eviction comes before the kernel's limit. */
export function podLimits(reserved: Readonly<Record<string, number>>, capacity: Capacity): CgroupLimits {
  const pids = reserved['pid'] ?? 0;
  return {
    milliCpu: Math.max(0, Math.floor(capacity.cpus * 1000 - (reserved['cpu'] ?? 0) * 1000)),
    memoryBytes: Math.max(0, Math.floor(capacity.memoryBytes - (reserved['memory'] ?? 0))),
    pids: pids === 0 ? 0 : Math.max(0, capacity.pids - pids),
  };
}

/** One reservation as the limits of its own cgroup. */
export function reservationLimits(list: Readonly<Record<string, string>>): CgroupLimits {
  return {
    milliCpu: Math.floor(amount(list['cpu']) * 1000),
    memoryBytes: Math.floor(amount(list['memory'])),
    pids: Math.floor(amount(list['pid'])),
  };
}
