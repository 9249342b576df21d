/** Converts requests and limits of containers and pods to settings of the kernel, and computes QoS classes. Pure. */
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
import type { Container, Pod } from '../../base/model/pod.ts';
import { isCriticalPod, isNodeCriticalPod } from '../../base/model/pod-kinds.ts';
import type { LinuxResources } from '../runtime.ts';
import { isSidecar } from './pod-containers.ts';

type List = Readonly<Record<string, string | undefined>>;

/** The kernel's bounds of `cpu.shares`, and its smallest CPU quota. */
const MIN_SHARES = 2;
const MAX_SHARES = 262_144;
const MIN_QUOTA_US = 1_000;

/** Returns the limits of a container by resource; empty if it has none. */
export function limitsOf(container: Container): List {
  return (container.resources?.limits ?? {}) as List;
}

/** Returns the requests of a container by resource. A limit without a request is its request. */
export function requestsOf(container: Container): List {
  return { ...limitsOf(container), ...((container.resources?.requests ?? {}) as List) };
}

/** Returns the resources that the pod itself states: CPU, memory and huge pages, without those of its containers. */
export function podLevel(pod: Pod, of: 'requests' | 'limits'): List {
  const stated = Object.entries((pod.spec.resources?.[of] ?? {}) as List);
  return Object.fromEntries(
    stated.filter(([name]) => name === 'cpu' || name === 'memory' || name.startsWith('hugepages-')),
  );
}

/** Whether a limit holds for the pod as a whole: the pod has one, or each of its containers. */
export function areAllLimited(pod: Pod, resource: 'cpu' | 'memory'): boolean {
  if (milliOf(podLevel(pod, 'limits')[resource]) > 0) return true;
  return [...pod.spec.containers, ...(pod.spec.initContainers ?? [])].every(
    (container) => milliOf(limitsOf(container)[resource]) > 0,
  );
}

/** Returns the QoS class of the specification, as the API server computes it. */
export function qosClass(pod: Pod): QosClass {
  return qosClassOf(pod.spec);
}

/** Converts a CPU request to `cpu.shares` of cgroups v1, from 2 to 262144. */
export function cpuShares(milliCpu: number): number {
  if (milliCpu === 0) return MIN_SHARES;
  return Math.min(Math.max(Math.floor((milliCpu * 1024) / 1000), MIN_SHARES), MAX_SHARES);
}

/** Returns the quota in a period, at least 1 ms; 0 without a limit. */
export function cpuQuotaUs(milliCpu: number, periodUs: number): number {
  return milliCpu === 0 ? 0 : Math.max(Math.floor((milliCpu * periodUs) / 1000), MIN_QUOTA_US);
}

/** The OOM scores of the kubelet. Those of Burstable pods are between the two others. */
const GUARANTEED_OOM_SCORE_ADJ = -997;
const BEST_EFFORT_OOM_SCORE_ADJ = 1000;
const MIN_BURSTABLE_OOM_SCORE_ADJ = 3;
const MAX_BURSTABLE_OOM_SCORE_ADJ = 999;

function oomScoreAdj(pod: Pod, container: Container, capacityBytes: number): number {
  if (isNodeCriticalPod(pod)) return GUARANTEED_OOM_SCORE_ADJ;
  switch (qosClass(pod)) {
    case 'Guaranteed':
      return GUARANTEED_OOM_SCORE_ADJ;
    case 'BestEffort':
      return BEST_EFFORT_OOM_SCORE_ADJ;
    case 'Burstable': {
      const share = memoryShareBytes(pod);
      const scoreOf = (of: Container): number =>
        1000 - Math.floor((1000 * (bytesOf(requestsOf(of)['memory']) + share)) / Math.max(capacityBytes, 1));
      // The OOM killer must not choose a sidecar before the containers that it serves.
      const score = isSidecar(container)
        ? Math.min(scoreOf(container), Math.max(...pod.spec.containers.map(scoreOf)))
        : scoreOf(container);
      return Math.min(Math.max(score, MIN_BURSTABLE_OOM_SCORE_ADJ), MAX_BURSTABLE_OOM_SCORE_ADJ);
    }
  }
}

/** Returns the bytes that each container gets of what the pod requests beyond its containers: an equal share. */
function memoryShareBytes(pod: Pod): number {
  const podBytes = bytesOf(podLevel(pod, 'requests')['memory']);
  if (podBytes === 0) return 0;
  const containersBytes = bytesOf(containersResources(pod, requestsOf)['memory']);
  return Math.trunc(
    (podBytes - containersBytes) / (pod.spec.containers.length + (pod.spec.initContainers?.length ?? 0)),
  );
}

