/**
 * What this node has allocated to each pod: what it was admitted with, until a resize fits. A resize that the node can never
 * take is infeasible, one that does not fit now is deferred; until then the pod goes on with what it has, and everything that
 * runs it sees the allocated resources in place of those that are wished for.
 *
 * Nothing is stored: after a restart the allocation is what the pod's own status says of its containers.
 */
import { compareQuantities, milliUnits, parseQuantity, wholeUnits } from '../../../api/meta/quantity.ts';
import type { Container, ContainerStatusJson, NodeObject, Pod, PodEventRecorder } from '../../model/core-types.ts';
import { limitsOf, podResources, qosClass, requestsOf } from '../../runtime/kuberuntime/resources.ts';
import type { ResizeConditions } from '../../runtime/kuberuntime/resize.ts';
import { isStaticPod } from './pod-manager.ts';

type Resources = NonNullable<Container['resources']>;

interface Allocation {
  /** By container. */
  resources: ReadonlyMap<string, Resources>;
  conditions: ResizeConditions;
}

export interface PodAllocationsOptions {
  readonly node: () => NodeObject;
  readonly events: PodEventRecorder;
  /** Pods that use the node beside this one. */
  readonly others: (pod: Pod) => readonly Pod[];
  /** `static` managers pin what a guaranteed pod has. */
  readonly cpuManagerPolicy: string;
  readonly memoryManagerPolicy: string;
}

export class PodAllocations {
  readonly #options: PodAllocationsOptions;
  readonly #allocations = new Map<string, Allocation>();

  constructor(options: PodAllocationsOptions) {
    this.#options = options;
  }

  /** The pod with what it has been allocated; nothing is decided. */
  allocated(pod: Pod): Pod {
    return withResources(pod, this.#of(pod).resources);
  }

  /** Takes up what the pod wishes where it fits, says why where it does not, and gives the pod as it is to be run. */
  decide(pod: Pod): Pod {
    const allocation = this.#of(pod);
    const current = withResources(pod, allocation.resources);
    const { pending: before, ...conditions } = allocation.conditions;
    if (current === pod) {
      allocation.conditions = conditions;
      return pod;
    }
    const generation = pod.metadata.generation ?? 0;
    const refusal = this.#refusal(pod, current);
    if (refusal === undefined) {
      allocation.resources = resourcesOf(pod);
      allocation.conditions = { inProgress: { generation } };
      this.#tell(pod, 'Normal', 'ResizeStarted', 'Pod resize started');
      return pod;
    }
    allocation.conditions = { ...conditions, pending: { ...refusal, generation } };
    if (before?.reason !== refusal.reason || before.generation !== generation) {
      const said = `Pod resize ${refusal.reason.toLowerCase()}`;
      this.#tell(pod, 'Warning', `Resize${refusal.reason}`, said, refusal.message);
    }
    return current;
  }

  conditions(uid: string): ResizeConditions {
    return this.#allocations.get(uid)?.conditions ?? {};
  }

  /** How far the runtime has come: nothing is left to do, or what went wrong. */
  actuated(pod: Pod, outcome: { readonly left: number; readonly error?: string | undefined }): void {
    const allocation = this.#of(pod);
    const { inProgress } = allocation.conditions;
    if (inProgress === undefined) return;
    if (outcome.error !== undefined) {
      if (inProgress.error === outcome.error) return;
      allocation.conditions = { ...allocation.conditions, inProgress: { ...inProgress, error: outcome.error } };
      this.#tell(pod, 'Warning', 'ResizeError', 'Pod resize error', outcome.error);
    } else if (outcome.left === 0) {
      const { inProgress: _done, ...rest } = allocation.conditions;
      allocation.conditions = rest;
      this.#tell(this.allocated(pod), 'Normal', 'ResizeCompleted', 'Pod resize completed');
    }
  }

  /** Pods whose resize waits for room. */
  deferred(): readonly string[] {
    return [...this.#allocations]
      .filter(([, { conditions }]) => conditions.pending?.reason === 'Deferred')
      .map(([uid]) => uid);
  }

  forget(known: ReadonlySet<string>): void {
    for (const uid of this.#allocations.keys()) if (!known.has(uid)) this.#allocations.delete(uid);
  }

  #of(pod: Pod): Allocation {
    const known = this.#allocations.get(pod.metadata.uid);
    if (known !== undefined) return known;
    const found: Allocation = { resources: lastResources(pod), conditions: {} };
    // Its actuation may not have come to its end before the restart: the next look at the runtime says.
    if (pod.status?.conditions?.some(({ type }) => (type as string) === 'PodResizeInProgress') === true)
      found.conditions = { inProgress: { generation: pod.metadata.generation ?? 0 } };
    this.#allocations.set(pod.metadata.uid, found);
    return found;
  }

  #refusal(
    pod: Pod,
    current: Pod,
  ): { readonly reason: 'Deferred' | 'Infeasible'; readonly message: string } | undefined {
    const { node, others, cpuManagerPolicy, memoryManagerPolicy } = this.#options;
    const infeasible = (message: string): { reason: 'Infeasible'; message: string } => ({
      reason: 'Infeasible',
      message,
    });
    if (isStaticPod(pod)) return infeasible('In-place resize of static-pods is not supported');
    const guaranteed = qosClass(pod) === 'Guaranteed';
    const wanted = podResources(pod, requestsOf);
    const has = podResources(current, requestsOf);
    for (const [resource, manager, policy] of [
      ['cpu', 'CPU', cpuManagerPolicy],
      ['memory', 'Memory', memoryManagerPolicy],
    ] as const) {
      if (guaranteed && policy.toLowerCase() === 'static' && wanted[resource] !== has[resource])
        return infeasible(`Resize is infeasible for Guaranteed Pods alongside ${manager} Manager policy "${policy}"`);
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
      // What does not grow fits, however full the node is.
      if (allocatable[resource] === undefined || requested <= count(has[resource])) continue;
      if (requested > capacity) {
        const numbers = `requested: ${requested}, capacity: ${capacity}`;
        return infeasible(`Node didn't have enough capacity: ${resource}, ${numbers}`);
      }
      const used = all.reduce((sum, other) => sum + count(other[resource]), 0n);
      if (used + requested > capacity) {
        const numbers = `requested: ${requested}, used: ${used}, capacity: ${capacity}`;
        return { reason: 'Deferred', message: `Node didn't have enough resource: ${resource}, ${numbers}` };
      }
    }
    return undefined;
  }

  #tell(pod: Pod, type: 'Normal' | 'Warning', reason: string, what: string, error?: string): void {
    const containers = resizable(pod).map(({ name, resources = {} }) => ({ name, resources }));
    const details = { containers, generation: pod.metadata.generation ?? 0, ...(error === undefined ? {} : { error }) };
    this.#options.events.event(pod, type, reason, `${what}: ${JSON.stringify(details)}`);
  }
}

