/** Requests and limits of containers → what the kernel is told; QoS classes. Pure. */
import {
  addQuantities,
  compareQuantities,
  formatQuantity,
  milliUnits,
  parseQuantity,
  wholeUnits,
  type Quantity,
} from '../../api/meta/quantity.ts';
import type { Container, Pod } from '../core-types.ts';
import type { LinuxResources } from '../runtime/runtime.ts';
import { isSidecar } from './pod-containers.ts';

export type QosClass = 'Guaranteed' | 'Burstable' | 'BestEffort';
type List = Readonly<Record<string, string | undefined>>;

const MIN_SHARES = 2;
const MAX_SHARES = 262_144;
const MIN_QUOTA_US = 1_000;
export const SYSTEM_CRITICAL_PRIORITY = 2_000_000_000;

export function limitsOf(container: Container): List {
  return (container.resources?.limits ?? {}) as List;
}

export function requestsOf(container: Container): List {
  return { ...limitsOf(container), ...((container.resources?.requests ?? {}) as List) };
}

const isZero = (text: string): boolean => compareQuantities(parseQuantity(text), parseQuantity('0')) === 0;

export function qosClass(pod: Pod): QosClass {
  const containers = [...pod.spec.containers, ...(pod.spec.initContainers ?? [])];
  let some = false;
  let guaranteed = true;
  for (const container of containers) {
    const [limits, requests] = [limitsOf(container), requestsOf(container)];
    for (const name of ['cpu', 'memory']) {
      const [limit, request] = [limits[name], requests[name]];
      if ((limit !== undefined && !isZero(limit)) || (request !== undefined && !isZero(request))) some = true;
      if (
        limit === undefined ||
        isZero(limit) ||
        request === undefined ||
        compareQuantities(parseQuantity(limit), parseQuantity(request)) !== 0
      )
        guaranteed = false;
    }
  }
  if (!some) return 'BestEffort';
  return guaranteed ? 'Guaranteed' : 'Burstable';
}

export function cpuShares(milliCpu: number): number {
  if (milliCpu === 0) return MIN_SHARES;
  return Math.min(Math.max(Math.floor((milliCpu * 1024) / 1000), MIN_SHARES), MAX_SHARES);
}

export function cpuQuotaUs(milliCpu: number, periodUs: number): number {
  return milliCpu === 0 ? 0 : Math.max(Math.floor((milliCpu * periodUs) / 1000), MIN_QUOTA_US);
}

export function isCritical(pod: Pod): boolean {
  return (pod.spec.priority ?? 0) >= SYSTEM_CRITICAL_PRIORITY;
}

export function oomScoreAdj(pod: Pod, container: Container, capacityBytes: number): number {
  if (isCritical(pod)) return -997;
  switch (qosClass(pod)) {
    case 'Guaranteed':
      return -997;
    case 'BestEffort':
      return 1000;
    case 'Burstable': {
      const request = bytesOf(requestsOf(container)['memory']);
      const score = 1000 - Math.floor((1000 * request) / Math.max(capacityBytes, 1));
      return Math.min(Math.max(score, 3), 999);
    }
  }
}

export interface ResourceFacts {
  readonly memoryCapacityBytes: number;
  /** `--cpu-cfs-quota`. */
  readonly cpuQuota: boolean;
  readonly cpuPeriodUs: number;
  /** Which processors and memory nodes a container was given. */
  readonly placement?: (
    pod: Pod,
    container: Container,
  ) => { readonly cpus: string; readonly mems: string; readonly isExclusive: boolean };
}

export function milliOf(text: string | undefined): number {
  return text === undefined ? 0 : Number(milliUnits(parseQuantity(text)));
}

export function bytesOf(text: string | undefined): number {
  return text === undefined ? 0 : Number(wholeUnits(parseQuantity(text)));
}

const ANYWHERE = { cpus: '', mems: '', isExclusive: false };

export function linuxResources(pod: Pod, container: Container, facts: ResourceFacts): LinuxResources {
  const limits = limitsOf(container);
  const requests = requestsOf(container);
  const memoryLimitBytes = bytesOf(limits['memory']);
  const { cpus, mems, isExclusive } = facts.placement?.(pod, container) ?? ANYWHERE;
  return {
    cpuShares: cpuShares(milliOf(requests['cpu'])),
    cpuPeriodUs: facts.cpuPeriodUs,
    // Who has processors alone is not held up by a quota of them.
    cpuQuotaUs: facts.cpuQuota && !isExclusive ? cpuQuotaUs(milliOf(limits['cpu']), facts.cpuPeriodUs) : 0,
    memoryLimitBytes,
    memorySwapLimitBytes: memoryLimitBytes,
    oomScoreAdj: oomScoreAdj(pod, container, facts.memoryCapacityBytes),
    cpusetCpus: cpus,
    cpusetMems: mems,
    hugepageLimits: Object.entries(limits)
      .filter(([name]) => name.startsWith('hugepages-'))
      .map(([name, value]) => ({
        pageSize: pageSizeName(name.slice('hugepages-'.length)),
        limitBytes: bytesOf(value),
      })),
    unified: {},
    pidsLimit: 0,
  };
}

/** `2Mi` → `2MB`, as the kernel's cgroup files name page sizes. */
export function pageSizeName(size: string): string {
  return size.replace(/([KMGT])i$/, '$1B');
}

/** Effective requests or limits of a whole pod: the sum of its containers and sidecars, or a single init container's where that is more. */
export function podResources(pod: Pod, of: (container: Container) => List): Record<string, string> {
  const total = new Map<string, Quantity>();
  const add = (into: Map<string, Quantity>, list: List): void => {
    for (const [name, text] of Object.entries(list)) {
      if (text === undefined) continue;
      const before = into.get(name);
      into.set(name, before === undefined ? parseQuantity(text) : addQuantities(before, parseQuantity(text)));
    }
  };
  for (const container of pod.spec.containers) add(total, of(container));
  const sidecars = new Map<string, Quantity>();
  const peak = new Map<string, Quantity>();
  for (const container of pod.spec.initContainers ?? []) {
    const now = new Map(sidecars);
    add(now, of(container));
    if (isSidecar(container)) {
      add(sidecars, of(container));
      add(total, of(container));
    }
    for (const [name, value] of now) {
      const before = peak.get(name);
      if (before === undefined || compareQuantities(value, before) > 0) peak.set(name, value);
    }
  }
  for (const [name, value] of peak) {
    const before = total.get(name);
    if (before === undefined || compareQuantities(value, before) > 0) total.set(name, value);
  }
  if (of === requestsOf || of === limitsOf) add(total, ((of === limitsOf ? {} : pod.spec.overhead) ?? {}) as List);
  return Object.fromEntries(
    [...total].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([name, value]) => [name, formatQuantity(value)]),
  );
}
