/**
 * Names the built-in resources that the program's own clients use, each with the static type of its objects, in the version
 * that informers read.
 */
import type { Resource } from './client.ts';
import type * as kinds from '../kinds/kinds.ts';

/** A resource with the type of its objects. The phantom field does not exist at run time. */
export interface ResourceOf<T> extends Resource {
  readonly objectType?: T;
}

/** Makes the resources of one group and version; `T` is the type of the objects. */
interface GroupVersion {
  namespaced<T>(resource: string, kind: string): ResourceOf<T>;
  clusterScoped<T>(resource: string, kind: string): ResourceOf<T>;
}

/** Returns functions that name the resources of a group and version. The group of the core resources is empty. */
export function groupVersion(group: string, version: string): GroupVersion {
  return {
    namespaced: (resource, kind) => ({ group, version, resource, kind, namespaced: true }),
    clusterScoped: (resource, kind) => ({ group, version, resource, kind, namespaced: false }),
  };
}

const core = groupVersion('', 'v1');
export const bindings = core.namespaced<kinds.Binding>('bindings', 'Binding');
export const configMaps = core.namespaced<kinds.ConfigMap>('configmaps', 'ConfigMap');
export const endpoints = core.namespaced<kinds.Endpoints>('endpoints', 'Endpoints');
export const events = core.namespaced<kinds.CoreEvent>('events', 'Event');
export const limitRanges = core.namespaced<kinds.LimitRange>('limitranges', 'LimitRange');
export const namespaces = core.clusterScoped<kinds.Namespace>('namespaces', 'Namespace');
export const nodes = core.clusterScoped<kinds.Node>('nodes', 'Node');
export const persistentVolumeClaims = core.namespaced<kinds.PersistentVolumeClaim>(
  'persistentvolumeclaims',
  'PersistentVolumeClaim',
);
export const persistentVolumes = core.clusterScoped<kinds.PersistentVolume>('persistentvolumes', 'PersistentVolume');
export const pods = core.namespaced<kinds.Pod>('pods', 'Pod');
export const replicationControllers = core.namespaced<kinds.ReplicationController>(
  'replicationcontrollers',
  'ReplicationController',
);
export const resourceQuotas = core.namespaced<kinds.ResourceQuota>('resourcequotas', 'ResourceQuota');
export const secrets = core.namespaced<kinds.Secret>('secrets', 'Secret');
export const serviceAccounts = core.namespaced<kinds.ServiceAccount>('serviceaccounts', 'ServiceAccount');
export const services = core.namespaced<kinds.Service>('services', 'Service');

const networking = groupVersion('networking.k8s.io', 'v1');
export const networkPolicies = networking.namespaced<kinds.NetworkPolicy>('networkpolicies', 'NetworkPolicy');
export const ingressClasses = networking.clusterScoped<kinds.IngressClass>('ingressclasses', 'IngressClass');
export const ingresses = networking.namespaced<kinds.Ingress>('ingresses', 'Ingress');
export const ipAddresses = networking.clusterScoped<kinds.IPAddress>('ipaddresses', 'IPAddress');
export const serviceCIDRs = networking.clusterScoped<kinds.ServiceCIDR>('servicecidrs', 'ServiceCIDR');

const admission = groupVersion('admissionregistration.k8s.io', 'v1');
export const mutatingAdmissionPolicies = admission.clusterScoped<kinds.MutatingAdmissionPolicy>(
  'mutatingadmissionpolicies',
  'MutatingAdmissionPolicy',
);
export const mutatingAdmissionPolicyBindings = admission.clusterScoped<kinds.MutatingAdmissionPolicyBinding>(
  'mutatingadmissionpolicybindings',
  'MutatingAdmissionPolicyBinding',
);
export const mutatingWebhookConfigurations = admission.clusterScoped<kinds.MutatingWebhookConfiguration>(
  'mutatingwebhookconfigurations',
  'MutatingWebhookConfiguration',
);
export const validatingAdmissionPolicies = admission.clusterScoped<kinds.ValidatingAdmissionPolicy>(
  'validatingadmissionpolicies',
  'ValidatingAdmissionPolicy',
);
export const validatingAdmissionPolicyBindings = admission.clusterScoped<kinds.ValidatingAdmissionPolicyBinding>(
  'validatingadmissionpolicybindings',
  'ValidatingAdmissionPolicyBinding',
);
export const validatingWebhookConfigurations = admission.clusterScoped<kinds.ValidatingWebhookConfiguration>(
  'validatingwebhookconfigurations',
  'ValidatingWebhookConfiguration',
);

const apiextensions = groupVersion('apiextensions.k8s.io', 'v1');
export const customResourceDefinitions = apiextensions.clusterScoped<kinds.CustomResourceDefinition>(
  'customresourcedefinitions',
  'CustomResourceDefinition',
);

const apiregistration = groupVersion('apiregistration.k8s.io', 'v1');
export const apiServices = apiregistration.clusterScoped<kinds.APIService>('apiservices', 'APIService');

const apps = groupVersion('apps', 'v1');
export const controllerRevisions = apps.namespaced<kinds.ControllerRevision>(
  'controllerrevisions',
  'ControllerRevision',
);
export const daemonSets = apps.namespaced<kinds.DaemonSet>('daemonsets', 'DaemonSet');
export const deployments = apps.namespaced<kinds.Deployment>('deployments', 'Deployment');
export const replicaSets = apps.namespaced<kinds.ReplicaSet>('replicasets', 'ReplicaSet');
export const statefulSets = apps.namespaced<kinds.StatefulSet>('statefulsets', 'StatefulSet');