function resizable(pod: Pod): readonly Container[] {
  return [...(pod.spec.initContainers ?? []), ...pod.spec.containers];
}

function resourcesOf(pod: Pod): Map<string, Resources> {
  return new Map(resizable(pod).map(({ name, resources = {} }) => [name, resources]));
}

/** Of a container that has run already, what its status says; else what it asks for. */
function lastResources(pod: Pod): Map<string, Resources> {
  const statuses: readonly ContainerStatusJson[] = [
    ...(pod.status?.containerStatuses ?? []),
    ...(pod.status?.initContainerStatuses ?? []),
  ];
  return new Map(
    resizable(pod).map((container) => {
      const status = statuses.find(({ name }) => name === container.name);
      const last = (status?.containerID ?? '') === '' ? undefined : status?.resources;
      return [container.name, last ?? container.resources ?? {}];
    }),
  );
}

/** The same object where nothing differs. */
function withResources(pod: Pod, resources: ReadonlyMap<string, Resources>): Pod {
  let differs = false;
  const replaced = (container: Container): Container => {
    const allocated = resources.get(container.name);
    if (allocated === undefined || sameResources(container, { ...container, resources: allocated })) return container;
    differs = true;
    return { ...container, resources: allocated };
  };
  const containers = pod.spec.containers.map(replaced);
  const initContainers = pod.spec.initContainers?.map(replaced);
  if (!differs) return pod;
  return {
    ...pod,
    spec: { ...pod.spec, containers, ...(initContainers === undefined ? {} : { initContainers }) },
  };
}

/** Only what can be resized counts. */
function sameResources(left: Container, right: Container): boolean {
  return [limitsOf, requestsOf].every((of) =>
    ['cpu', 'memory'].every((resource) => {
      const [a, b] = [of(left)[resource], of(right)[resource]];
      if (a === undefined || b === undefined) return a === b;
      return compareQuantities(parseQuantity(a), parseQuantity(b)) === 0;
    }),
  );
}