/** The facts of the node on which the settings of containers depend. */
export interface ResourceFacts {
  readonly memoryCapacityBytes: number;
  /** The value of `--cpu-cfs-quota`. */
  readonly cpuQuota: boolean;
  readonly cpuPeriodUs: number;
  /**
   * The swap of a host that limits that of containers separately (cgroup v2). If it is absent, swap counts as memory of the
   * containers.
   */
  readonly swap?: { readonly behavior: string; readonly capacityBytes: number } | undefined;
  /** The OOM killer ends all processes of a container together (cgroup v2). */
  readonly oomGroup?: boolean;
  /** The sizes of huge pages of this host, such as `2Mi`. */
  readonly hugePageSizes?: readonly string[];
  /** Returns the CPUs and NUMA nodes that are allocated to a container. */
  readonly placement?: (
    pod: Pod,
    container: Container,
  ) => { readonly cpus: string; readonly mems: string; readonly isExclusive: boolean };
}

/** Parses a quantity to thousandths, rounded up; 0 if it is absent. */
export function milliOf(text: string | undefined): number {
  return text === undefined ? 0 : Number(milliUnits(parseQuantity(text)));
}

/** Parses a quantity to whole units, rounded up; 0 if it is absent. */
export function bytesOf(text: string | undefined): number {
  return text === undefined ? 0 : Number(wholeUnits(parseQuantity(text)));
}

const ANYWHERE = { cpus: '', mems: '', isExclusive: false };

/** Returns the settings for the runtime. Limits of the pod as a whole apply where the container has none. */
export function linuxResources(pod: Pod, container: Container, facts: ResourceFacts): LinuxResources {
  const limits = { ...podLevel(pod, 'limits'), ...nonZero(limitsOf(container)) };
  const requested = requestsOf(container)['cpu'] ?? limits['cpu'];
  const memoryLimitBytes = bytesOf(limits['memory']);
  const { cpus, mems, isExclusive } = facts.placement?.(pod, container) ?? ANYWHERE;
  return {
    cpuShares: cpuShares(milliOf(requested)),
    cpuPeriodUs: facts.cpuPeriodUs,
    // A container with exclusive CPUs has no CPU quota.
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
  return behavior === 'LimitedSwap' && !isCriticalPod(pod) && qosClass(pod) === 'Burstable';
}

/**
 * Returns the swap that a container may use: its memory request as a share of the node's memory, applied to the node's swap. It
 * is 0 if the pod may not use swap, and for a container without a memory request or with one that equals its limit.
 */
function swapBytes(pod: Pod, container: Container, { swap, memoryCapacityBytes }: ResourceFacts): number {
  if (swap === undefined || !mayUseSwap(pod, swap.behavior)) return 0;
  const [request, limit] = [requestsOf(container), limitsOf(container)].map((list) => bytesOf(list['memory']));
  if (request === undefined || request === 0 || request === limit) return 0;
  return Math.floor((request / Math.max(memoryCapacityBytes, 1)) * swap.capacityBytes);
}

/** Returns the limit of each page size. Sizes without a limit get 0, because the kernel's default is no limit. */
function hugePageLimits(pod: Pod, container: Container, sizes: readonly string[]): LinuxResources['hugepageLimits'] {
  const none = sizes.map((size) => [`hugepages-${size}`, '0'] as const);
  const limits = limitsOf(container);
  // A container without huge pages of its own can use those of its pod.
  const stated = Object.keys(limits).some((name) => name.startsWith('hugepages-')) ? limits : podLevel(pod, 'limits');
  return Object.entries({ ...Object.fromEntries(none), ...stated })
    .filter(([name]) => name.startsWith('hugepages-'))
    .map(([name, value]) => ({ pageSize: pageSizeName(name.slice('hugepages-'.length)), limitBytes: bytesOf(value) }));
}

/** Returns the resources without those of 0, because a limit of 0 means no limit. */
function nonZero(list: List): List {
  return Object.fromEntries(
    Object.entries(list).filter(([, text]) => text !== undefined && parseQuantity(text).nano !== 0n),
  );
}

/** Converts the size of a huge page from the name of its resource (`2Mi`) to that in the names of cgroup files (`2MB`). */
export function pageSizeName(size: string): string {
  return size.replace(/([KMGT])i$/, '$1B');
}

/**
 * Returns the effective requests or limits of a pod (`of` is `requestsOf` or `limitsOf`): its pod-level values, else those of
 * its containers; plus its overhead, for limits only of resources that have one. With another `of`, neither pod-level
 * values nor overhead count.
 */
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

/**
 * Returns for each resource the sum of the containers and sidecars, or that of an init container and the sidecars before it if
 * that is larger.
 */
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
