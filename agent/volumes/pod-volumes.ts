/** Defines the interface of the volume manager, and what it reports about the volumes of a pod. */
import type { Pod } from '../base/model/pod.ts';
import type { ContainerVolumes } from '../runtime/container-volumes.ts';
import { allContainers } from '../runtime/kuberuntime/pod-containers.ts';

/** Returns the volumes that a container of the pod mounts. The others are never set up, as with the kubelet. */
export function usedVolumes(pod: Pod): NonNullable<Pod['spec']['volumes']> {
  const used = new Set(
    allContainers(pod).flatMap(({ container: { volumeMounts = [], volumeDevices = [] } }) =>
      [...volumeMounts, ...volumeDevices].map(({ name }) => name),
    ),
  );
  return (pod.spec.volumes ?? []).filter(({ name }) => used.has(name));
}

/** A mounted volume of a pod with its path on the host. */
export interface PodVolume {
  readonly name: string;
  readonly path: string;
  /** The data is removed with the pod and counts as the pod's storage. */
  readonly ephemeral: boolean;
  /** Measures the usage through the driver. Resolves to `undefined` if the driver does not report it. */
  readonly measure?: () => Promise<VolumeMeasure | undefined>;
}

/** The size and usage of a volume, as its driver measures it. */
export interface VolumeMeasure {
  readonly driver: string;
  readonly capacityBytes: number;
  readonly availableBytes: number;
  readonly usedBytes: number;
  readonly inodes: number;
  readonly inodesFree: number;
  readonly inodesUsed: number;
}

/** Owns the volumes of all pods of this node. */
export interface VolumeManager extends ContainerVolumes {
  /**
   * Sets up every volume that the pod's containers use, and keeps them up to date until `unmount`. Idempotent. Throws a
   * `VolumeError` with the kubelet's message (`unmounted volumes=[a], unattached volumes=[], failed to process volumes=[]:
   * why`) if a volume cannot be set up or the mount timeout is over. Throws `VolumeLimitExceeded` if the node has had too many
   * volumes for that time, and the reason of the signal if it aborts. Records the `FailedMount` events itself.
   */
  mount(pod: Pod, signal: AbortSignal): Promise<void>;
  /** Whether the runtime supports recursive read-only mounts. */
  recursiveReadOnly(): boolean;
  /** Unmounts all volumes of a terminated pod and removes its data (emptyDir). Resolves when all of it is gone. Idempotent. */
  unmount(pod: Pod, signal: AbortSignal): Promise<void>;
  /** Unmounts and removes the directories `<rootDir>/pods/<uid>` of unknown pods, which remain after a restart of the agent. */
  cleanOrphans(podUids: () => ReadonlySet<string>): Promise<void>;
  /** Returns the directories of the pod's volumes on the host, for usage statistics and eviction. */
  podVolumes(podUid: string): readonly PodVolume[];
  close(): Promise<void>;
}
