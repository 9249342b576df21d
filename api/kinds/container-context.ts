/** Defines the context in which a container is validated: the parts of its pod that containers refer to. */
import type { PodSpec } from './pod-types.ts';

/** The volume source of each volume with a valid name. */
export type VolumeKinds = ReadonlyMap<string, string>;

/** The parts of the pod. */
export interface ContainerContext {
  readonly spec: PodSpec;
  readonly volumes: VolumeKinds;
  /** The names of `spec.resourceClaims`. */
  readonly claims: ReadonlySet<string>;
}
