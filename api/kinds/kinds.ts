/**
 * Defines static types of the built-in kinds as they are on the wire: the models of the client package (imported as types only)
 * with times as strings and the metadata of `object.ts`.
 */
import type {
  CoreV1Event,
  EventsV1Event,
  ResourceV1ResourceClaim,
  V1APIService,
  V1Binding,
  V1CSIDriver,
  V1CSINode,
  V1CSIStorageCapacity,
  V1CertificateSigningRequest,
  V1ClusterRole,
  V1ClusterRoleBinding,
  V1ComponentStatus,
  V1ConfigMap,
  V1ControllerRevision,
  V1CronJob,
  V1CustomResourceDefinition,
  V1DaemonSet,
  V1Deployment,
  V1DeviceClass,
  V1EndpointSlice,
  V1Endpoints,
  V1FlowSchema,
  V1IPAddress,
  V1Ingress,
  V1IngressClass,
  V1Job,
  V1Lease,
  V1LimitRange,
  V1LocalSubjectAccessReview,
  V1MutatingAdmissionPolicy,
  V1MutatingAdmissionPolicyBinding,
  V1MutatingWebhookConfiguration,
  V1Namespace,
  V1NetworkPolicy,
  V1Node,
  V1PersistentVolume,
  V1PersistentVolumeClaim,
  V1Pod,
  V1PodDisruptionBudget,
  V1PodTemplate,
  V1PriorityClass,
  V1PriorityLevelConfiguration,
  V1ReplicaSet,
  V1ReplicationController,
  V1ResourceClaimTemplate,
  V1ResourceQuota,
  V1ResourceSlice,
  V1Role,
  V1RoleBinding,
  V1RuntimeClass,
  V1Secret,
  V1SelfSubjectAccessReview,
  V1SelfSubjectReview,
  V1SelfSubjectRulesReview,
  V1Service,
  V1ServiceAccount,
  V1ServiceCIDR,
  V1StatefulSet,
  V1StorageClass,
  V1SubjectAccessReview,
  V1TokenReview,
  V1ValidatingAdmissionPolicy,
  V1ValidatingAdmissionPolicyBinding,
  V1ValidatingWebhookConfiguration,
  V1VolumeAttachment,
  V1VolumeAttributesClass,
  V2HorizontalPodAutoscaler,
  V1beta1PodCertificateRequest,
} from '@kubernetes/client-node';
import type { KubeObject, ObjectMeta } from '../meta/object.ts';

/** Converts a model to its form in JSON. */
export type Wire<T> = T extends Date
  ? string
  : T extends string | number | boolean | bigint | null | undefined
    ? T
    : T extends readonly (infer Item)[]
      ? Wire<Item>[]
      : T extends object
        ? {
            [Key in keyof T as Key extends `_${infer Plain}` ? Plain : Key]: Key extends 'metadata'
              ? ObjectMeta
              : Wire<T[Key]>;
          }
        : T;

/** A whole object. Its metadata is always present. */
export type WireObject<T> = KubeObject & Omit<Wire<T>, 'metadata' | 'apiVersion' | 'kind'>;

