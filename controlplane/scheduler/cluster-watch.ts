/**
 * Keeps the scheduler's view of the cluster and its queue current from the informers, and decides which pods a change may make
 * schedulable. While a pod is being scheduled, changes wait, so that a decision that pauses sees one state of the cluster.
 */
import { jsonEqual } from '../../api/meta/json-equality.ts';
import type { Logger } from '../../api/component/logger.ts';
import type { Informers } from '../../api/client/informer.ts';
import type { Node, Pod, PodDisruptionBudget } from '../../api/kinds/kinds.ts';
import {
  csiNodes,
  namespaces,
  nodes,
  persistentVolumeClaims,
  persistentVolumes,
  podDisruptionBudgets,
  pods,
  storageClasses,
} from '../../api/client/resources.ts';
import type { Cluster, ClusterState } from './cluster-state.ts';
import { DeviceState } from './devices/device-state.ts';
import { PodInfo } from './pod-info.ts';
import type { Change, SchedulingQueue } from './scheduling-queue.ts';

/** The `spec.schedulerName` of pods that this scheduler binds. */
export const SCHEDULER_NAME = 'default-scheduler';

/** The cluster as the scheduler reads it, with the nominations that the scheduler sets. */
export interface ClusterWatch {
  readonly cluster: Cluster;
  readonly devices: DeviceState;
  budgets(): readonly PodDisruptionBudget[];
  /** Whether the informer still shows the pod. */
  exists(pod: PodInfo): boolean;
  /** Returns the pods that are nominated to the node. */
  nominatedTo(node: string): readonly PodInfo[];
  /** Nominates the pod to a node. An empty name withdraws the nomination. */
  nominate(info: PodInfo, node: string): void;
  /**
   * Delays changes until `decide` has ended. Rejects if `decide` does; the delayed changes are applied then as well.
   */
  hold(decide: () => Promise<void>): Promise<void>;
  /** Applies a change of the state or the queue now, or after the current decision. */
  change(apply: () => void): void;
  synced(signal: AbortSignal): Promise<void>;
  stop(): void;
}

/** Whether the pod is pending and belongs to this scheduler. */
function isOurs(pod: Pod): boolean {
  return (
    (pod.spec?.nodeName ?? '') === '' &&
    (pod.spec?.schedulerName ?? SCHEDULER_NAME) === SCHEDULER_NAME &&
    pod.metadata.deletionTimestamp === undefined &&
    !isFinished(pod)
  );
}

const isGated = (pod: Pod): boolean => (pod.spec?.schedulingGates ?? []).length > 0;
const isFinished = (pod: Pod): boolean => pod.status?.phase === 'Succeeded' || pod.status?.phase === 'Failed';

