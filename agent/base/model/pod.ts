/**
 * The pod and its parts, as the agent handles them. Times inside objects are strings as on the wire, never `Date`.
 */
import type {
  V1Container,
  V1ContainerStatus,
  V1Pod,
  V1PodCondition,
  V1PodSpec,
  V1PodStatus,
} from '@kubernetes/client-node';
import type { ObjectMeta } from '../../../api/meta/object.ts';
import type { Wire } from './wire.ts';

type PodSpec = Wire<V1PodSpec>;
export type Volume = NonNullable<PodSpec['volumes']>[number];
export type PodStatus = Wire<V1PodStatus>;
export type PodCondition = Wire<V1PodCondition>;
export type ContainerStatusJson = Wire<V1ContainerStatus>;
export type Container = Wire<V1Container>;
/** A defaulted and valid pod, as the sources report it. It is shared and must not be changed in place. */
export type Pod = Omit<Wire<V1Pod>, 'metadata' | 'spec' | 'status'> & {
  metadata: PodMetadata;
  spec: PodSpec;
  status?: PodStatus;
};
type PodMetadata = ObjectMeta & { name: string; namespace: string; uid: string };
