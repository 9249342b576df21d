/**
 * The types and interfaces that the parts of the node agent share: pods, sources, volumes, probes, statuses, node and events.
 * `assembly/` connects the implementations, and each part is tested with fakes of the others.
 *
 * Times inside objects are strings as on the wire (`Pod`, `PodStatus` below), never `Date`.
 */
import type {
  V1Container,
  V1ContainerStatus,
  V1EphemeralContainer,
  V1Node,
  V1Pod,
  V1PodCondition,
  V1PodSpec,
  V1PodStatus,
} from '@kubernetes/client-node';
import type { KubeObject, ObjectMeta } from '../../api/meta/object.ts';
import type { ContainerId, Device, Mount, SandboxId, StreamIo } from '../runtime/runtime.ts';

/**
 * Converts a type of the client package to its form on the wire: times are RFC 3339 strings, and an absent field may be
 * `undefined`.
 */
export type Wire<T> = T extends Date
  ? string
  : T extends (infer E)[]
    ? Wire<E>[]
    : T extends object
      ? { [K in keyof T]: Wire<T[K]> }
      : T;

export type PodSpec = Wire<V1PodSpec>;
export type Volume = NonNullable<PodSpec['volumes']>[number];
export type PodStatus = Wire<V1PodStatus>;
export type PodCondition = Wire<V1PodCondition>;
export type ContainerStatusJson = Wire<V1ContainerStatus>;
export type Container = Wire<V1Container>;
export type EphemeralContainer = Wire<V1EphemeralContainer>;
/** A defaulted and valid pod, as the sources report it. It is shared and must not be changed in place. */
export type Pod = Omit<Wire<V1Pod>, 'metadata' | 'spec' | 'status'> & {
  metadata: PodMetadata;
  spec: PodSpec;
  status?: PodStatus;
};
export type PodMetadata = ObjectMeta & { name: string; namespace: string; uid: string };
export type NodeObject = Omit<Wire<V1Node>, 'metadata'> & { metadata: ObjectMeta & { name: string } };

/* ---- Sources of pods ---- */

export type PodSourceName = 'api' | 'file' | 'http' | 'submitted';

/**
 * Changes of pods of one source, in the order of their creation. `remove`: the pod is gone from its source. `delete`: its
 * `deletionTimestamp` is set. `reconcile`: only its status differs from the agent's.
 */
export interface PodUpdate {
  readonly type: 'add' | 'update' | 'remove' | 'delete' | 'reconcile';
  readonly source: PodSourceName;
  readonly pods: readonly Pod[];
}

export interface PodConfig {
  /** Calls `onUpdate` in order and synchronously for each update, until the signal aborts. */
  run(signal: AbortSignal, onUpdate: (update: PodUpdate) => void): Promise<void>;
  /** Whether every configured source has reported its first full set, even an empty one. Nothing is cleaned up before. */
  allSourcesReady(): boolean;
}

export const ANNOTATION_CONFIG_SOURCE = 'kubernetes.io/config.source';
export const ANNOTATION_CONFIG_HASH = 'kubernetes.io/config.hash';
export const ANNOTATION_CONFIG_MIRROR = 'kubernetes.io/config.mirror';
export const ANNOTATION_CONFIG_SEEN = 'kubernetes.io/config.seen';

/** Maintains the mirror pods of static pods. Absent without an API server. */
export interface MirrorPods {
  /**
   * Creates the mirror pod, and deletes one of an earlier manifest. Resolves to whether it exists; if not, the caller retries.
   */
  ensure(pod: Pod, mirror: Pod | undefined): Promise<boolean>;
  /** Deletes this mirror pod, but not a newer pod of the same name. */
  delete(mirror: Pod): Promise<void>;
}

/* ---- Config maps, secrets, service-account tokens ---- */

/**
 * Caches the objects that pods refer to. They are watched while a pod that refers to them is registered. Resolves to `undefined`
 * if an object does not exist.
 */
export interface ReferencedObjects {
  registerPod(pod: Pod): void;
  unregisterPod(pod: Pod): void;
  configMap(namespace: string, name: string): Promise<KubeObject | undefined>;
  secret(namespace: string, name: string): Promise<KubeObject | undefined>;
}