/** Adds handlers to the informers. Apart from devices, the state is complete once `synced` has resolved. */
export function watchCluster(
  informers: Informers,
  state: ClusterState,
  queue: SchedulingQueue,
  logger: Logger,
): ClusterWatch {
  const nominations = new Nominations();
  const gate = new ChangeGate(logger);
  const devices = new DeviceState(informers);
  const all = {
    pods: informers.for(pods),
    nodes: informers.for(nodes),
    namespaces: informers.for(namespaces),
    claims: informers.for(persistentVolumeClaims),
    volumes: informers.for(persistentVolumes),
    classes: informers.for(storageClasses),
    csiNodes: informers.for(csiNodes),
    budgets: informers.for(podDisruptionBudgets),
  };
  const announce = (change: Change) => ({
    add: () => gate.change(() => queue.changed(change)),
    update: () => gate.change(() => queue.changed(change)),
  });
  const registrations = [
    all.nodes.addHandler(gate.held(nodeHandler(state, queue))),
    all.pods.addHandler(gate.held(podHandler(state, queue, nominations))),
    all.claims.addHandler(announce('volume')),
    all.volumes.addHandler(announce('volume')),
    all.classes.addHandler(announce('volume')),
    all.csiNodes.addHandler(announce('csi-node')),
  ];
  const stopDevices = devices.onChange((change) => gate.change(() => queue.changed(change)));
  return {
    devices,
    cluster: {
      get nodes() {
        return state.nodes;
      },
      node: (name) => state.node(name),
      namespaceLabels: (namespace) => all.namespaces.get('', namespace)?.metadata.labels ?? {},
      claim: (namespace, name) => all.claims.get(namespace, name),
      volume: (name) => all.volumes.get('', name),
      volumes: () => all.volumes.list(),
      storageClass: (name) => all.classes.get('', name),
      csiNode: (name) => all.csiNodes.get('', name),
      deviceClaim: (namespace, name) => devices.deviceClaim(namespace, name),
      deviceClass: (name) => devices.deviceClass(name),
      extendedResources: () => devices.extendedResources(),
      extendedClaim: (pod) => devices.extendedClaim(pod),
      devicePools: () => devices.devicePools(),
      allocatedDevices: () => devices.allocatedDevices(),
      isBeingAllocated: (uid) => devices.isBeingAllocated(uid),
      deviceSelection: devices.deviceSelection,
      knowsDevices: () => devices.knowsDevices(),
    },
    budgets: () => all.budgets.list(),
    exists: (info) => all.pods.get(info.namespace, info.pod.metadata.name ?? '')?.metadata.uid === info.uid,
    nominatedTo: (node) => nominations.to(node),
    nominate: (info, node) => nominations.set(info, node),
    hold: (decide) => gate.hold(decide),
    change: (apply) => gate.change(apply),
    synced: async (signal) => {
      await Promise.all(Object.values(all).map((informer) => informer.synced(signal)));
    },
    stop: () => {
      stopDevices();
      for (const registration of registrations) registration.remove();
    },
  };
}

interface Handler<T> {
  add(object: T): void;
  update(previous: T, current: T): void;
  delete(object: T): void;
}

/** Applies changes in the order of their arrival, but not during a decision. */
export class ChangeGate {
  readonly #logger: Logger;
  #waiting: (() => void)[] | undefined;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  /** Makes a change at once, or after the decision that is under way. */
  change(apply: () => void): void {
    if (this.#waiting === undefined) apply();
    else this.#waiting.push(apply);
  }

  /**
   * Runs a decision and then applies the changes that arrived meanwhile. Rejects if the decision does. A change that fails is
   * logged.
   */
  async hold(decide: () => Promise<void>): Promise<void> {
    this.#waiting = [];
    try {
      await decide();
    } finally {
      const waiting = this.#waiting;
      this.#waiting = undefined;
      for (const apply of waiting) this.#applyLate(apply);
    }
  }

  #applyLate(apply: () => void): void {
    try {
      apply();
    } catch (error) {
      this.#logger.error({ err: error }, 'The scheduler could not apply a change of the cluster');
    }
  }

  /** Returns a handler that makes its changes through `change`. */
  held<T>(handler: Handler<T>): Handler<T> {
    return {
      add: (object) => this.change(() => handler.add(object)),
      update: (previous, current) => this.change(() => handler.update(previous, current)),
      delete: (object) => this.change(() => handler.delete(object)),
    };
  }
}

class Nominations {
  readonly #byNode = new Map<string, Map<string, PodInfo>>();
  readonly #nodeOf = new Map<string, string>();

