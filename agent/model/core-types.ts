/**
 * What the parts of the node agent need of each other, as interfaces: sources, pod workers, volumes, probes, status,
 * node. Implementations meet only in `main.ts`; every part is given the others and tested with fakes of these.
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

/** A type of the client package as it stands on the wire: times are RFC 3339 strings, and an absent field may be `undefined`. */
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
/** Defaulted and valid: sources do both before anybody else sees a pod. Shared: never changed in place. */
export type Pod = Omit<Wire<V1Pod>, 'metadata' | 'spec' | 'status'> & {
  metadata: PodMetadata;
  spec: PodSpec;
  status?: PodStatus;
};
export type PodMetadata = ObjectMeta & { name: string; namespace: string; uid: string };
export type NodeObject = Omit<Wire<V1Node>, 'metadata'> & { metadata: ObjectMeta & { name: string } };

/* ---- Sources (podconfig) ---- */

export type PodSourceName = 'api' | 'file' | 'http' | 'submitted';

/**
 * `add`, `update`, `remove` (gone from its source), `delete` (deletionTimestamp set), `reconcile` (only the status differs
 * from ours). Made by the mux from each source's full set; pods of one update are of one source and keep creation order.
 */
export interface PodUpdate {
  readonly type: 'add' | 'update' | 'remove' | 'delete' | 'reconcile';
  readonly source: PodSourceName;
  readonly pods: readonly Pod[];
}

export interface PodConfig {
  /** Calls in order, synchronously after each merge, until the signal aborts. */
  run(signal: AbortSignal, onUpdate: (update: PodUpdate) => void): Promise<void>;
  /** Every configured source has given its first full set (an empty one counts). Nothing is cleaned up before. */
  allSourcesReady(): boolean;
}

export const ANNOTATION_CONFIG_SOURCE = 'kubernetes.io/config.source';
export const ANNOTATION_CONFIG_HASH = 'kubernetes.io/config.hash';
export const ANNOTATION_CONFIG_MIRROR = 'kubernetes.io/config.mirror';
export const ANNOTATION_CONFIG_SEEN = 'kubernetes.io/config.seen';

/** Keeps the API server's picture of a static pod; absent where there is no API server. */
export interface MirrorPods {
  /** Creates it; deletes it first where it is of an older configuration. Whether it is there: the caller asks again otherwise. */
  ensure(pod: Pod, mirror: Pod | undefined): Promise<boolean>;
  /** Deletes the mirror of a static pod that is gone, and no other of its name. */
  delete(mirror: Pod): Promise<void>;
}

/* ---- Config maps, secrets, service-account tokens ---- */

/** Cached objects that pods refer to (watched while a pod that needs them is registered). `undefined`: there is none. */
export interface ReferencedObjects {
  registerPod(pod: Pod): void;
  unregisterPod(pod: Pod): void;
  configMap(namespace: string, name: string): Promise<KubeObject | undefined>;
  secret(namespace: string, name: string): Promise<KubeObject | undefined>;
}

/** Services of a namespace for environment variables; with the master's `default/kubernetes`. */
export interface ServiceLister {
  synced(): boolean;
  list(): readonly KubeObject[];
}

/* ---- Volumes ---- */

export interface PreparedMounts {
  /** With `image` set and `hostPath` '' for image volumes: the caller pulls and puts the id in. */
  readonly mounts: readonly Mount[];
  readonly devices: readonly Device[];
}

