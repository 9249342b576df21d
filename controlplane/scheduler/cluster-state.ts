/**
 * Holds the scheduler's view of the cluster: nodes with their pods, including assumed pods, whose binding is not confirmed yet.
 */
import type {
  CSINode,
  DeviceClass,
  Node,
  PersistentVolume,
  PersistentVolumeClaim,
  Pod,
  ResourceClaim,
  StorageClass,
} from '../../api/kinds/kinds.ts';
import { ownMember } from '../../api/meta/own-member.ts';
import type { DevicesInUse } from './devices/allocated-devices.ts';
import type { DevicePools } from './devices/device-pools.ts';
import type { DeviceSelection } from './devices/device-selection.ts';
import type { ExtendedResources } from './devices/extended-resources.ts';
import { NodeInfo } from './node-info.ts';
import { PodInfo } from './pod-info.ts';
import type { NamespaceLabels } from './pod-selection.ts';
import { REGION_LABEL, ZONE_LABEL } from '../../api/meta/well-known-labels.ts';

/** Looks up volumes and the objects on which they depend. */
export interface VolumeLookup {
  claim(namespace: string, name: string): PersistentVolumeClaim | undefined;
  volume(name: string): PersistentVolume | undefined;
  volumes(): readonly PersistentVolume[];
  storageClass(name: string): StorageClass | undefined;
  csiNode(name: string): CSINode | undefined;
}

/** Looks up devices and the claims for them. */
export interface DeviceLookup {
  deviceClaim(namespace: string, name: string): ResourceClaim | undefined;
  deviceClass(name: string): DeviceClass | undefined;
  extendedResources(): ExtendedResources;
  /** Returns the claim for extended resources that exists for the pod. */
  extendedClaim(pod: PodInfo): ResourceClaim | undefined;
  devicePools(): DevicePools;
  /** Returns the allocated devices. Devices whose allocation is still being written are among them. */
  allocatedDevices(): DevicesInUse;
  /** Whether the allocation of the claim with that UID is being written. */
  isBeingAllocated(claimUid: string): boolean;
  readonly deviceSelection: DeviceSelection;
  /** Whether all devices and claims are known. */
  knowsDevices(): boolean;
}

/** The view of the cluster that filters and scores read. */
export interface Cluster extends VolumeLookup, DeviceLookup, NamespaceLabels {
  /** The nodes in an order that alternates between zones, so that any part of the list is spread over the zones. */
  readonly nodes: readonly NodeInfo[];
  node(name: string): NodeInfo | undefined;
}

/** Holds the nodes and their pods. */
export class ClusterState {
  readonly #nodes = new Map<string, NodeInfo>();
  /** The pods on nodes that the API has not shown yet, or no longer shows. */
  readonly #podsWithoutNode = new Map<string, Map<string, PodInfo>>();
  /** The name of each pod's node by UID, assumed pods included. */
  readonly #nodeOfPod = new Map<string, string>();
  readonly #assumed = new Set<string>();
  /** The value of `nodes`, until a node is added, replaced or removed. */
  #nodeList: readonly NodeInfo[] | undefined;

  /** Returns the counts that the metrics of kube-scheduler's cache show. */
  sizes(): { readonly nodes: number; readonly pods: number; readonly assumed: number } {
    return { nodes: this.#nodes.size, pods: this.#nodeOfPod.size, assumed: this.#assumed.size };
  }

  /** All nodes, taken from the zones in turn. */
  get nodes(): readonly NodeInfo[] {
    this.#nodeList ??= byTurnsOfZones([...this.#nodes.values()]);
    return this.#nodeList;
  }

  node(name: string): NodeInfo | undefined {
    return this.#nodes.get(name);
  }

  /** Adds or replaces a node. It gets the pods that were bound to it before it was known. */
  setNode(node: Node): void {
    const name = node.metadata.name ?? '';
    const info = new NodeInfo(node, this.#nodes.get(name));
    for (const pod of this.#podsWithoutNode.get(name)?.values() ?? []) info.add(pod);
    this.#nodes.set(name, info);
    this.#podsWithoutNode.delete(name);
    this.#nodeList = undefined;
  }

  /** Removes a node. Its pods are kept for the case that it is added again. */
  removeNode(name: string): void {
    const pods = this.#nodes.get(name)?.pods;
    if (pods !== undefined && pods.size > 0) this.#podsWithoutNode.set(name, new Map(pods));
    this.#nodes.delete(name);
    this.#nodeList = undefined;
  }

  /** Sets a pod that the API shows on a node. */
  setPod(pod: Pod): void {
    const info = new PodInfo(pod);
    this.#assumed.delete(info.uid);
    this.#place(info, pod.spec?.nodeName ?? '');
  }

  /** Adds a pod that is about to be bound. */
  assume(info: PodInfo, node: string): void {
    this.#assumed.add(info.uid);
    this.#place(info, node);
  }

  /** Removes an assumed pod whose binding failed. */
  forget(uid: string): void {
    if (this.#assumed.delete(uid)) this.removePod(uid);
  }

  /** Whether the pod counts on a node although its binding has not been seen yet. */
  isAssumed(uid: string): boolean {
    return this.#assumed.has(uid);
  }

  removePod(uid: string): void {
    const node = this.#nodeOfPod.get(uid);
    if (node === undefined) return;
    this.#nodeOfPod.delete(uid);
    this.#assumed.delete(uid);
    this.#nodes.get(node)?.remove(uid);
    const withoutNode = this.#podsWithoutNode.get(node);
    withoutNode?.delete(uid);
    if (withoutNode?.size === 0) this.#podsWithoutNode.delete(node);
  }

  #place(info: PodInfo, node: string): void {
    if (this.#nodeOfPod.get(info.uid) !== node) this.removePod(info.uid);
    this.#nodeOfPod.set(info.uid, node);
    const nodeInfo = this.#nodes.get(node);
    if (nodeInfo !== undefined) {
      nodeInfo.add(info);
      return;
    }
    const withoutNode = this.#podsWithoutNode.get(node);
    if (withoutNode === undefined) this.#podsWithoutNode.set(node, new Map([[info.uid, info]]));
    else withoutNode.set(info.uid, info);
  }
}

const ZONE_LABELS = [REGION_LABEL, ZONE_LABEL];

function byTurnsOfZones(nodes: readonly NodeInfo[]): NodeInfo[] {
  const zones = new Map<string, NodeInfo[]>();
  for (const node of nodes) {
    const zone = ZONE_LABELS.map((label) => ownMember(node.labels, label) ?? '').join('/');
    const members = zones.get(zone);
    if (members === undefined) zones.set(zone, [node]);
    else members.push(node);
  }
  const longest = Math.max(0, ...[...zones.values()].map((members) => members.length));
  const list: NodeInfo[] = [];
  for (let at = 0; at < longest; at += 1) {
    for (const members of zones.values()) {
      const node = members[at];
      if (node !== undefined) list.push(node);
    }
  }
  return list;
}
