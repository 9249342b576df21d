/** What the topology manager and the managers of single resources know of each other. */
import type { Container, Pod } from '../core-types.ts';
import { isSidecar } from '../kuberuntime/pod-containers.ts';
import type { ProviderHints, TopologyHint } from './topologymanager/hints.ts';

/** A manager of one kind of resource: says where it could take it from, and takes it. */
export interface HintProvider {
  containerHints(pod: Pod, container: Container): ProviderHints;
  /** For the pod as a whole. */
  podHints(pod: Pod): ProviderHints;
  /** Idempotent: what the container has already it keeps. Throws `AdmissionError`, or any other error for what nobody expects. */
  allocate(pod: Pod, container: Container): Promise<void>;
  /** Frees what the pod has. Idempotent. */
  release(podUid: string): void;
}

/** Where a container's resources shall come from; any node before it was decided. */
export interface AffinityStore {
  affinity(podUid: string, container: string): TopologyHint;
}

/** The pod is refused with this reason and message. */
export class AdmissionError extends Error {
  override readonly name = 'AdmissionError';
  readonly reason: string;
  constructor(reason: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.reason = reason;
  }
}

/** In the order in which they are given resources. */
export function resourceContainers(pod: Pod): readonly Container[] {
  return [...(pod.spec.initContainers ?? []), ...pod.spec.containers];
}

/** Ends before the others start: what it had they may have. */
export function isOrdinaryInit(pod: Pod, container: Container): boolean {
  const init = (pod.spec.initContainers ?? []).find(({ name }) => name === container.name);
  return init !== undefined && !isSidecar(init);
}

/** Of the whole pod: the containers that run together, or an init container with the sidecars before it, where that is more. */
export function podAmount(pod: Pod, amount: (container: Container) => number): number {
  let sidecars = 0;
  let peak = 0;
  for (const container of pod.spec.initContainers ?? []) {
    const wanted = amount(container);
    if (isSidecar(container)) sidecars += wanted;
    else peak = Math.max(peak, sidecars + wanted);
  }
  return Math.max(peak, sidecars + pod.spec.containers.reduce((sum, container) => sum + amount(container), 0));
}

/** Requests and limits of the pod as a whole: managers of containers leave such pods alone. */
export function hasPodLevelResources(pod: Pod): boolean {
  const { resources } = pod.spec as { readonly resources?: { readonly requests?: object; readonly limits?: object } };
  return Object.keys(resources?.requests ?? {}).length > 0 || Object.keys(resources?.limits ?? {}).length > 0;
}