/** Lists the services from which containers get environment variables. */
export interface ServiceLister {
  synced(): boolean;
  list(): readonly KubeObject[];
}

/* ---- Volumes ---- */

export interface PreparedMounts {
  /** Mounts of image volumes have `image` set and an empty `hostPath`: the caller pulls the image and sets its id. */
  readonly mounts: readonly Mount[];
  readonly devices: readonly Device[];
}

export interface PodVolume {
  readonly name: string;
  readonly path: string;
  /** The data is removed with the pod and counts as the pod's storage. */
  readonly ephemeral: boolean;
  /** Measures the usage through the driver. Resolves to `undefined` if the driver does not report it. */
  readonly measure?: () => Promise<VolumeMeasure | undefined>;
}

export interface VolumeMeasure {
  readonly capacityBytes: number;
  readonly availableBytes: number;
  readonly usedBytes: number;
  readonly inodes: number;
  readonly inodesFree: number;
  readonly inodesUsed: number;
}

export interface VolumeManager {
  /**
   * Sets up every volume of the pod, and keeps them up to date until `unmount`. Idempotent. Throws `VolumeError` with the
   * kubelet's message (`unmounted volumes=[a], unattached volumes=[], failed to process volumes=[]: context deadline exceeded`)
   * after the mount timeout. Records the `FailedMount` events itself.
   */
  mount(pod: Pod, signal: AbortSignal): Promise<void>;
  /**
   * Returns the mounts of a container before its start. The volumes must be ready. Prepares sub-paths safely and expands
   * `subPathExpr` with `env`.
   */
  containerMounts(pod: Pod, container: Container, env: ReadonlyMap<string, string>): Promise<PreparedMounts>;
  /** Whether the runtime supports recursive read-only mounts. */
  recursiveReadOnly(): boolean;
  /** Returns the text of a file of a ready volume. Throws if the volume or the file does not exist. */
  fileText(pod: Pod, volumeName: string, path: string): Promise<string>;
  /** Removes the sub-path mounts of a terminated container that is not restarted. Idempotent. */
  releaseContainer(podUid: string, containerName: string): Promise<void>;
  /** Unmounts all volumes of a terminated pod and removes its data (emptyDir). Resolves when all of it is gone. Idempotent. */
  unmount(pod: Pod, signal: AbortSignal): Promise<void>;
  /** Whether something is mounted below `<rootDir>/pods/<uid>`. */
  hasMounts(podUid: string): boolean;
  /** Unmounts and removes the directories `<rootDir>/pods/<uid>` of unknown pods, which remain after a restart of the agent. */
  cleanOrphans(known: () => ReadonlySet<string>): Promise<void>;
  /** Returns the directories of the pod's volumes on the host, for usage statistics and eviction. */
  podVolumes(podUid: string): readonly PodVolume[];
  /** Returns the supplemental groups that volumes require (`pv.beta.kubernetes.io/gid`). */
  extraSupplementalGroups(pod: Pod): readonly number[];
  close(): Promise<void>;
}

export class VolumeError extends Error {
  override readonly name = 'VolumeError';
  /** How long to wait before the next attempt. */
  readonly retryAfterMs: number;
  constructor(message: string, { retryAfterMs = 1_000, ...options }: ErrorOptions & { retryAfterMs?: number } = {}) {
    super(message, options);
    this.retryAfterMs = retryAfterMs;
  }
}

/* ---- Probes ---- */

export type ProbeKind = 'liveness' | 'readiness' | 'startup';
export type ProbeResult = 'success' | 'failure' | 'unknown';

/** The results that the prober has now. */
export interface ProbeResults {
  /** Returns `undefined` if the container has no such probe, or none that has run. */
  result(kind: ProbeKind, containerId: string): ProbeResult | undefined;
}

export interface ProbeManager extends ProbeResults {
  addPod(pod: Pod): void;
  removePod(podUid: string): void;
  /** Stops the liveness and startup probes of a terminating pod. Its readiness probes continue. */
  stopLivenessAndStartup(podUid: string): void;
  /** Probes the running containers that are not started or not ready yet now, if they have no result. */
  probeSoon(podUid: string, status: PodStatus): void;
  /** Registers a listener for changed results. The pod then needs a sync (liveness, startup) or a status update (readiness). */
  onChange(
    listener: (change: {
      readonly podUid: string;
      readonly containerId: string;
      readonly kind: ProbeKind;
      readonly result: ProbeResult;
    }) => void,
  ): void;
  cleanup(desired: ReadonlySet<string>): void;
  close(): Promise<void>;
}

