/** What a container's parts are checked against: the pod around it. */
import type { PodSpec } from './pod-types.ts';

/** The source of each volume that has a valid name. */
export type VolumeKinds = ReadonlyMap<string, string>;

export interface ContainerContext {
  readonly spec: PodSpec;
  readonly volumes: VolumeKinds;
  /** Names of `spec.resourceClaims`. */
  readonly claims: ReadonlySet<string>;
}
