/**
 * Implements the static CPU policy. Containers of Guaranteed pods that request whole CPUs get them exclusively, and all
 * others share the rest. Reserved CPUs are never allocated exclusively.
 */
import { initAndMainContainers } from '../../../../api/kinds/pod-containers.ts';
import { compareQuantities, parseQuantity, milliUnits } from '../../../../api/meta/quantity.ts';
import type { Container, Pod } from '../../../base/model/pod.ts';
import { qosClass, requestsOf } from '../../../runtime/kuberuntime/resources.ts';
import { StateError } from '../checkpoint-file.ts';
import { type CpuSet, formatCpuSet, NO_CPUS, sameCpus } from '../cpu-set.ts';
import {
  AdmissionError,
  type AffinityStore,
  hasPodLevelResources,
  isOrdinaryInit,
  podAmount,
} from '../hint-provider.ts';
import type { CpuPolicyOptions } from '../policy-options.ts';
import type { CpuTopology } from '../topology/host-topology.ts';
import { countNodes, hasNode, nodesOf, type NumaMask, numaMasks } from '../topology/numa-mask.ts';
import type { ProviderHints, TopologyHint } from '../topologymanager/hints.ts';
import { takeDistributed, takePacked } from './cpu-accumulator.ts';
import type { CpuState } from './cpu-state.ts';

/** The topology, the options and the state of the policy. */
export interface StaticCpuPolicyOptions {
  readonly topology: CpuTopology;
  readonly options: CpuPolicyOptions;
  readonly state: CpuState;
  readonly affinity: AffinityStore;
  /** The value of `--reserved-cpus`. If empty, `reservedCount` CPUs are chosen as for a container. */
  readonly reservedCpus: CpuSet;
  readonly reservedCount: number;
}

/** Allocates and releases CPUs. */
export class StaticCpuPolicy {
  readonly reserved: CpuSet;
  readonly #deps: StaticCpuPolicyOptions;
  /** The reserved CPUs with the sibling threads of their cores, which are unavailable to requests for whole cores. */
  readonly #reservedCores: CpuSet;
  /** How often all CPUs of an allocation shared one cache. */
  uncoreAligned = 0;
  /** The CPUs of ordinary init containers of the most recently admitted pod. Its other containers can reuse them. */
  #reusable: { readonly podUid: string; cpus: CpuSet } = { podUid: '', cpus: NO_CPUS };

  /** Throws `StateError` if the state does not fit this host or these options. */
  constructor(deps: StaticCpuPolicyOptions) {
    this.#deps = deps;
    const { topology, reservedCpus, reservedCount } = deps;
    if (reservedCount === 0)
      throw new StateError(
        '[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero: set --reserved-cpus, or cpu in --kube-reserved or --system-reserved',
      );
    this.reserved =
      reservedCpus.size > 0
        ? reservedCpus
        : reservedCount > topology.all.size
          ? NO_CPUS
          : this.#take(topology.all, reservedCount);
    if (this.reserved.size !== reservedCount || !this.reserved.isSubsetOf(topology.all))
      throw new StateError(
        `[cpumanager] unable to reserve the required amount of CPUs (size of ${formatCpuSet(this.reserved.intersection(topology.all))} did not equal ${reservedCount})`,
      );
    this.#reservedCores = topology.cpusIn('core', topology.groups('core', this.reserved));
    this.#validateState();
  }

