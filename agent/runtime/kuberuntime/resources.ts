/** Requests and limits of containers, and of pods as a whole → what the kernel is told; QoS classes. Pure. */
import { qosClassOf, type QosClass } from '../../../api/kinds/pod-qos.ts';
import {
  addQuantities,
  compareQuantities,
  formatQuantity,
  milliUnits,
  parseQuantity,
  wholeUnits,
  type Quantity,
} from '../../../api/meta/quantity.ts';
import type { Container, Pod } from '../../model/core-types.ts';
import type { LinuxResources } from '../runtime.ts';
import { isSidecar } from './pod-containers.ts';

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

/** What the pod itself is given as a whole, its containers' together aside; only what can be given so. */
export function podLevel(pod: Pod, of: 'requests' | 'limits'): List {
  const stated = Object.entries((pod.spec.resources?.[of] ?? {}) as List);
  return Object.fromEntries(
    stated.filter(([name]) => name === 'cpu' || name === 'memory' || name.startsWith('hugepages-')),
  );
}

export function qosClass(pod: Pod): QosClass {
  return qosClassOf(pod.spec);
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
      const share = memoryShareBytes(pod);
      const scoreOf = (of: Container): number =>
        1000 - Math.floor((1000 * (bytesOf(requestsOf(of)['memory']) + share)) / Math.max(capacityBytes, 1));
      // A sidecar is not ended before those that it serves.
      const score = isSidecar(container)
        ? Math.min(scoreOf(container), Math.max(...pod.spec.containers.map(scoreOf)))
        : scoreOf(container);
      return Math.min(Math.max(score, 3), 999);
    }
  }
}

/** Of what the pod requests beyond its containers each of them has an equal part. */
function memoryShareBytes(pod: Pod): number {
  const whole = bytesOf(podLevel(pod, 'requests')['memory']);
  if (whole === 0) return 0;
  const own = bytesOf(containersResources(pod, requestsOf)['memory']);
  return Math.trunc((whole - own) / (pod.spec.containers.length + (pod.spec.initContainers?.length ?? 0)));
}

export interface ResourceFacts {
  readonly memoryCapacityBytes: number;
  /** `--cpu-cfs-quota`. */
  readonly cpuQuota: boolean;
  readonly cpuPeriodUs: number;
  /** Of a host that bounds the swap of containers by itself (cgroup v2); absent: it is counted with their memory. */
  readonly swap?: { readonly behavior: string; readonly capacityBytes: number } | undefined;
  /** The OOM killer ends all processes of a container together (cgroup v2). */
  readonly oomGroup?: boolean;
  /** That this host has: `2Mi`. */
  readonly hugePageSizes?: readonly string[];
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
  const limits = { ...podLevel(pod, 'limits'), ...nonZero(limitsOf(container)) };
  const requested = requestsOf(container)['cpu'] ?? limits['cpu'];
  const memoryLimitBytes = bytesOf(limits['memory']);
  const { cpus, mems, isExclusive } = facts.placement?.(pod, container) ?? ANYWHERE;
  return {
    cpuShares: cpuShares(milliOf(requested)),
    cpuPeriodUs: facts.cpuPeriodUs,
    // Who has processors alone is not held up by a quota of them.
    cpuQuotaUs: facts.cpuQuota && !isExclusive ? cpuQuotaUs(milliOf(limits['cpu']), facts.cpuPeriodUs) : 0,
    memoryLimitBytes,
    memorySwapLimitBytes: facts.swap === undefined ? memoryLimitBytes : 0,
    oomScoreAdj: oomScoreAdj(pod, container, facts.memoryCapacityBytes),
    cpusetCpus: cpus,
    cpusetMems: mems,
    hugepageLimits: hugePageLimits(pod, container, facts.hugePageSizes ?? []),
    unified: {
      ...(facts.oomGroup === true ? { 'memory.oom.group': '1' } : {}),
      ...(facts.swap === undefined ? {} : { 'memory.swap.max': String(swapBytes(pod, container, facts)) }),
    },
    pidsLimit: 0,
  };
}

/** Whether containers of the pod can be swapped out: with `LimitedSwap`, those of Burstable pods that are not critical. */
export function mayUseSwap(pod: Pod, behavior: string | undefined): boolean {
  return behavior === 'LimitedSwap' && !isCritical(pod) && qosClass(pod) === 'Burstable';
}

/** The container's share of the node's swap is its memory request's share of the node's memory. */
function swapBytes(pod: Pod, container: Container, { swap, memoryCapacityBytes }: ResourceFacts): number {
  if (swap === undefined || !mayUseSwap(pod, swap.behavior)) return 0;
  const [request, limit] = [requestsOf(container), limitsOf(container)].map((list) => bytesOf(list['memory']));
  if (request === undefined || request === 0 || request === limit) return 0;
  return Math.floor((request / Math.max(memoryCapacityBytes, 1)) * swap.capacityBytes);
}

/** Pages of a size that is not asked for are not given: the kernel's own limit is none. */
function hugePageLimits(pod: Pod, container: Container, sizes: readonly string[]): LinuxResources['hugepageLimits'] {
  const none = sizes.map((size) => [`hugepages-${size}`, '0'] as const);
  const own = limitsOf(container);
  // A container that says nothing of them may have what its pod may.
  const stated = Object.keys(own).some((name) => name.startsWith('hugepages-')) ? own : podLevel(pod, 'limits');
  return Object.entries({ ...Object.fromEntries(none), ...stated })
    .filter(([name]) => name.startsWith('hugepages-'))
    .map(([name, value]) => ({ pageSize: pageSizeName(name.slice('hugepages-'.length)), limitBytes: bytesOf(value) }));
}

/** A limit of nothing is none. */
function nonZero(list: List): List {
  return Object.fromEntries(
    Object.entries(list).filter(([, text]) => text !== undefined && parseQuantity(text).nano !== 0n),
  );
}

/** `2Mi` → `2MB`, as the kernel's cgroup files name page sizes. */
export function pageSizeName(size: string): string {
  return size.replace(/([KMGT])i$/, '$1B');
}

/** Effective requests or limits of a whole pod: what it says itself, else its containers'; and its overhead. */
export function podResources(pod: Pod, of: (container: Container) => List): Record<string, string> {
  const which = of === requestsOf ? 'requests' : of === limitsOf ? 'limits' : undefined;
  const total = containersResources(pod, of);
  if (which === undefined) return total;
  for (const [name, text] of Object.entries(podLevel(pod, which))) if (text !== undefined) total[name] = text;
  for (const [name, text] of Object.entries((pod.spec.overhead ?? {}) as List)) {
    const before = total[name];
    if (text === undefined || (before === undefined && which === 'limits')) continue;
    total[name] =
      before === undefined ? text : formatQuantity(addQuantities(parseQuantity(before), parseQuantity(text)));
  }
  return Object.fromEntries(Object.entries(total).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}

/** The sum of the containers and sidecars, or a single init container's where that is more. */
function containersResources(pod: Pod, of: (container: Container) => List): Record<string, string> {
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
  return Object.fromEntries(
    [...total].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([name, value]) => [name, formatQuantity(value)]),
  );
}
