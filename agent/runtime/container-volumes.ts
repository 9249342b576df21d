/** Defines what the runtime needs from the volumes of a pod to configure its containers. */
import type { Container, Pod } from '../base/model/pod.ts';
import type { Device, Mount } from './runtime.ts';

/** The mounts and devices of one container. */
export interface PreparedMounts {
  /** Mounts of image volumes have `image` set and an empty `hostPath`: the caller pulls the image and sets its id. */
  readonly mounts: readonly Mount[];
  readonly devices: readonly Device[];
}

/** A file of a volume: its path on the host, and what it contains. */
export interface VolumeText {
  readonly path: string;
  readonly text: string;
}

/** The volumes as containers mount them. */
export interface ContainerVolumes {
  /**
   * Returns the mounts of a container before its start. The volumes must be ready. Prepares sub-paths safely and expands
   * `subPathExpr` with `env`.
   */
  containerMounts(pod: Pod, container: Container, env: ReadonlyMap<string, string>): Promise<PreparedMounts>;
  /** Reads a file of a ready volume. Throws if the volume or the file does not exist. */
  fileText(pod: Pod, volumeName: string, path: string): Promise<VolumeText>;
  /** Returns the supplemental groups that volumes require (`pv.beta.kubernetes.io/gid`). */
  extraSupplementalGroups(pod: Pod): readonly number[];
}

/** The volumes of the pod cannot be attached because the node has too many, so the pod is rejected. */
export class VolumeLimitExceeded extends Error {
  override readonly name = 'VolumeLimitExceeded';
}

/** The error of a volume that is not usable, with the message of the pod's event. The pod is retried after `retryAfterMs`. */
export class VolumeError extends Error {
  override readonly name = 'VolumeError';
  readonly retryAfterMs: number;
  constructor(message: string, { retryAfterMs = 1_000, ...options }: ErrorOptions & { retryAfterMs?: number } = {}) {
    super(message, options);
    this.retryAfterMs = retryAfterMs;
  }
}
