/**
 * What the scheduler believes of the cluster: nodes with the pods on them, those included that were assigned but whose
 * binding has not come back yet (assumed). Kept up to date by informers, read by filters and scores within one turn.
 */
import type {
  CSINode,
  Node,
  PersistentVolume,
  PersistentVolumeClaim,
  Pod,
  StorageClass,
} from '../../api/machinery/kinds.ts';
import { amountOf, podRequests, resourcesOf, type PodRequests, type Resources } from './pod-requests.ts';

export type Spec = NonNullable<Pod['spec']>;
export type AffinityTerm = NonNullable<
  NonNullable<NonNullable<Spec['affinity']>['podAffinity']>['requiredDuringSchedulingIgnoredDuringExecution']
>[number];

export interface HostPort {
  readonly ip: string;
  readonly protocol: string;
  readonly port: number;
}

/** A pod with what filters ask of it, worked out once. */
export class PodInfo {
  readonly pod: Pod;
  readonly requests: PodRequests;
  readonly hostPorts: readonly HostPort[];
  readonly requiredAffinity: readonly AffinityTerm[];
  readonly requiredAntiAffinity: readonly AffinityTerm[];

  constructor(pod: Pod) {
    this.pod = pod;
    this.requests = podRequests(pod);
    this.hostPorts = hostPortsOf(pod);
    const affinity = pod.spec?.affinity;
    this.requiredAffinity = affinity?.podAffinity?.requiredDuringSchedulingIgnoredDuringExecution ?? [];
    this.requiredAntiAffinity = affinity?.podAntiAffinity?.requiredDuringSchedulingIgnoredDuringExecution ?? [];
  }

  get uid(): string {
    return this.pod.metadata.uid ?? '';
  }

  get namespace(): string {
    return this.pod.metadata.namespace ?? '';
  }

  get labels(): Readonly<Record<string, string>> {
    return this.pod.metadata.labels ?? {};
  }

  get priority(): number {
    return this.pod.spec?.priority ?? 0;
  }

  get claimNames(): string[] {
    const names: string[] = [];
    for (const volume of this.pod.spec?.volumes ?? []) {
      if (volume.persistentVolumeClaim !== undefined) names.push(volume.persistentVolumeClaim.claimName);
      else if (volume.ephemeral !== undefined) names.push(`${this.pod.metadata.name ?? ''}-${volume.name}`);
    }
    return names;
  }
}

function hostPortsOf(pod: Pod): HostPort[] {
  const sidecars = (pod.spec?.initContainers ?? []).filter((container) => container.restartPolicy === 'Always');
  return [...(pod.spec?.containers ?? []), ...sidecars].flatMap((container) =>
    (container.ports ?? []).flatMap((port) =>
      port.hostPort === undefined || port.hostPort === 0
        ? []
        : [{ ip: port.hostIP ?? '0.0.0.0', protocol: port.protocol ?? 'TCP', port: port.hostPort }],
    ),
  );
}

export class NodeInfo {
  readonly node: Node;
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly allocatable: Resources;
  readonly allowedPods: number;
  /** Bytes of each image by every name of it. */
  readonly images: ReadonlyMap<string, number>;
  readonly pods = new Map<string, PodInfo>();
  readonly requested: Resources = new Map();
  readonly requestedForScoring: Resources = new Map();

  constructor(node: Node, pods: Iterable<PodInfo> = []) {
    this.node = node;
    this.name = node.metadata.name ?? '';
    this.labels = node.metadata.labels ?? {};
    const allocatable = node.status?.allocatable ?? {};
    this.allocatable = resourcesOf(allocatable);
    this.allowedPods = amountOf('pods', allocatable['pods'] ?? '0');
    const images = new Map<string, number>();
    for (const image of node.status?.images ?? []) {
      for (const name of image.names ?? []) images.set(name, image.sizeBytes ?? 0);
    }
    this.images = images;
    for (const pod of pods) this.add(pod);
  }

  get taints() {
    return this.node.spec?.taints ?? [];
  }

