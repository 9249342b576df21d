/**
 * Names the built-in resources that the program's own clients use, each with the static type of its objects, in the version
 * that informers read. `resource()` names custom resources at run time.
 */
import type { Resource } from './client.ts';
import type * as kinds from './kinds.ts';

/** A resource with the type of its objects. The phantom field does not exist at run time. */
export interface ResourceOf<T> extends Resource {
  readonly objectType?: T;
}

export function resource(group: string, version: string, name: string, kind: string, namespaced: boolean): Resource {
  return { group, version, resource: name, kind, namespaced };
}

export const bindings: ResourceOf<kinds.Binding> = resource('', 'v1', 'bindings', 'Binding', true);
export const configMaps: ResourceOf<kinds.ConfigMap> = resource('', 'v1', 'configmaps', 'ConfigMap', true);
export const endpoints: ResourceOf<kinds.Endpoints> = resource('', 'v1', 'endpoints', 'Endpoints', true);
export const events: ResourceOf<kinds.CoreEvent> = resource('', 'v1', 'events', 'Event', true);
export const limitRanges: ResourceOf<kinds.LimitRange> = resource('', 'v1', 'limitranges', 'LimitRange', true);
export const namespaces: ResourceOf<kinds.Namespace> = resource('', 'v1', 'namespaces', 'Namespace', false);
export const networkPolicies: ResourceOf<kinds.NetworkPolicy> = resource(
  'networking.k8s.io',
  'v1',
  'networkpolicies',
  'NetworkPolicy',
  true,
);
export const nodes: ResourceOf<kinds.Node> = resource('', 'v1', 'nodes', 'Node', false);
export const persistentVolumeClaims: ResourceOf<kinds.PersistentVolumeClaim> = resource(
  '',
  'v1',
  'persistentvolumeclaims',
  'PersistentVolumeClaim',
  true,
);
export const persistentVolumes: ResourceOf<kinds.PersistentVolume> = resource(
  '',
  'v1',
  'persistentvolumes',
  'PersistentVolume',
  false,
);
export const pods: ResourceOf<kinds.Pod> = resource('', 'v1', 'pods', 'Pod', true);
export const podTemplates: ResourceOf<kinds.PodTemplate> = resource('', 'v1', 'podtemplates', 'PodTemplate', true);
export const replicationControllers: ResourceOf<kinds.ReplicationController> = resource(
  '',
  'v1',
  'replicationcontrollers',
  'ReplicationController',
  true,
);
export const resourceQuotas: ResourceOf<kinds.ResourceQuota> = resource(
  '',
  'v1',
  'resourcequotas',
  'ResourceQuota',
  true,
);
export const secrets: ResourceOf<kinds.Secret> = resource('', 'v1', 'secrets', 'Secret', true);
export const serviceAccounts: ResourceOf<kinds.ServiceAccount> = resource(
  '',
  'v1',
  'serviceaccounts',
  'ServiceAccount',
  true,
);
export const services: ResourceOf<kinds.Service> = resource('', 'v1', 'services', 'Service', true);
export const mutatingAdmissionPolicies: ResourceOf<kinds.MutatingAdmissionPolicy> = resource(
  'admissionregistration.k8s.io',
  'v1',
  'mutatingadmissionpolicies',
  'MutatingAdmissionPolicy',
  false,
);
export const mutatingAdmissionPolicyBindings: ResourceOf<kinds.MutatingAdmissionPolicyBinding> = resource(
  'admissionregistration.k8s.io',
  'v1',
  'mutatingadmissionpolicybindings',
  'MutatingAdmissionPolicyBinding',
  false,
);
export const mutatingWebhookConfigurations: ResourceOf<kinds.MutatingWebhookConfiguration> = resource(
  'admissionregistration.k8s.io',
  'v1',
  'mutatingwebhookconfigurations',
  'MutatingWebhookConfiguration',
  false,
);
export const validatingAdmissionPolicies: ResourceOf<kinds.ValidatingAdmissionPolicy> = resource(
  'admissionregistration.k8s.io',
  'v1',
  'validatingadmissionpolicies',
  'ValidatingAdmissionPolicy',
  false,
);
export const validatingAdmissionPolicyBindings: ResourceOf<kinds.ValidatingAdmissionPolicyBinding> = resource(
  'admissionregistration.k8s.io',
  'v1',
  'validatingadmissionpolicybindings',
  'ValidatingAdmissionPolicyBinding',
  false,
);
export const validatingWebhookConfigurations: ResourceOf<kinds.ValidatingWebhookConfiguration> = resource(
  'admissionregistration.k8s.io',
  'v1',
  'validatingwebhookconfigurations',
  'ValidatingWebhookConfiguration',
  false,
);
export const customResourceDefinitions: ResourceOf<kinds.CustomResourceDefinition> = resource(
  'apiextensions.k8s.io',
  'v1',
  'customresourcedefinitions',
  'CustomResourceDefinition',
  false,
);
export const apiServices: ResourceOf<kinds.APIService> = resource(
  'apiregistration.k8s.io',
  'v1',
  'apiservices',
  'APIService',
  false,
);
export const controllerRevisions: ResourceOf<kinds.ControllerRevision> = resource(
  'apps',
  'v1',
  'controllerrevisions',
  'ControllerRevision',
  true,
);
export const daemonSets: ResourceOf<kinds.DaemonSet> = resource('apps', 'v1', 'daemonsets', 'DaemonSet', true);
export const deployments: ResourceOf<kinds.Deployment> = resource('apps', 'v1', 'deployments', 'Deployment', true);
export const replicaSets: ResourceOf<kinds.ReplicaSet> = resource('apps', 'v1', 'replicasets', 'ReplicaSet', true);
export const statefulSets: ResourceOf<kinds.StatefulSet> = resource('apps', 'v1', 'statefulsets', 'StatefulSet', true);
export const tokenReviews: ResourceOf<kinds.TokenReview> = resource(
  'authentication.k8s.io',
  'v1',
  'tokenreviews',
  'TokenReview',
  false,
);
export const subjectAccessReviews: ResourceOf<kinds.SubjectAccessReview> = resource(
  'authorization.k8s.io',
  'v1',
  'subjectaccessreviews',
  'SubjectAccessReview',
  false,
);
export const horizontalPodAutoscalers: ResourceOf<kinds.HorizontalPodAutoscaler> = resource(
  'autoscaling',
  'v2',
  'horizontalpodautoscalers',
  'HorizontalPodAutoscaler',
  true,
);
export const cronJobs: ResourceOf<kinds.CronJob> = resource('batch', 'v1', 'cronjobs', 'CronJob', true);
export const jobs: ResourceOf<kinds.Job> = resource('batch', 'v1', 'jobs', 'Job', true);
export const certificateSigningRequests: ResourceOf<kinds.CertificateSigningRequest> = resource(
  'certificates.k8s.io',
  'v1',
  'certificatesigningrequests',
  'CertificateSigningRequest',
  false,
);
export const leases: ResourceOf<kinds.Lease> = resource('coordination.k8s.io', 'v1', 'leases', 'Lease', true);
export const endpointSlices: ResourceOf<kinds.EndpointSlice> = resource(
  'discovery.k8s.io',
  'v1',
  'endpointslices',
  'EndpointSlice',
  true,
);
export const eventsV1: ResourceOf<kinds.RegardingEvent> = resource('events.k8s.io', 'v1', 'events', 'Event', true);
export const flowSchemas: ResourceOf<kinds.FlowSchema> = resource(
  'flowcontrol.apiserver.k8s.io',
  'v1',
  'flowschemas',
  'FlowSchema',
  false,
);
export const priorityLevelConfigurations: ResourceOf<kinds.PriorityLevelConfiguration> = resource(
  'flowcontrol.apiserver.k8s.io',
  'v1',
  'prioritylevelconfigurations',
  'PriorityLevelConfiguration',
  false,
);
export const ingressClasses: ResourceOf<kinds.IngressClass> = resource(
  'networking.k8s.io',
  'v1',
  'ingressclasses',
  'IngressClass',
  false,
);
export const ingresses: ResourceOf<kinds.Ingress> = resource('networking.k8s.io', 'v1', 'ingresses', 'Ingress', true);
export const ipAddresses: ResourceOf<kinds.IPAddress> = resource(
  'networking.k8s.io',
  'v1',
  'ipaddresses',
  'IPAddress',
  false,
);
export const serviceCIDRs: ResourceOf<kinds.ServiceCIDR> = resource(
  'networking.k8s.io',
  'v1',
  'servicecidrs',
  'ServiceCIDR',
  false,
);
export const runtimeClasses: ResourceOf<kinds.RuntimeClass> = resource(
  'node.k8s.io',
  'v1',
  'runtimeclasses',
  'RuntimeClass',
  false,
);
export const podDisruptionBudgets: ResourceOf<kinds.PodDisruptionBudget> = resource(
  'policy',
  'v1',
  'poddisruptionbudgets',
  'PodDisruptionBudget',
  true,
);
export const clusterRoleBindings: ResourceOf<kinds.ClusterRoleBinding> = resource(
  'rbac.authorization.k8s.io',
  'v1',
  'clusterrolebindings',
  'ClusterRoleBinding',
  false,
);
export const clusterRoles: ResourceOf<kinds.ClusterRole> = resource(
  'rbac.authorization.k8s.io',
  'v1',
  'clusterroles',
  'ClusterRole',
  false,
);
export const roleBindings: ResourceOf<kinds.RoleBinding> = resource(
  'rbac.authorization.k8s.io',
  'v1',
  'rolebindings',
  'RoleBinding',
  true,
);
export const roles: ResourceOf<kinds.Role> = resource('rbac.authorization.k8s.io', 'v1', 'roles', 'Role', true);
export const deviceClasses: ResourceOf<kinds.DeviceClass> = resource(
  'resource.k8s.io',
  'v1',
  'deviceclasses',
  'DeviceClass',
  false,
);
export const resourceClaims: ResourceOf<kinds.ResourceClaim> = resource(
  'resource.k8s.io',
  'v1',
  'resourceclaims',
  'ResourceClaim',
  true,
);
export const resourceClaimTemplates: ResourceOf<kinds.ResourceClaimTemplate> = resource(
  'resource.k8s.io',
  'v1',
  'resourceclaimtemplates',
  'ResourceClaimTemplate',
  true,
);
export const resourceSlices: ResourceOf<kinds.ResourceSlice> = resource(
  'resource.k8s.io',
  'v1',
  'resourceslices',
  'ResourceSlice',
  false,
);
export const priorityClasses: ResourceOf<kinds.PriorityClass> = resource(
  'scheduling.k8s.io',
  'v1',
  'priorityclasses',
  'PriorityClass',
  false,
);
export const csiDrivers: ResourceOf<kinds.CSIDriver> = resource(
  'storage.k8s.io',
  'v1',
  'csidrivers',
  'CSIDriver',
  false,
);
export const csiNodes: ResourceOf<kinds.CSINode> = resource('storage.k8s.io', 'v1', 'csinodes', 'CSINode', false);
export const storageClasses: ResourceOf<kinds.StorageClass> = resource(
  'storage.k8s.io',
  'v1',
  'storageclasses',
  'StorageClass',
  false,
);
export const volumeAttachments: ResourceOf<kinds.VolumeAttachment> = resource(
  'storage.k8s.io',
  'v1',
  'volumeattachments',
  'VolumeAttachment',
  false,
);
export const volumeAttributesClasses: ResourceOf<kinds.VolumeAttributesClass> = resource(
  'storage.k8s.io',
  'v1',
  'volumeattributesclasses',
  'VolumeAttributesClass',
  false,
);
