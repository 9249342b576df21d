/**
 * Defines the interface between the topology manager and the managers of single resources, with the errors and pod
 * calculations that they share.
 */
import type { Container, Pod } from '../../base/model/pod.ts';
import { isSidecar } from '../../runtime/kuberuntime/pod-containers.ts';
import type { ProviderHints, TopologyHint } from './topologymanager/hints.ts';

/** A manager of one kind of resource. It offers topology hints and allocates the resource. */
export interface HintProvider {
  /** Returns hints for one container. */
  containerHints(pod: Pod, container: Container): ProviderHints;
  /** Returns hints for the pod as a whole. */
  podHints(pod: Pod): ProviderHints;
  /**
   * Allocates the container's resources. Idempotent: a container keeps what it already has. Throws `AdmissionError` for
   * an expected rejection, and other errors for unexpected failures.
   */
  allocate(pod: Pod, container: Container): Promise<void>;
  /** Releases all resources of the pod. Idempotent. */
  release(podUid: string): void;
}

/**
 * Stores the NUMA affinity that the topology manager chose for a container. Without a decision, the affinity is any
 * node.
 */
export interface AffinityStore {
  affinity(podUid: string, container: string): TopologyHint;
}

/** The pod is rejected with this reason and message. */
export class AdmissionError extends Error {
  override readonly name = 'AdmissionError';
  readonly reason: string;
  constructor(reason: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.reason = reason;
  }
}

/**
 * Whether the container is an init container but not a sidecar. It terminates before the other containers start, so
 * they can reuse its resources.
 */
export function isOrdinaryInit(pod: Pod, container: Container): boolean {
  const init = (pod.spec.initContainers ?? []).find(({ name }) => name === container.name);
  return init !== undefined && !isSidecar(init);
}

/**
 * Returns what the whole pod needs: the sum over the containers that run together, or the need of an init container
 * together with the sidecars before it if that is more.
 */
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

/**
 * Whether the pod has pod-level requests or limits. The CPU and memory managers do not allocate to the containers of
 * such pods.
 */
export function hasPodLevelResources(pod: Pod): boolean {
  const { resources } = pod.spec as { readonly resources?: { readonly requests?: object; readonly limits?: object } };
  return Object.keys(resources?.requests ?? {}).length > 0 || Object.keys(resources?.limits ?? {}).length > 0;
}