const authentication = groupVersion('authentication.k8s.io', 'v1');
export const tokenReviews = authentication.clusterScoped<kinds.TokenReview>('tokenreviews', 'TokenReview');

const authorization = groupVersion('authorization.k8s.io', 'v1');
export const localSubjectAccessReviews = authorization.namespaced<kinds.LocalSubjectAccessReview>(
  'localsubjectaccessreviews',
  'LocalSubjectAccessReview',
);
export const selfSubjectAccessReviews = authorization.clusterScoped<kinds.SelfSubjectAccessReview>(
  'selfsubjectaccessreviews',
  'SelfSubjectAccessReview',
);
export const subjectAccessReviews = authorization.clusterScoped<kinds.SubjectAccessReview>(
  'subjectaccessreviews',
  'SubjectAccessReview',
);

const autoscaling = groupVersion('autoscaling', 'v2');
export const horizontalPodAutoscalers = autoscaling.namespaced<kinds.HorizontalPodAutoscaler>(
  'horizontalpodautoscalers',
  'HorizontalPodAutoscaler',
);

const batch = groupVersion('batch', 'v1');
export const cronJobs = batch.namespaced<kinds.CronJob>('cronjobs', 'CronJob');
export const jobs = batch.namespaced<kinds.Job>('jobs', 'Job');

const certificates = groupVersion('certificates.k8s.io', 'v1');
export const certificateSigningRequests = certificates.clusterScoped<kinds.CertificateSigningRequest>(
  'certificatesigningrequests',
  'CertificateSigningRequest',
);

export const podCertificateRequests = groupVersion(
  'certificates.k8s.io',
  'v1beta1',
).namespaced<kinds.PodCertificateRequest>('podcertificaterequests', 'PodCertificateRequest');

const coordination = groupVersion('coordination.k8s.io', 'v1');
export const leases = coordination.namespaced<kinds.Lease>('leases', 'Lease');

const discovery = groupVersion('discovery.k8s.io', 'v1');
export const endpointSlices = discovery.namespaced<kinds.EndpointSlice>('endpointslices', 'EndpointSlice');

const eventsGroup = groupVersion('events.k8s.io', 'v1');
export const eventsV1 = eventsGroup.namespaced<kinds.RegardingEvent>('events', 'Event');

const flowcontrol = groupVersion('flowcontrol.apiserver.k8s.io', 'v1');
export const flowSchemas = flowcontrol.clusterScoped<kinds.FlowSchema>('flowschemas', 'FlowSchema');
export const priorityLevelConfigurations = flowcontrol.clusterScoped<kinds.PriorityLevelConfiguration>(
  'prioritylevelconfigurations',
  'PriorityLevelConfiguration',
);

const node = groupVersion('node.k8s.io', 'v1');
export const runtimeClasses = node.clusterScoped<kinds.RuntimeClass>('runtimeclasses', 'RuntimeClass');

const policy = groupVersion('policy', 'v1');
export const podDisruptionBudgets = policy.namespaced<kinds.PodDisruptionBudget>(
  'poddisruptionbudgets',
  'PodDisruptionBudget',
);

/** The group of roles and bindings, which role references and subjects name. */
export const RBAC_GROUP = 'rbac.authorization.k8s.io';
const rbac = groupVersion(RBAC_GROUP, 'v1');
export const clusterRoleBindings = rbac.clusterScoped<kinds.ClusterRoleBinding>(
  'clusterrolebindings',
  'ClusterRoleBinding',
);
export const clusterRoles = rbac.clusterScoped<kinds.ClusterRole>('clusterroles', 'ClusterRole');
export const roleBindings = rbac.namespaced<kinds.RoleBinding>('rolebindings', 'RoleBinding');
export const roles = rbac.namespaced<kinds.Role>('roles', 'Role');

const resource = groupVersion('resource.k8s.io', 'v1');
export const deviceClasses = resource.clusterScoped<kinds.DeviceClass>('deviceclasses', 'DeviceClass');
export const resourceClaims = resource.namespaced<kinds.ResourceClaim>('resourceclaims', 'ResourceClaim');
export const resourceClaimTemplates = resource.namespaced<kinds.ResourceClaimTemplate>(
  'resourceclaimtemplates',
  'ResourceClaimTemplate',
);
export const resourceSlices = resource.clusterScoped<kinds.ResourceSlice>('resourceslices', 'ResourceSlice');

const scheduling = groupVersion('scheduling.k8s.io', 'v1');
export const priorityClasses = scheduling.clusterScoped<kinds.PriorityClass>('priorityclasses', 'PriorityClass');

const storage = groupVersion('storage.k8s.io', 'v1');
export const csiDrivers = storage.clusterScoped<kinds.CSIDriver>('csidrivers', 'CSIDriver');
export const csiNodes = storage.clusterScoped<kinds.CSINode>('csinodes', 'CSINode');
export const storageClasses = storage.clusterScoped<kinds.StorageClass>('storageclasses', 'StorageClass');
export const volumeAttachments = storage.clusterScoped<kinds.VolumeAttachment>('volumeattachments', 'VolumeAttachment');
export const volumeAttributesClasses = storage.clusterScoped<kinds.VolumeAttributesClass>(
  'volumeattributesclasses',
  'VolumeAttributesClass',
);
