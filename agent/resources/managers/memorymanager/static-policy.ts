/**
 * Implements the static memory policy. Containers of Guaranteed pods get their memory and huge pages from one NUMA node, or
 * from a fixed group of nodes. A node serves either single-node containers or one group, never both.
 */
import { initAndMainContainers } from '../../../../api/kinds/pod-containers.ts';
import type { Container, Pod } from '../../../base/model/pod.ts';
import { bytesOf, qosClass, requestsOf } from '../../../runtime/kuberuntime/resources.ts';
import { StateError } from '../checkpoint-file.ts';
import { type AffinityStore, hasPodLevelResources, isOrdinaryInit, podAmount } from '../hint-provider.ts';
import { countNodes, isNarrower, maskOf, nodesOf, type NumaMask, numaMasks } from '../topology/numa-mask.ts';
import type { ProviderHints, TopologyHint } from '../topologymanager/hints.ts';
import type { MachineState, MemoryBlock, MemoryState } from './memory-state.ts';

type Amounts = Readonly<Record<string, number>>;
interface Hint extends TopologyHint {
  readonly affinity: NumaMask;
}

const sameNodes = (left: readonly number[], right: readonly number[]): boolean => maskOf(left) === maskOf(right);

interface StaticMemoryPolicyOptions {
  readonly state: MemoryState;
  readonly affinity: AffinityStore;
  /** The machine state of this host without any allocation. */
  readonly empty: MachineState;
}

/** Allocates and releases memory. */
export class StaticMemoryPolicy {
  readonly #state: MemoryState;
  readonly #affinity: AffinityStore;
  /**
   * The bytes of ordinary init containers of the most recently admitted pod, by nodes and resource. Its other
   * containers can reuse them.
   */
  #reusable: { readonly podUid: string; readonly bytes: Map<string, number> } = { podUid: '', bytes: new Map() };

  /** Throws `StateError` if the state does not belong to this host. */
  constructor({ state, affinity, empty }: StaticMemoryPolicyOptions) {
    this.#state = state;
    this.#affinity = affinity;
    if (Object.keys(state.machine).length === 0) {
      if (state.pods().length > 0)
        throw this.#invalid('[memorymanager] machine state can not be empty when it has memory assignments');
      state.machine = structuredClone(empty);
      return;
    }
    this.#validate(structuredClone(empty));
  }

