/** Defines the types of pods and their parts in the wire format. Every field may be absent. */
import type {
  V1Affinity,
  V1Container,
  V1ContainerPort,
  V1EnvVar,
  V1EphemeralContainer,
  V1Lifecycle,
  V1LifecycleHandler,
  V1PodSecurityContext,
  V1PodSpec,
  V1PodStatus,
  V1PodTemplateSpec,
  V1Probe,
  V1ResourceRequirements,
  V1SecurityContext,
  V1Toleration,
  V1Volume,
  V1VolumeMount,
} from '@kubernetes/client-node';
import type { KubeObject, ObjectMeta } from '../meta/object.ts';
import type { Wire } from './wire.ts';

export type PodSpec = Wire<V1PodSpec>;
export type PodStatus = Wire<V1PodStatus>;
export type Pod = KubeObject & { spec?: PodSpec; status?: PodStatus };
export type PodTemplate = Omit<Wire<V1PodTemplateSpec>, 'metadata'> & { metadata?: ObjectMeta | undefined };
export type Container = Wire<V1Container>;
export type EphemeralContainer = Wire<V1EphemeralContainer>;
export type ContainerPort = Wire<V1ContainerPort>;
export type EnvironmentVariable = Wire<V1EnvVar>;
export type Probe = Wire<V1Probe>;
export type Lifecycle = Wire<V1Lifecycle>;
export type LifecycleHandler = Wire<V1LifecycleHandler>;
export type ResourceRequirements = Wire<V1ResourceRequirements>;
export type SecurityContext = Wire<V1SecurityContext>;
export type PodSecurityContext = Wire<V1PodSecurityContext>;
export type Volume = Wire<V1Volume>;
export type VolumeMount = Wire<V1VolumeMount>;
export type Toleration = Wire<V1Toleration>;
export type Affinity = Wire<V1Affinity>;
/** Quantities as texts by the names of resources. */
export type Quantities = Readonly<Record<string, string | undefined>>;
