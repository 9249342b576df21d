/**
 * Collects hints from every resource manager on which NUMA nodes can serve a container (or the whole pod), and merges them by
 * its policy. It rejects pods that the policy does not admit, and has the resources allocated on the nodes that it chose.
 */
import { initAndMainContainers } from '../../../../api/kinds/pod-containers.ts';
import type { Clock } from '../../../../api/machinery/clock.ts';
import type { Container, Pod } from '../../../base/model/pod.ts';
import { AdmissionError, type AffinityStore, type HintProvider } from '../hint-provider.ts';
import { type TopologyPolicyOptions, PolicyOptionError } from '../policy-options.ts';
import type { NumaNode } from '../topology/host-topology.ts';
import { mergeHints, type ProviderHints, type TopologyHint, type TopologyPolicy } from './hints.ts';

interface TopologyManagerOptions {
  readonly policy: TopologyPolicy;
  readonly scope: 'container' | 'pod';
  readonly options: TopologyPolicyOptions;
  readonly numaNodes: readonly NumaNode[];
  readonly clock: Clock;
  readonly observe: (admission: { readonly tookMs: number; readonly refused: boolean }) => void;
  /** Called for each container or pod whose resources must be on one NUMA node, which only `single-numa-node` guarantees. */
  readonly onAligned?: (scope: 'container' | 'pod', isAligned: boolean) => void;
}

const ANY_NODE: TopologyHint = { affinity: undefined, preferred: false };

/** Owns the affinity of admitted containers. `admit` throws an `AdmissionError` if the policy rejects the pod. */
export class TopologyManager implements AffinityStore {
  readonly #options: TopologyManagerOptions;
  readonly #providers: HintProvider[] = [];
  readonly #hints = new Map<string, Map<string, TopologyHint>>();

  /** Throws `PolicyOptionError` on a host with more NUMA nodes than allowed. */
  constructor(options: TopologyManagerOptions) {
    this.#options = options;
    if (options.policy !== 'none' && options.numaNodes.length > options.options.maxNumaNodes)
      throw new PolicyOptionError(
        `unsupported on machines with more than ${options.options.maxNumaNodes} NUMA Nodes: raise max-allowable-numa-nodes in --topology-manager-policy-options`,
      );
  }

  /** Adds a provider of hints. */
  addProvider(provider: HintProvider): void {
    this.#providers.push(provider);
  }

  affinity(podUid: string, container: string): TopologyHint {
    return this.#hints.get(podUid)?.get(container) ?? ANY_NODE;
  }

  /**
   * Allocates the resources of a pod. Throws `AdmissionError`, or an error of a provider. The caller must then release what was
   * already allocated.
   */
  async admit(pod: Pod): Promise<void> {
    const { clock, observe, policy, scope } = this.#options;
    const fromMs = clock.monotonic();
    let refused = true;
    try {
      if (policy === 'none')
        for (const container of initAndMainContainers(pod.spec)) await this.#allocate(pod, container);
      else if (scope === 'pod') await this.#admitPod(pod, policy);
      else await this.#admitContainers(pod, policy);
      refused = false;
    } finally {
      observe({ tookMs: clock.monotonic() - fromMs, refused });
    }
  }

  async #admitContainers(pod: Pod, policy: Exclude<TopologyPolicy, 'none'>): Promise<void> {
    for (const container of initAndMainContainers(pod.spec)) {
      const hints = this.#providers.map((provider) => provider.containerHints(pod, container));
      this.#remember(pod, container, this.#merge(hints, policy));
      await this.#allocate(pod, container);
      this.#reportAligned(policy, true);
    }
  }

  async #admitPod(pod: Pod, policy: Exclude<TopologyPolicy, 'none'>): Promise<void> {
    const hint = this.#merge(
      this.#providers.map((provider) => provider.podHints(pod)),
      policy,
    );
    for (const container of initAndMainContainers(pod.spec)) {
      this.#remember(pod, container, hint);
      await this.#allocate(pod, container);
    }
    this.#reportAligned(policy, true);
  }

  #reportAligned(policy: TopologyPolicy, isAligned: boolean): void {
    const { onAligned, scope } = this.#options;
    if (policy === 'single-numa-node') onAligned?.(scope, isAligned);
  }

  #merge(hints: readonly ProviderHints[], policy: Exclude<TopologyPolicy, 'none'>): TopologyHint {
    const { numaNodes, options } = this.#options;
    const { hint, admitted } = mergeHints(hints, { policy, numaNodes, preferClosest: options.preferClosest });
    if (!admitted) this.#reportAligned(policy, false);
    if (!admitted)
      throw new AdmissionError('TopologyAffinityError', 'Resources cannot be allocated with Topology locality');
    return hint;
  }

  #remember(pod: Pod, container: Container, hint: TopologyHint): void {
    const ofPod = this.#hints.get(pod.metadata.uid) ?? new Map<string, TopologyHint>();
    ofPod.set(container.name, hint);
    this.#hints.set(pod.metadata.uid, ofPod);
  }

  async #allocate(pod: Pod, container: Container): Promise<void> {
    for (const provider of this.#providers) await provider.allocate(pod, container);
  }

  release(podUid: string): void {
    this.#hints.delete(podUid);
    for (const provider of this.#providers) provider.release(podUid);
  }
}