  add(info: PodInfo): void {
    this.remove(info.uid);
    this.pods.set(info.uid, info);
    change(this.requested, info.requests.actual, 1);
    change(this.requestedForScoring, info.requests.forScoring, 1);
  }

  remove(uid: string): void {
    const info = this.pods.get(uid);
    if (info === undefined) return;
    this.pods.delete(uid);
    change(this.requested, info.requests.actual, -1);
    change(this.requestedForScoring, info.requests.forScoring, -1);
  }

  /** For trying out what would be if some pods were not there. */
  clone(): NodeInfo {
    return new NodeInfo(this.node, this.pods.values());
  }
}

function change(into: Resources, by: Resources, sign: 1 | -1): void {
  for (const [name, amount] of by) into.set(name, (into.get(name) ?? 0) + sign * amount);
}

/** What is known of volumes. */
export interface VolumeLookup {
  claim(namespace: string, name: string): PersistentVolumeClaim | undefined;
  volume(name: string): PersistentVolume | undefined;
  volumes(): readonly PersistentVolume[];
  storageClass(name: string): StorageClass | undefined;
  csiNode(name: string): CSINode | undefined;
}

/** What filters and scores see. */
export interface Cluster extends VolumeLookup {
  readonly nodes: readonly NodeInfo[];
  namespaceLabels(namespace: string): Readonly<Record<string, string>>;
}

export class ClusterState {
  readonly #nodes = new Map<string, NodeInfo>();
  /** Pods on nodes that are not known (yet). */
  readonly #homeless = new Map<string, Map<string, PodInfo>>();
  /** Node of each pod by uid, assumed ones included. */
  readonly #nodeOfPod = new Map<string, string>();
  readonly #assumed = new Set<string>();
  #list: readonly NodeInfo[] | undefined;

  get nodes(): readonly NodeInfo[] {
    this.#list ??= [...this.#nodes.values()];
    return this.#list;
  }

  node(name: string): NodeInfo | undefined {
    return this.#nodes.get(name);
  }

  setNode(node: Node): void {
    const name = node.metadata.name ?? '';
    const pods = this.#nodes.get(name)?.pods ?? this.#homeless.get(name);
    this.#nodes.set(name, new NodeInfo(node, pods?.values() ?? []));
    this.#homeless.delete(name);
    this.#list = undefined;
  }

  removeNode(name: string): void {
    const pods = this.#nodes.get(name)?.pods;
    if (pods !== undefined && pods.size > 0) this.#homeless.set(name, new Map(pods));
    this.#nodes.delete(name);
    this.#list = undefined;
  }

  /** A pod that the API shows on a node. */
  setPod(pod: Pod): void {
    const info = new PodInfo(pod);
    this.#assumed.delete(info.uid);
    this.#place(info, pod.spec?.nodeName ?? '');
  }

  /** A pod that is about to be bound. */
  assume(info: PodInfo, node: string): void {
    this.#assumed.add(info.uid);
    this.#place(info, node);
  }

  /** The binding failed. */
  forget(uid: string): void {
    if (this.#assumed.delete(uid)) this.removePod(uid);
  }

  isAssumed(uid: string): boolean {
    return this.#assumed.has(uid);
  }

  removePod(uid: string): void {
    const node = this.#nodeOfPod.get(uid);
    if (node === undefined) return;
    this.#nodeOfPod.delete(uid);
    this.#assumed.delete(uid);
    this.#nodes.get(node)?.remove(uid);
    const homeless = this.#homeless.get(node);
    homeless?.delete(uid);
    if (homeless?.size === 0) this.#homeless.delete(node);
  }

  #place(info: PodInfo, node: string): void {
    if (this.#nodeOfPod.get(info.uid) !== node) this.removePod(info.uid);
    this.#nodeOfPod.set(info.uid, node);
    const known = this.#nodes.get(node);
    if (known !== undefined) {
      known.add(info);
      return;
    }
    const homeless = this.#homeless.get(node);
    if (homeless === undefined) this.#homeless.set(node, new Map([[info.uid, info]]));
    else homeless.set(info.uid, info);
  }
}
