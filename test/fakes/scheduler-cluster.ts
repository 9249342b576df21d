/** Implements a cluster in memory for tests of filters, scores and preemption, with a short notation for nodes and pods. */
import type { Node, Pod, PodDisruptionBudget } from '../../api/kinds/kinds.ts';
import { TimeSlice } from '../../api/machinery/time-slice.ts';
import { ClusterState, type Cluster } from '../../controlplane/scheduler/cluster-state.ts';
import { AllocatedDevices } from '../../controlplane/scheduler/devices/allocated-devices.ts';
import { DevicePools } from '../../controlplane/scheduler/devices/device-pools.ts';
import { DeviceSelection } from '../../controlplane/scheduler/devices/device-selection.ts';
import { ExtendedResources } from '../../controlplane/scheduler/devices/extended-resources.ts';
import { fitOf, type Fit, type Nominated } from '../../controlplane/scheduler/fit.ts';
import { PodInfo } from '../../controlplane/scheduler/pod-info.ts';
import { preempt, type Preemption } from '../../controlplane/scheduler/preemption.ts';

export interface PodWords {
  readonly cpu?: string;
  readonly priority?: number;
  readonly node?: string;
  readonly namespace?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly startTime?: string;
  readonly spec?: object;
  readonly status?: object;
  readonly metadata?: object;
}

/** Returns a pod with one container. Its uid is its name. */
export function podOf(name: string, words: PodWords = {}): Pod {
  const { cpu, priority = 0, node, namespace = 'default', labels = {}, startTime, spec = {}, status = {} } = words;
  const resources = cpu === undefined ? {} : { resources: { requests: { cpu } } };
  return {
    metadata: { name, namespace, uid: name, labels, ...words.metadata },
    spec: { priority, containers: [{ name: 'c', image: 'i', ...resources }], nodeName: node, ...spec },
    status: { startTime, ...status },
  } as unknown as Pod;
}

/** A cluster of nodes, pods and disruption budgets. */
export class SchedulerCluster {
  readonly state = new ClusterState();
  readonly budgets: PodDisruptionBudget[] = [];
  readonly namespaces = new Map<string, Readonly<Record<string, string>>>();
  readonly #clock: { monotonic(): number };

  constructor(clock: { monotonic(): number } = { monotonic: () => 0 }) {
    this.#clock = clock;
  }

  /** Adds a node with 8 GiB of memory and room for 110 pods. `node` replaces whole fields of the object. */
  node(name: string, words: { readonly cpu?: string; readonly labels?: object; readonly node?: object } = {}): this {
    const { cpu = '4', labels = {}, node = {} } = words;
    this.state.setNode({
      metadata: { name, labels: { 'kubernetes.io/hostname': name, ...labels } },
      status: { allocatable: { cpu, memory: '8Gi', pods: '110' } },
      ...node,
    } as unknown as Node);
    return this;
  }

  /** Adds a pod that runs on the node. */
  pod(name: string, node: string, words: PodWords = {}): this {
    this.state.setPod(podOf(name, { ...words, node }));
    return this;
  }

  /** Adds a disruption budget in the namespace `default`. */
  budget(name: string, matchLabels: object, disruptionsAllowed: number): this {
    this.budgets.push({
      metadata: { name, namespace: 'default' },
      spec: { selector: { matchLabels } },
      status: { disruptionsAllowed },
    } as unknown as PodDisruptionBudget);
    return this;
  }

  /** The cluster as plugins of the scheduler see it. */
  get cluster(): Cluster {
    const { state, namespaces } = this;
    return {
      get nodes() {
        return state.nodes;
      },
      node: (name) => state.node(name),
      namespaceLabels: (namespace) => namespaces.get(namespace) ?? {},
      claim: () => undefined,
      volume: () => undefined,
      volumes: () => [],
      storageClass: () => undefined,
      csiNode: () => undefined,
      deviceClaim: () => undefined,
      deviceClass: () => undefined,
      extendedResources: () => new ExtendedResources([]),
      extendedClaim: () => undefined,
      devicePools: () => new DevicePools([]),
      allocatedDevices: () => new AllocatedDevices(),
      isBeingAllocated: () => false,
      deviceSelection: new DeviceSelection(),
      knowsDevices: () => true,
    };
  }

  /** Runs the filters for the pod. */
  fit(pod: Pod, nominated: Nominated = () => []): Promise<Fit> {
    const slice = new TimeSlice(this.#clock);
    const preferred = pod.status?.nominatedNodeName ?? '';
    return fitOf(new PodInfo(pod), { cluster: this.cluster, nominated, slice, first: 0, preferred });
  }

  /** Returns the names of the nodes that the pod fits, sorted. */
  async fits(pod: Pod, nominated?: Nominated): Promise<string[]> {
    return (await this.fit(pod, nominated)).nodes.map(({ name }) => name).sort();
  }

  /** Returns which pods are evicted for the pod, or why none are. */
  async preempt(pod: Pod, nominated?: Nominated): Promise<Preemption | string> {
    const slice = new TimeSlice(this.#clock);
    const fit = await this.fit(pod, nominated);
    return preempt(new PodInfo(pod), fit, {
      cluster: this.cluster,
      budgets: this.budgets,
      random: () => 0,
      slice,
    });
  }
}
