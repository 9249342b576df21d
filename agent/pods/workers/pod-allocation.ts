/**
 * Owns what this node has allocated to each pod, as a whole and by container: the resources of its admission, until a resize
 * fits. A resize is infeasible if this kind of pod cannot be resized. A resize that does not fit is deferred, even if the whole
 * node is too small for it. Until it fits, the pod keeps its allocation, and everything that runs the pod sees the allocated
 * resources instead of the desired ones.
 *
 * Nothing is stored: after a restart the allocation is read from the pod's status.
 */
import { initAndMainContainers } from '../../../api/kinds/pod-containers.ts';
import { milliUnits, parseQuantity, wholeUnits } from '../../../api/meta/quantity.ts';
import type { NodeObject } from '../../base/model/node.ts';
import type { PodEventRecorder } from '../../base/model/pod-events.ts';
import type { Pod } from '../../base/model/pod.ts';
import { bytesOf, podResources, qosClass, requestsOf } from '../../runtime/kuberuntime/resources.ts';
import type { ResizeConditions } from '../../runtime/kuberuntime/resize.ts';
import {
  lastResources,
  type PodResources,
  type RequestedResize,
  requestedResizes,
  resizeDetails,
  resourcesOf,
  withResources,
} from './pod-resources.ts';
import { isStaticPod } from '../../base/model/pod-kinds.ts';

interface Allocation {
  resources: PodResources;
  conditions: ResizeConditions;
}

interface Refusal {
  readonly reason: 'Deferred' | 'Infeasible';
  readonly message: string;
  /** The reason in the event, if it differs from `reason`. */
  readonly event?: string;
  /** What makes the resize infeasible, as the kubelet's metric names it. */
  readonly detail?: string;
}

/** Measures resizes. */
export interface ResizeObserver {
  requested(resize: RequestedResize): void;
  infeasible(detail: string): void;
  /** A resize that was deferred has been allocated. `periodic_retry`: its pod was not changed in the meantime. */
  accepted(trigger: 'pod_updated' | 'periodic_retry'): void;
  /** An attempt to give the pod's cgroup and its containers their resources has succeeded (`isDone`) or failed. */
  actuated(attempt: { readonly tookMs: number; readonly isDone: boolean }): void;
}

interface PodAllocationsOptions {
  readonly node: () => NodeObject;
  readonly events: PodEventRecorder;
  /** Returns the other pods that use the node. */
  readonly others: (pod: Pod) => readonly Pod[];
  /** Whether the containers of a pod can be swapped out. */
  readonly mayUseSwap?: (pod: Pod) => boolean;
  /** With the policy `static`, a manager allocates its resource exclusively to guaranteed pods. */
  readonly cpuManagerPolicy: string;
  readonly memoryManagerPolicy: string;
  readonly observe?: ResizeObserver;
  /** Called after a resize was allocated, with the uids of pods whose deferred resizes may fit now. */
  readonly onRoom?: (deferred: readonly string[]) => void;
}

/** Owns the allocations of all pods. Returned pods are copies where the resources differ. */
export class PodAllocations {
  readonly #options: PodAllocationsOptions;
  readonly #allocations = new Map<string, Allocation>();
  /** The pods whose resize is deferred, in the order in which it was deferred first. */
  readonly #deferred = new Map<string, Pod>();

  constructor(options: PodAllocationsOptions) {
    this.#options = options;
  }