export type APIService = WireObject<V1APIService>;
export type Binding = WireObject<V1Binding>;
export type CSIDriver = WireObject<V1CSIDriver>;
export type CSINode = WireObject<V1CSINode>;
export type CSIStorageCapacity = WireObject<V1CSIStorageCapacity>;
export type CertificateSigningRequest = WireObject<V1CertificateSigningRequest>;
export type ClusterRole = WireObject<V1ClusterRole>;
export type ClusterRoleBinding = WireObject<V1ClusterRoleBinding>;
export type ComponentStatus = WireObject<V1ComponentStatus>;
export type ConfigMap = WireObject<V1ConfigMap>;
export type ControllerRevision = WireObject<V1ControllerRevision>;
export type CoreEvent = WireObject<CoreV1Event>;
export type CronJob = WireObject<V1CronJob>;
export type CustomResourceDefinition = WireObject<V1CustomResourceDefinition>;
export type DaemonSet = WireObject<V1DaemonSet>;
export type Deployment = WireObject<V1Deployment>;
export type DeviceClass = WireObject<V1DeviceClass>;
export type EndpointSlice = WireObject<V1EndpointSlice>;
export type Endpoints = WireObject<V1Endpoints>;
export type FlowSchema = WireObject<V1FlowSchema>;
export type HorizontalPodAutoscaler = WireObject<V2HorizontalPodAutoscaler>;
export type IPAddress = WireObject<V1IPAddress>;
export type Ingress = WireObject<V1Ingress>;
export type IngressClass = WireObject<V1IngressClass>;
export type Job = WireObject<V1Job>;
export type Lease = WireObject<V1Lease>;
export type LimitRange = WireObject<V1LimitRange>;
export type LocalSubjectAccessReview = WireObject<V1LocalSubjectAccessReview>;
export type MutatingAdmissionPolicy = WireObject<V1MutatingAdmissionPolicy>;
export type MutatingAdmissionPolicyBinding = WireObject<V1MutatingAdmissionPolicyBinding>;
export type MutatingWebhookConfiguration = WireObject<V1MutatingWebhookConfiguration>;
export type Namespace = WireObject<V1Namespace>;
export type NetworkPolicy = WireObject<V1NetworkPolicy>;
export type Node = WireObject<V1Node>;
export type PersistentVolume = WireObject<V1PersistentVolume>;
export type PersistentVolumeClaim = WireObject<V1PersistentVolumeClaim>;
export type Pod = WireObject<V1Pod>;
export type PodCertificateRequest = WireObject<V1beta1PodCertificateRequest>;
export type PodDisruptionBudget = WireObject<V1PodDisruptionBudget>;
export type PodTemplate = WireObject<V1PodTemplate>;
export type PriorityClass = WireObject<V1PriorityClass>;
export type PriorityLevelConfiguration = WireObject<V1PriorityLevelConfiguration>;
export type RegardingEvent = WireObject<EventsV1Event>;
export type ReplicaSet = WireObject<V1ReplicaSet>;
export type ReplicationController = WireObject<V1ReplicationController>;
export type ResourceClaim = WireObject<ResourceV1ResourceClaim>;
export type ResourceClaimTemplate = WireObject<V1ResourceClaimTemplate>;
export type ResourceQuota = WireObject<V1ResourceQuota>;
export type ResourceSlice = WireObject<V1ResourceSlice>;
export type Role = WireObject<V1Role>;
export type RoleBinding = WireObject<V1RoleBinding>;
export type RuntimeClass = WireObject<V1RuntimeClass>;
export type Secret = WireObject<V1Secret>;
export type SelfSubjectAccessReview = WireObject<V1SelfSubjectAccessReview>;
export type SelfSubjectReview = WireObject<V1SelfSubjectReview>;
export type SelfSubjectRulesReview = WireObject<V1SelfSubjectRulesReview>;
export type Service = WireObject<V1Service>;
export type ServiceAccount = WireObject<V1ServiceAccount>;
export type ServiceCIDR = WireObject<V1ServiceCIDR>;
export type StatefulSet = WireObject<V1StatefulSet>;
export type StorageClass = WireObject<V1StorageClass>;
export type SubjectAccessReview = WireObject<V1SubjectAccessReview>;
export type TokenReview = WireObject<V1TokenReview>;
export type ValidatingAdmissionPolicy = WireObject<V1ValidatingAdmissionPolicy>;
export type ValidatingAdmissionPolicyBinding = WireObject<V1ValidatingAdmissionPolicyBinding>;
export type ValidatingWebhookConfiguration = WireObject<V1ValidatingWebhookConfiguration>;
export type VolumeAttachment = WireObject<V1VolumeAttachment>;
export type VolumeAttributesClass = WireObject<V1VolumeAttributesClass>;