/* ---- Status ---- */

export interface StatusManager {
  /** Normalizes and stores the status, and sends it if it differs from the status at the API server. */
  set(pod: Pod, status: PodStatus): void;
  /** Returns the last status. It is `undefined` after a restart, when the pod has the API server's status. */
  get(podUid: string): PodStatus | undefined;
  /** Recomputes `started`, `ready` and the conditions that depend on them, because a probe has a new result. */
  applyProbeResults(podUid: string, probes: ProbeResults): void;
  /** Sends the status again if another writer changed it, such as the node controller after the node was unreachable. */
  reconcile(pod: Pod): void;
  /**
   * Makes the status final, because no container runs any more: running containers become terminated (`ContainerStatusUnknown`,
   * exit code 137), and the phase becomes final.
   */
  terminate(pod: Pod): void;
  /** Removes the statuses of pods that are not in the set. */
  removeOrphans(known: ReadonlySet<string>): void;
  run(signal: AbortSignal): Promise<void>;
}

/** What the status manager needs from the pod workers before it deletes a pod from the API server. */
export interface PodDeletionSafety {
  podCouldHaveRunningContainers(pod: Pod): boolean;
  podIsFinished(pod: Pod): boolean;
}

/* ---- Node ---- */

export interface NodeInfo {
  readonly name: string;
  /** Returns the node as the API server last had it, else as the agent would register it. */
  node(): NodeObject;
  /** Returns the host's addresses, at most one for each family. The first is the primary one. */
  hostIps(): readonly string[];
  /** Returns the allocatable resources as quantities, as in `status.allocatable`. */
  allocatable(): Readonly<Record<string, string>>;
  podCidrs(): readonly string[];
  onPodCidrs(listener: (cidrs: readonly string[]) => void): void;
}

/* ---- Events ---- */

export interface PodEventRecorder {
  /**
   * Records an event. `fieldPath` names the container, for example `spec.containers{main}`. Events are bounded and rate limited.
   * Never throws.
   */
  event(
    pod: Pod,
    type: 'Normal' | 'Warning',
    reason: string,
    message: string,
    options?: { readonly fieldPath?: string; readonly annotations?: Readonly<Record<string, string>> },
  ): void;
}

/* ---- Operations on pods for the agent's server ---- */

export interface LogOptions {
  readonly follow: boolean;
  readonly previous: boolean;
  readonly timestamps: boolean;
  readonly sinceSeconds?: number;
  /** RFC 3339. */
  readonly sinceTime?: string;
  readonly tailLines?: number;
  readonly limitBytes?: number;
  readonly stream?: 'All' | 'Stdout' | 'Stderr';
}

/**
 * The operations on pods that the agent's server needs. Errors are `StatusError`s with the kubelet's messages, such as 404 for an
 * unknown pod or container and 400 for a container that waits to start.
 */
export interface PodHost {
  pods(): readonly Pod[];
  /** Returns the pods that the runtime has, with name, namespace, uid and running containers. */
  runningPods(): Promise<readonly Pod[]>;
  podByName(namespace: string, name: string): Pod | undefined;
  podByUid(uid: string): Pod | undefined;
  logs(
    namespace: string,
    podName: string,
    container: string,
    options: LogOptions,
    out: NodeJS.WritableStream,
    signal: AbortSignal,
  ): Promise<void>;
  /** Returns the container's id for exec and attach. The uid of a static pod may be that of its mirror pod. */
  resolveContainer(namespace: string, podName: string, uid: string, container: string): Promise<ContainerId>;
  resolveSandbox(namespace: string, podName: string, uid: string): Promise<SandboxId>;
  exec(id: ContainerId, command: readonly string[], io: StreamIo): Promise<number>;
  attach(id: ContainerId, io: StreamIo): Promise<void>;
  portForward(id: SandboxId, port: number, signal: AbortSignal): Promise<NodeJS.ReadWriteStream>;
  /** Returns the problem of the sync loop or the PLEG, or an empty string, for `/healthz/syncloop`. */
  syncLoopHealth(): string;
}