  /** Returns the pod with its allocated resources, without a decision about a resize. */
  allocated(pod: Pod): Pod {
    return withResources(pod, this.#of(pod).resources);
  }

  /** Counts what a changed specification requests. */
  requested(before: Pod, after: Pod): void {
    for (const resize of requestedResizes(before, after)) this.#options.observe?.requested(resize);
  }

  /**
   * Allocates the desired resources if they fit, and otherwise sets the condition that says why. Returns the pod with its
   * allocated resources.
   */
  decide(pod: Pod): Pod {
    const allocation = this.#of(pod);
    const current = withResources(pod, allocation.resources);
    const { pending: before, ...conditions } = allocation.conditions;
    const { uid } = pod.metadata;
    if (current === pod) {
      this.#deferred.delete(uid);
      allocation.conditions = conditions;
      return pod;
    }
    const generation = pod.metadata.generation ?? 0;
    const refused = this.#refusal(pod, current);
    if (refused?.reason === 'Deferred') this.#deferred.set(uid, pod);
    else this.#deferred.delete(uid);
    if (refused === undefined) {
      allocation.resources = resourcesOf(pod);
      allocation.conditions = { inProgress: { generation } };
      if (before?.reason === 'Deferred')
        this.#options.observe?.accepted(before.generation === generation ? 'periodic_retry' : 'pod_updated');
      this.#record(pod, 'ResizeStarted', 'Pod resize started');
      if (this.#deferred.size > 0) this.#options.onRoom?.(this.deferred());
      return pod;
    }
    const { event = refused.reason, detail, ...refusal } = refused;
    allocation.conditions = { ...conditions, pending: { ...refusal, generation } };
    if (before?.reason !== refusal.reason || before.generation !== generation) {
      if (detail !== undefined) this.#options.observe?.infeasible(detail);
      this.#record(pod, `Resize${refusal.reason}`, `Pod resize ${event}`, refusal.message);
    }
    return current;
  }

  /** Returns the conditions of the pod's resize; none if it has no resize. */
  conditions(uid: string): ResizeConditions {
    return this.#allocations.get(uid)?.conditions ?? {};
  }

  /**
   * Records the error of a resize, or completes a resize if no changes are left. Ignores a pod whose resize is not in progress.
   */
  actuated(pod: Pod, outcome: { readonly left: number; readonly error?: string | undefined }): void {
    const allocation = this.#of(pod);
    const { inProgress } = allocation.conditions;
    if (inProgress === undefined) return;
    if (outcome.error !== undefined) {
      if (inProgress.error === outcome.error) return;
      allocation.conditions = { ...allocation.conditions, inProgress: { ...inProgress, error: outcome.error } };
      this.#record(pod, 'ResizeError', 'Pod resize error', outcome.error);
    } else if (outcome.left === 0) {
      const { inProgress: _done, ...otherConditions } = allocation.conditions;
      allocation.conditions = otherConditions;
      this.#record(this.allocated(pod), 'ResizeCompleted', 'Pod resize completed');
    }
  }

  /** Measures an attempt of the runtime to apply a resize. */
  attempted(attempt: Parameters<ResizeObserver['actuated']>[0]): void {
    this.#options.observe?.actuated(attempt);
  }

  /** Returns the uids of pods whose resize is deferred, in the order in which the kubelet tries them again. */
  deferred(): readonly string[] {
    const rank = (pod: Pod): number => (qosClass(pod) === 'Guaranteed' ? 0 : 1);
    return [...this.#deferred]
      .toSorted(([, a], [, b]) => (b.spec.priority ?? 0) - (a.spec.priority ?? 0) || rank(a) - rank(b))
      .map(([uid]) => uid);
  }

  /** Forgets the allocations of all other pods. */
  forget(podUids: ReadonlySet<string>): void {
    for (const pods of [this.#allocations, this.#deferred])
      for (const uid of pods.keys()) if (!podUids.has(uid)) pods.delete(uid);
  }

  /**
   * Returns the allocation of the pod. An unknown pod gets one from its status, or from its specification if it has not run.
   */
  #of(pod: Pod): Allocation {
    const existing = this.#allocations.get(pod.metadata.uid);
    if (existing !== undefined) return existing;
    const initial: Allocation = { resources: lastResources(pod), conditions: {} };
    // The resize may have been incomplete before the restart. The next reading of the runtime shows it.
    if (pod.status?.conditions?.some(({ type }) => (type as string) === 'PodResizeInProgress') === true)
      initial.conditions = { inProgress: { generation: pod.metadata.generation ?? 0 } };
    this.#allocations.set(pod.metadata.uid, initial);
    return initial;
  }

  /**
   * Returns why the desired resources cannot be allocated, or `undefined` if they fit. `current` has the allocated resources.
   */
  #refusal(pod: Pod, current: Pod): Refusal | undefined {
    const { node, others, cpuManagerPolicy, memoryManagerPolicy } = this.#options;
    const infeasible = (message: string, detail: string): Refusal => ({ reason: 'Infeasible', message, detail });
    if (isStaticPod(pod)) return infeasible('In-place resize of static-pods is not supported', 'static_pod');
    if (this.#options.mayUseSwap?.(pod) === true && changesSwap(pod, current))
      return infeasible('In-place resize of containers with swap is not supported.', 'swap_limitation');
    const guaranteed = qosClass(pod) === 'Guaranteed';
    const wanted = podResources(pod, requestsOf);
    const allocated = podResources(current, requestsOf);
    for (const [resource, manager, policy] of [
      ['cpu', 'CPU', cpuManagerPolicy],
      ['memory', 'Memory', memoryManagerPolicy],
    ] as const) {
      if (guaranteed && policy.toLowerCase() === 'static' && wanted[resource] !== allocated[resource])
        return infeasible(
          `Resize is infeasible for Guaranteed Pods alongside ${manager} Manager policy "${policy}"`,
          `guaranteed_pod_${resource}_manager_static_policy`,
        );
    }
    const allocatable = (node().status?.allocatable ?? {}) as Record<string, string>;
    const all = others(pod).map((other) => podResources(this.allocated(other), requestsOf));
    for (const [resource, units] of [
      ['cpu', milliUnits],
      ['memory', wholeUnits],
    ] as const) {
      const count = (text: string | undefined): bigint =>
        text === undefined ? 0n : BigInt(units(parseQuantity(text)));
      const [requested, capacity] = [count(wanted[resource]), count(allocatable[resource])];
      // A request that does not grow always fits, and so does any request while the allocatable resources are unknown.
      if (allocatable[resource] === undefined || requested <= count(allocated[resource])) continue;
      const used = all.reduce((sum, other) => sum + count(other[resource]), 0n);
      if (used + requested > capacity) {
        const numbers = `requested: ${requested}, used: ${used}, capacity: ${capacity}`;
        const message = `Node didn't have enough resource: ${resource}, ${numbers}`;
        return { reason: 'Deferred', event: `OutOf${resource}`, message };
      }
    }
    return undefined;
  }

  /** Emits an event about a resize. */
  #record(pod: Pod, reason: string, summary: string, error?: string): void {
    const type = error === undefined ? 'Normal' : 'Warning';
    this.#options.events.event(pod, type, reason, `${summary}: ${resizeDetails(pod, error)}`);
  }
}

/**
 * Whether the resize would change the swap of a container, which follows its memory request and changes only with a restart.
 */
function changesSwap(pod: Pod, current: Pod): boolean {
  const allocated = new Map(initAndMainContainers(current.spec).map((container) => [container.name, container]));
  return initAndMainContainers(pod.spec).some((container) => {
    const before = allocated.get(container.name);
    const restarts = (container.resizePolicy ?? []).some(
      ({ resourceName, restartPolicy }) => resourceName === 'memory' && restartPolicy === 'RestartContainer',
    );
    if (before === undefined || restarts) return false;
    return bytesOf(requestsOf(container)['memory']) !== bytesOf(requestsOf(before)['memory']);
  });
}