  to(node: string): readonly PodInfo[] {
    return [...(this.#byNode.get(node)?.values() ?? [])];
  }

  set(info: PodInfo, node: string): void {
    this.delete(info.uid);
    if (node === '') return;
    this.#nodeOf.set(info.uid, node);
    const onNode = this.#byNode.get(node);
    if (onNode === undefined) this.#byNode.set(node, new Map([[info.uid, info]]));
    else onNode.set(info.uid, info);
  }

  delete(uid: string): void {
    const node = this.#nodeOf.get(uid);
    if (node === undefined) return;
    this.#nodeOf.delete(uid);
    const onNode = this.#byNode.get(node);
    onNode?.delete(uid);
    if (onNode?.size === 0) this.#byNode.delete(node);
  }
}

function nodeHandler(state: ClusterState, queue: SchedulingQueue) {
  return {
    add: (node: Node): void => {
      state.setNode(node);
      queue.changed('node-added');
    },
    update: (previous: Node, current: Node): void => {
      // Heartbeats do not change the node for scheduling.
      const changes = nodeChanges(previous, current);
      const images = !jsonEqual(previous.status?.images ?? [], current.status?.images ?? []);
      if (changes.length === 0 && !images) return;
      state.setNode(current);
      for (const change of changes) queue.changed(change);
    },
    delete: (node: Node): void => {
      state.removeNode(node.metadata.name ?? '');
      queue.changed('node-removed');
    },
  };
}

function nodeChanges(previous: Node, current: Node): Change[] {
  const changes: Change[] = [];
  if (!jsonEqual(previous.metadata.labels ?? {}, current.metadata.labels ?? {})) changes.push('node-labels');
  if (!jsonEqual(previous.status?.allocatable ?? {}, current.status?.allocatable ?? {}))
    changes.push('node-allocatable');
  if (!jsonEqual(previous.status?.declaredFeatures ?? [], current.status?.declaredFeatures ?? []))
    changes.push('node-features');
  const taints = (node: Node) => [node.spec?.taints ?? [], node.spec?.unschedulable ?? false];
  if (!jsonEqual(taints(previous), taints(current))) changes.push('node-taints');
  return changes;
}

function podHandler(state: ClusterState, queue: SchedulingQueue, nominations: Nominations) {
  const take = (previous: Pod | undefined, pod: Pod): void => {
    const uid = pod.metadata.uid ?? '';
    if (isFinished(pod)) {
      removed(pod);
      return;
    }
    if ((pod.spec?.nodeName ?? '') !== '') {
      queue.remove(uid);
      nominations.delete(uid);
      const isNew = previous === undefined || (previous.spec?.nodeName ?? '') === '';
      state.setPod(pod);
      if (isNew) queue.changed('pod-assigned');
      else if (!jsonEqual(previous.metadata.labels ?? {}, pod.metadata.labels ?? {})) queue.changed('pod-labels');
      // A resize may have freed resources, as a pod does that is gone.
      else if (!jsonEqual(previous.spec?.containers, pod.spec?.containers)) queue.changed('pod-gone');
      return;
    }
    if (!isOurs(pod) || isGated(pod)) {
      queue.remove(uid);
      return;
    }
    // A pod that is being bound returns to the queue if the binding fails.
    if (state.isAssumed(uid)) return;
    const info = new PodInfo(pod);
    nominations.set(info, pod.status?.nominatedNodeName ?? '');
    queue.put(info, { mayHelp: previous === undefined || changedByOthers(previous, pod) });
  };
  const removed = (pod: Pod): void => {
    const uid = pod.metadata.uid ?? '';
    queue.remove(uid);
    nominations.delete(uid);
    state.removePod(uid);
    if ((pod.spec?.nodeName ?? '') !== '') queue.changed('pod-gone');
  };
  return { add: (pod: Pod) => take(undefined, pod), update: take, delete: removed };
}

/** Whether fields have changed that the scheduler itself does not write. */
function changedByOthers(previous: Pod, current: Pod): boolean {
  const { labels = {}, annotations = {} } = previous.metadata;
  return !(
    jsonEqual(labels, current.metadata.labels ?? {}) &&
    jsonEqual(annotations, current.metadata.annotations ?? {}) &&
    jsonEqual(previous.spec, current.spec) &&
    jsonEqual(previous.status?.resourceClaimStatuses ?? [], current.status?.resourceClaimStatuses ?? [])
  );
}