export interface PodVolume {
  readonly name: string;
  readonly path: string;
  /** Its data goes with the pod and counts as the pod's. */
  readonly ephemeral: boolean;
  /** Its driver alone says how full it is, or nobody does (`undefined`). */
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
   * Makes every volume of the pod ready (idempotent, keeps them up to date afterwards until `unmount`). Throws `VolumeError`
   * with the kubelet's text (`unmounted volumes=[a], unattached volumes=[], failed to process volumes=[]: context deadline exceeded`)
   * after the pod's mount timeout; events (`FailedMount`) are its own.
   */
  mount(pod: Pod, signal: AbortSignal): Promise<void>;
  /** Per container start, volumes being ready: what to mount where, subPath prepared (bound safely), subPathExpr expanded with `env`. */
  containerMounts(pod: Pod, container: Container, env: ReadonlyMap<string, string>): Promise<PreparedMounts>;
  /** The runtime can make mounts read-only with all that is mounted below them. */
  recursiveReadOnly(): boolean;
  /** The text of a file of a volume that is ready; throws where there is no such volume or file. */
  fileText(pod: Pod, volumeName: string, path: string): Promise<string>;
  /** After the pod's containers ended: removes subPath binds of a container that is not started again. Idempotent. */
  releaseContainer(podUid: string, containerName: string): Promise<void>;
  /** Unmounts everything of a terminated pod and removes its data (emptyDir); resolves when all of it is gone. Idempotent. */
  unmount(pod: Pod, signal: AbortSignal): Promise<void>;
  /** The directory `<rootDir>/pods/<uid>` holds nothing mounted any more. */
  hasMounts(podUid: string): boolean;
  /** Leftovers of pods that are not known once they are found (after a restart): unmounts and removes `<rootDir>/pods/<uid>`. */
  cleanOrphans(known: () => ReadonlySet<string>): Promise<void>;
  /** Directories on the host per volume, for usage statistics and eviction. */
  podVolumes(podUid: string): readonly PodVolume[];
  /** fsGroup and supplemental groups that volumes ask for (`pv.beta.kubernetes.io/gid`). */
  extraSupplementalGroups(pod: Pod): readonly number[];
  close(): Promise<void>;
}

export class VolumeError extends Error {
  override readonly name = 'VolumeError';
  /** When another attempt makes sense. */
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
  /** While a pod terminates readiness goes on. */
  stopLivenessAndStartup(podUid: string): void;
  /** Probes the running containers that are not started or not ready yet now, if they have no result. */
  probeSoon(podUid: string, status: PodStatus): void;
  /** A changed result; the pod is to be synced (liveness, startup) or its status written (readiness). */
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
  /** What the agent says now; normalized, kept, sent when it differs. */
  set(pod: Pod, status: PodStatus): void;
  /** The last `set`, else undefined (after a restart: what the API server has comes with the pod). */
  get(podUid: string): PodStatus | undefined;
  /** Recomputes `started`, `ready` and the conditions that depend on them, because a probe has a new result. */
  applyProbeResults(podUid: string, probes: ProbeResults): void;
  /** Somebody else changed the status (the node controller, of a node that was cut off): said again where it differs. */
  reconcile(pod: Pod): void;
  /** Every container is down for good: states become terminated (`ContainerStatusUnknown`, 137 where nothing is known), the phase final. */
  terminate(pod: Pod): void;
  /** Forgets pods that are not in the set. */
  removeOrphans(known: ReadonlySet<string>): void;
  run(signal: AbortSignal): Promise<void>;
}

/** What status needs of the workers before it may delete a pod from the API server. */
export interface PodDeletionSafety {
  podCouldHaveRunningContainers(pod: Pod): boolean;
  podIsFinished(pod: Pod): boolean;
}

/* ---- Node ---- */

export interface NodeInfo {
  readonly name: string;
  /** The last one seen from the API server, else what the agent would register. */
  node(): NodeObject;
  /** The first is the primary; at most one per family. */
  hostIps(): readonly string[];
  /** Quantities as strings, as in `status.allocatable`. */
  allocatable(): Readonly<Record<string, string>>;
  podCidrs(): readonly string[];
  onPodCidrs(listener: (cidrs: readonly string[]) => void): void;
}

/* ---- Events ---- */

export interface PodEventRecorder {
  /** `fieldPath` names the container: `spec.containers{main}`. Bounded and rate limited; never throws. */
  event(
    pod: Pod,
    type: 'Normal' | 'Warning',
    reason: string,
    message: string,
    options?: { readonly fieldPath?: string; readonly annotations?: Readonly<Record<string, string>> },
  ): void;
}

/* ---- What the agent's server asks of the core ---- */

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

/** Errors are `StatusError`s (404 no such pod or container, 400 waiting to start, …) with the kubelet's words. */
export interface PodHost {
  pods(): readonly Pod[];
  /** By the runtime: name, namespace, uid and containers that run. */
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
  /** The container's id, for exec and attach; static pods are found by their mirror's uid too. */
  resolveContainer(namespace: string, podName: string, uid: string, container: string): Promise<ContainerId>;
  resolveSandbox(namespace: string, podName: string, uid: string): Promise<SandboxId>;
  exec(id: ContainerId, command: readonly string[], io: StreamIo): Promise<number>;
  attach(id: ContainerId, io: StreamIo): Promise<void>;
  portForward(id: SandboxId, port: number, signal: AbortSignal): Promise<NodeJS.ReadWriteStream>;
  /** '' when well: for `/healthz/syncloop` and the pleg check. */
  syncLoopHealth(): string;
}