  #invalid(why: string): StateError {
    return new StateError(`${why}: please drain this node and remove the policy state file ${this.#state.path}`);
  }

  /** Replays the stored allocations on the totals of this host. The result must equal the stored machine state. */
  #validate(expected: MachineState): void {
    for (const pod of this.#state.pods())
      for (const [container, blocks] of this.#state.ofPod(pod))
        for (const { numaAffinity, type, size } of blocks) {
          for (const node of numaAffinity)
            if (expected[node]?.memoryMap[type] === undefined)
              throw this.#invalid(
                `[memorymanager] (pod: ${pod}, container: ${container}) the memory assignment uses memory or a NUMA node that does not exist`,
              );
          give(expected, numaAffinity, type, size);
        }
    const machine = this.#state.machine;
    const differs =
      Object.keys(machine).length !== Object.keys(expected).length ||
      Object.entries(expected).some(([id, node]) => {
        const stored = machine[id];
        if (
          stored === undefined ||
          stored.numberOfAssignments !== node.numberOfAssignments ||
          !sameNodes(stored.cells, node.cells)
        )
          return true;
        const types = Object.keys(node.memoryMap);
        return (
          types.length !== Object.keys(stored.memoryMap).length ||
          types.some((type) => {
            const [row, other] = [node.memoryMap[type], stored.memoryMap[type]];
            if (row === undefined || other === undefined) return true;
            const sum = (state: MachineState, key: 'free' | 'reserved'): number =>
              node.cells.reduce((total, cell) => total + (state[cell]?.memoryMap[type]?.[key] ?? 0), 0);
            return (
              row.total !== other.total ||
              row.systemReserved !== other.systemReserved ||
              row.allocatable !== other.allocatable ||
              sum(expected, 'free') !== sum(machine, 'free') ||
              sum(expected, 'reserved') !== sum(machine, 'reserved')
            );
          })
        );
      });
    if (differs) throw this.#invalid('[memorymanager] the expected machine state is different from the real one');
  }

  /** Returns the bytes to allocate by resource; empty if the policy allocates nothing to the container. */
  wanted(pod: Pod, container: Container): Amounts {
    if (hasPodLevelResources(pod) || qosClass(pod) !== 'Guaranteed') return {};
    return Object.fromEntries(
      Object.entries(requestsOf(container))
        .filter(([type]) => type === 'memory' || type.startsWith('hugepages-'))
        .map(([type, text]) => [type, bytesOf(text)]),
    );
  }

  /**
   * Allocates the memory of the container on the nodes of its affinity. Throws if no permitted nodes have enough memory.
   */
  allocate(pod: Pod, container: Container): void {
    const { uid } = pod.metadata;
    const wanted = this.wanted(pod, container);
    if (Object.keys(wanted).length === 0) return;
    const allocated = this.#state.blocks(uid, container.name);
    if (allocated !== undefined) {
      this.#updateReusable(pod, container, allocated);
      return;
    }
    const nodes = nodesOf(this.#chooseNodes(pod, container, wanted));
    const machine = structuredClone(this.#state.machine);
    const blocks = Object.entries(wanted).map(([type, size]): MemoryBlock => ({ numaAffinity: nodes, type, size }));
    for (const { type, size } of blocks)
      give(machine, nodes, type, Math.max(0, size - this.#reusableBytes(uid, maskOf(nodes), type)));
    this.#updateReusable(pod, container, blocks);
    this.#state.machine = machine;
    this.#state.assign(uid, container.name, blocks);
    this.#takeFromInits(pod, container, blocks);
  }

  /**
   * Returns the nodes of the container's affinity, or the best nodes without one. Adds nodes if these have too little memory.
   */
  #chooseNodes(pod: Pod, container: Container, wanted: Amounts): NumaMask {
    const { affinity, preferred } = this.#affinity.affinity(pod.metadata.uid, container.name);
    let best: Hint;
    if (affinity === undefined) {
      const found = bestHint(this.#hints(pod, wanted));
      if (found === undefined)
        throw new Error(
          '[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available',
        );
      if (!found.preferred && preferred) throw new Error('[memorymanager] failed to find the default preferred hint');
      best = found;
    } else best = { affinity, preferred };
    if (!this.#isEnough(best.affinity, wanted)) {
      const wider = bestHint(
        this.#hints(pod, wanted).filter((hint) => (hint.affinity & best.affinity) === best.affinity),
      );
      if (wider === undefined)
        throw new Error('[memorymanager] failed to find NUMA nodes to extend the current topology hint');
      if (!wider.preferred && best.preferred)
        throw new Error('[memorymanager] failed to find the extended preferred hint');
      best = wider;
    }
    if (!this.#isUndivided(best.affinity))
      throw new Error('[memorymanager] preferred hint violates NUMA node allocation');
    return best.affinity;
  }

  #sum(mask: NumaMask, type: string, key: 'free' | 'allocatable'): number {
    return nodesOf(mask).reduce((sum, node) => sum + (this.#state.machine[node]?.memoryMap[type]?.[key] ?? 0), 0);
  }

  #isEnough(mask: NumaMask, wanted: Amounts): boolean {
    return Object.entries(wanted).every(([type, size]) => this.#sum(mask, type, 'free') >= size);
  }

  /** Whether the mask is one node, or nodes that are used by exactly this group or by no container yet. */
  #isUndivided(mask: NumaMask): boolean {
    const nodes = nodesOf(mask);
    return (
      nodes.length === 1 ||
      nodes.every((node) => {
        const state = this.#state.machine[node];
        return state === undefined || state.numberOfAssignments === 0 || sameNodes(state.cells, nodes);
      })
    );
  }

  #hints(pod: Pod, wanted: Amounts): readonly Hint[] {
    const nodes = Object.keys(this.#state.machine)
      .map(Number)
      .sort((left, right) => left - right);
    let fewest = nodes.length;
    const masks: NumaMask[] = [];
    for (const mask of numaMasks(nodes)) {
      const amounts = Object.entries(wanted);
      if (amounts.some(([type, size]) => this.#sum(mask, type, 'allocatable') < size)) continue;
      fewest = Math.min(fewest, countNodes(mask));
      const [first = 0, ...others] = nodesOf(mask);
      if (others.length === 0 && (this.#state.machine[first]?.cells.length ?? 1) > 1) continue;
      if (!this.#isUndivided(mask)) continue;
      const enough = amounts.every(
        ([type, size]) => this.#sum(mask, type, 'free') + this.#reusableBytes(pod.metadata.uid, mask, type) >= size,
      );
      if (enough) masks.push(mask);
    }
    return masks.map((affinity) => ({ affinity, preferred: countNodes(affinity) === fewest }));
  }

  /** Returns the sets of NUMA nodes from which the memory of the container can come, for each resource. */
  containerHints(pod: Pod, container: Container): ProviderHints {
    const wanted = this.wanted(pod, container);
    const allocated = this.#state.blocks(pod.metadata.uid, container.name);
    return allocated === undefined ? this.#perResource(pod, wanted) : regenerated(allocated, wanted);
  }

  /** Returns the sets of NUMA nodes from which the memory of the whole pod can come, for each resource. */
  podHints(pod: Pod): ProviderHints {
    const containers = initAndMainContainers(pod.spec);
    const types = new Set(containers.flatMap((container) => Object.keys(this.wanted(pod, container))));
    const wanted = Object.fromEntries(
      [...types].map((type) => [type, podAmount(pod, (container) => this.wanted(pod, container)[type] ?? 0)]),
    );
    for (const container of containers) {
      const allocated = this.#state.blocks(pod.metadata.uid, container.name);
      if (allocated !== undefined) return regenerated(allocated, wanted);
    }
    return this.#perResource(pod, wanted);
  }

  #perResource(pod: Pod, wanted: Amounts): ProviderHints {
    const types = Object.keys(wanted);
    if (types.length === 0) return {};
    const hints = this.#hints(pod, wanted);
    return Object.fromEntries(types.map((type) => [type, hints]));
  }

  /** Gives the memory of a pod back to its NUMA nodes. Returns whether the pod had any. */
  release(podUid: string): boolean {
    const containers = this.#state.ofPod(podUid);
    if (containers.size === 0) return false;
    const machine = structuredClone(this.#state.machine);
    for (const blocks of containers.values()) for (const block of blocks) takeBack(machine, block);
    this.#state.machine = machine;
    this.#state.delete(podUid);
    return true;
  }

  /** Returns all allocatable memory by node. */
  allocatable(): readonly MemoryBlock[] {
    return Object.entries(this.#state.machine).flatMap(([node, { memoryMap }]) =>
      Object.entries(memoryMap).flatMap(([type, { allocatable }]) =>
        allocatable === 0 ? [] : [{ numaAffinity: [Number(node)], type, size: allocatable }],
      ),
    );
  }

  #reusableBytes(podUid: string, mask: NumaMask, type: string): number {
    return this.#reusable.podUid === podUid ? (this.#reusable.bytes.get(`${mask}/${type}`) ?? 0) : 0;
  }

  #updateReusable(pod: Pod, container: Container, blocks: readonly MemoryBlock[]): void {
    const { uid } = pod.metadata;
    if (this.#reusable.podUid !== uid) this.#reusable = { podUid: uid, bytes: new Map() };
    for (const { numaAffinity, type, size } of blocks) {
      const mask = maskOf(numaAffinity);
      const before = this.#reusableBytes(uid, mask, type);
      const after = isOrdinaryInit(pod, container) ? Math.max(before, size) : Math.max(0, before - size);
      this.#reusable.bytes.set(`${mask}/${type}`, after);
    }
  }

  /**
   * Subtracts the memory that the container reuses from the blocks of earlier init containers, so that the sum of all
   * blocks is what the pod holds.
   */
  #takeFromInits(pod: Pod, container: Container, blocks: readonly MemoryBlock[]): void {
    const { uid } = pod.metadata;
    for (const { numaAffinity, type, size } of blocks) {
      let left = size;
      for (const init of pod.spec.initContainers ?? []) {
        if (init.name === container.name || left === 0) break;
        if (!isOrdinaryInit(pod, init)) continue;
        const shrunk = (this.#state.blocks(uid, init.name) ?? []).map((block) => {
          if (block.type !== type || !sameNodes(block.numaAffinity, numaAffinity)) return block;
          const taken = Math.min(block.size, left);
          left -= taken;
          return { ...block, size: block.size - taken };
        });
        if (shrunk.length > 0) this.#state.assign(uid, init.name, shrunk);
      }
    }
  }
}

function bestHint(hints: readonly Hint[]): Hint | undefined {
  let best: Hint | undefined;
  for (const hint of hints)
    if (
      best === undefined ||
      (hint.preferred && !best.preferred) ||
      (hint.preferred === best.preferred && isNarrower(hint.affinity, best.affinity))
    )
      best = hint;
  return best;
}

/**
 * Returns hints for memory that is already allocated: the same nodes again. If the request has changed, returns `{}`, which
 * means no preference.
 */
function regenerated(blocks: readonly MemoryBlock[], wanted: Amounts): ProviderHints {
  const fits = blocks.length === Object.keys(wanted).length && blocks.every(({ type, size }) => wanted[type] === size);
  if (!fits) return {};
  return Object.fromEntries(
    blocks.map(({ type, numaAffinity }) => [type, [{ affinity: maskOf(numaAffinity), preferred: true }]]),
  );
}

/** Allocates from the nodes in their order, as much from each as it has. */
function give(machine: MachineState, nodes: readonly number[], type: string, size: number): void {
  let left = size;
  for (const id of nodes) {
    const node = machine[id];
    if (node === undefined) continue;
    node.numberOfAssignments++;
    node.cells = nodes;
    const row = node.memoryMap[type];
    if (row === undefined) continue;
    const part = Math.min(row.free, left);
    row.reserved += part;
    row.free -= part;
    left -= part;
  }
}

function takeBack(machine: MachineState, { numaAffinity, type, size }: MemoryBlock): void {
  let left = size;
  for (const id of numaAffinity) {
    const node = machine[id];
    if (node === undefined) continue;
    node.numberOfAssignments--;
    if (node.numberOfAssignments === 0) node.cells = [id];
    const row = node.memoryMap[type];
    if (row === undefined) continue;
    const part = Math.min(row.reserved, left);
    row.free += part;
    row.reserved -= part;
    left -= part;
  }
}