  #validateState(): void {
    const { state, topology, options } = this.#deps;
    const usable = options.strictReservation ? topology.all.difference(this.reserved) : topology.all;
    const exclusive = state.allExclusive();
    const refuse = (why: string): never => {
      throw new StateError(`${why}: please drain this node and remove the policy state file ${state.path}`);
    };
    if (state.shared.size === 0) {
      if (exclusive.size > 0) refuse('default cpuset cannot be empty');
      state.shared = usable;
      return;
    }
    const shared = formatCpuSet(state.shared);
    if (options.strictReservation && !this.reserved.isDisjointFrom(state.shared))
      refuse(
        `some of strictly reserved cpus: "${formatCpuSet(this.reserved.intersection(state.shared))}" are present in defaultCpuSet: "${shared}"`,
      );
    if (!options.strictReservation && !this.reserved.isSubsetOf(state.shared))
      refuse(`not all reserved cpus: "${formatCpuSet(this.reserved)}" are present in defaultCpuSet: "${shared}"`);
    for (const pod of state.pods())
      for (const [container, cpus] of state.ofPod(pod))
        if (!cpus.isDisjointFrom(state.shared))
          refuse(
            `pod: ${pod}, container: ${container} cpuset: "${formatCpuSet(cpus)}" overlaps with default cpuset "${shared}"`,
          );
    const recorded = state.shared.union(exclusive);
    if (!sameCpus(recorded, usable))
      refuse(
        `current set of available CPUs "${formatCpuSet(usable)}" doesn't match with CPUs in state "${formatCpuSet(recorded)}"`,
      );
  }

  /** Returns how many CPUs the container gets exclusively; 0 if it uses the shared pool. */
  exclusiveCount(pod: Pod, container: Container): number {
    if (hasPodLevelResources(pod) || qosClass(pod) !== 'Guaranteed') return 0;
    const text = requestsOf(container)['cpu'];
    if (text === undefined || compareQuantities(parseQuantity(text), parseQuantity('0')) <= 0) return 0;
    const milli = Number(milliUnits(parseQuantity(text)));
    return milli % 1000 === 0 ? milli / 1000 : 0;
  }

  /** Returns the CPUs that are free for exclusive use. */
  available(): CpuSet {
    return this.#deps.state.shared.difference(this.reserved);
  }

  /**
   * Allocates the exclusive CPUs of the container, if it gets any and has none yet. Throws `CpuAllocationError` or
   * `AdmissionError` if the request cannot be satisfied.
   */
  allocate(pod: Pod, container: Container): void {
    const { state, topology, options, affinity } = this.#deps;
    const { uid } = pod.metadata;
    const count = this.exclusiveCount(pod, container);
    if (count === 0) return;
    const allocated = state.exclusive(uid, container.name);
    if (allocated !== undefined) {
      this.#updateReusable(pod, container, allocated);
      return;
    }
    if (options.fullPhysicalCpusOnly) this.#checkWholeCores(count, topology.cpusPerCore, this.#reusableOf(uid));
    const { affinity: mask } = affinity.affinity(uid, container.name);
    const cpus = this.#choose(count, mask, this.#reusableOf(uid));
    state.shared = state.shared.difference(cpus);
    state.assign(uid, container.name, cpus);
    if (topology.groups('uncoreCache', cpus).length === 1) this.uncoreAligned++;
    this.#updateReusable(pod, container, cpus);
  }

  #checkWholeCores(count: number, perCore: number, reusable: CpuSet): void {
    if (count % perCore !== 0)
      throw new AdmissionError(
        'SMTAlignmentError',
        `SMT Alignment Error: requested ${count} cpus not multiple cpus per core = ${perCore}`,
      );
    const free = this.#deps.state.shared.difference(this.#reservedCores).union(reusable).size;
    if (count > free)
      throw new AdmissionError(
        'SMTAlignmentError',
        `SMT Alignment Error: not enough free physical CPUs: available physical CPUs = ${free}, requested CPUs = ${count}, CPUs per core = ${perCore}`,
      );
  }

  /** Takes CPUs of the NUMA nodes in the mask first, with `align-by-socket` of their sockets, and the rest from any node. */
  #choose(count: number, mask: NumaMask | undefined, reusable: CpuSet): CpuSet {
    const { topology, options } = this.#deps;
    const free = this.available().union(reusable);
    if (mask === undefined) return this.#take(free, count);
    const aligned = options.alignBySocket
      ? topology.cpusIn('socket', topology.groups('socket', topology.cpusIn('numaNode', nodesOf(mask))), free)
      : topology.cpusIn('numaNode', nodesOf(mask), free);
    const first = this.#take(aligned, Math.min(aligned.size, count));
    return first.union(this.#take(free.difference(first), count - first.size));
  }

  #take(available: CpuSet, count: number): CpuSet {
    const { topology, options } = this.#deps;
    const takeOptions = { spread: options.distributeAcrossCores, alignByUncoreCache: options.alignByUncoreCache };
    if (!options.distributeAcrossNuma) return takePacked(topology, available, count, takeOptions);
    const groupSize = options.fullPhysicalCpusOnly ? topology.cpusPerCore : 1;
    return takeDistributed(topology, available, count, { ...takeOptions, groupSize });
  }

  #reusableOf(podUid: string): CpuSet {
    return this.#reusable.podUid === podUid ? this.#reusable.cpus : NO_CPUS;
  }

  #updateReusable(pod: Pod, container: Container, cpus: CpuSet): void {
    const before = this.#reusableOf(pod.metadata.uid);
    this.#reusable = {
      podUid: pod.metadata.uid,
      cpus: isOrdinaryInit(pod, container) ? before.union(cpus) : before.difference(cpus),
    };
  }

  /** Gives the CPUs of the pod back to the shared pool. Returns whether the pod had any. */
  release(podUid: string): boolean {
    const { state } = this.#deps;
    const containers = state.ofPod(podUid);
    if (containers.size === 0) return false;
    for (const cpus of containers.values()) state.shared = state.shared.union(cpus);
    state.delete(podUid);
    return true;
  }

  /**
   * Returns the sets of NUMA nodes from which the exclusive CPUs of the container can come; `{}` if it needs none.
   */
  containerHints(pod: Pod, container: Container): ProviderHints {
    const count = this.exclusiveCount(pod, container);
    if (count === 0) return {};
    const allocated = this.#deps.state.exclusive(pod.metadata.uid, container.name);
    if (allocated !== undefined) return { cpu: allocated.size === count ? this.#hints(allocated, NO_CPUS, count) : [] };
    return { cpu: this.#hints(this.available(), this.#reusableOf(pod.metadata.uid), count) };
  }

  /** Returns the sets of NUMA nodes from which the exclusive CPUs of the whole pod can come; `{}` if it needs none. */
  podHints(pod: Pod): ProviderHints {
    const count = podAmount(pod, (container) => this.exclusiveCount(pod, container));
    if (count === 0) return {};
    let assigned: CpuSet = NO_CPUS;
    for (const container of initAndMainContainers(pod.spec)) {
      const allocated = this.#deps.state.exclusive(pod.metadata.uid, container.name);
      if (allocated === undefined) continue;
      if (allocated.size !== this.exclusiveCount(pod, container)) return { cpu: [] };
      assigned = assigned.union(allocated);
    }
    if (assigned.size === count) return { cpu: this.#hints(assigned, NO_CPUS, count) };
    return { cpu: this.#hints(this.available(), this.#reusableOf(pod.metadata.uid).union(assigned), count) };
  }

  /**
   * Returns the sets of NUMA nodes that have enough CPUs and contain all reusable ones. A hint is preferred if it has as few
   * nodes as an empty host would need, with `align-by-socket` also if its nodes are on as few sockets.
   */
  #hints(available: CpuSet, reusable: CpuSet, count: number): readonly TopologyHint[] {
    const { topology, options } = this.#deps;
    let fewest = topology.numaNodes.length;
    const masks: NumaMask[] = [];
    const nodeOf = (cpu: number): number => topology.info(cpu)?.numaNode ?? 0;
    for (const mask of numaMasks(topology.numaNodes)) {
      const size = countNodes(mask);
      if (topology.cpusIn('numaNode', nodesOf(mask)).size >= count) fewest = Math.min(fewest, size);
      if ([...reusable].some((cpu) => !hasNode(mask, nodeOf(cpu)))) continue;
      const free = topology.cpusIn('numaNode', nodesOf(mask), available.union(reusable));
      if (free.size >= count) masks.push(mask);
    }
    const nodesPerSocket = Math.floor(topology.numaNodes.length / Math.max(1, topology.sockets.length));
    const isPreferred = (mask: NumaMask): boolean => {
      if (countNodes(mask) === fewest) return true;
      if (!options.alignBySocket || nodesPerSocket === 0) return false;
      const sockets = topology.groups('socket', topology.cpusIn('numaNode', nodesOf(mask)));
      return sockets.length === Math.ceil(fewest / nodesPerSocket);
    };
    return masks.map((mask) => ({ affinity: mask, preferred: isPreferred(mask) }));
  }
}
