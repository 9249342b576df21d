/**
 * Lists the kinds in versions that no server of release 1.36 serves, but that kube-apiserver still decodes and converts. A body
 * of such a version is therefore refused because of its version, and not because its kind is unknown.
 */

const RBAC = 'Role RoleBinding ClusterRole ClusterRoleBinding';
const POLICIES = 'ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding';

/** The kinds by apiVersion. `Kind=group` is converted to a kind of another group. */
const RETIRED: ReadonlyMap<string, string> = new Map([
  ['admissionregistration.k8s.io/v1alpha1', POLICIES],
  ['admissionregistration.k8s.io/v1beta1', `ValidatingWebhookConfiguration MutatingWebhookConfiguration ${POLICIES}`],
  ['apiextensions.k8s.io/v1beta1', 'CustomResourceDefinition'],
  ['apiregistration.k8s.io/v1beta1', 'APIService'],
  ['apps/v1beta1', 'Deployment Scale=autoscaling StatefulSet ControllerRevision'],
  ['apps/v1beta2', 'Deployment Scale=autoscaling StatefulSet DaemonSet ReplicaSet ControllerRevision'],
  ['authentication.k8s.io/v1alpha1', 'SelfSubjectReview'],
  ['authentication.k8s.io/v1beta1', 'SelfSubjectReview TokenReview'],
  [
    'authorization.k8s.io/v1beta1',
    'SelfSubjectRulesReview SelfSubjectAccessReview SubjectAccessReview LocalSubjectAccessReview',
  ],
  ['batch/v1beta1', 'CronJob'],
  ['certificates.k8s.io/v1beta1', 'CertificateSigningRequest'],
  ['coordination.k8s.io/v1beta1', 'Lease'],
  ['discovery.k8s.io/v1beta1', 'EndpointSlice'],
  ['events.k8s.io/v1beta1', 'Event'],
  [
    'extensions/v1beta1',
    'Deployment=apps DaemonSet=apps ReplicaSet=apps Scale=autoscaling Ingress=networking.k8s.io NetworkPolicy=networking.k8s.io',
  ],
  ...['v1beta1', 'v1beta2', 'v1beta3'].map(
    (version) => [`flowcontrol.apiserver.k8s.io/${version}`, 'FlowSchema PriorityLevelConfiguration'] as const,
  ),
  ['networking.k8s.io/v1beta1', 'Ingress IngressClass'],
  ['node.k8s.io/v1alpha1', 'RuntimeClass'],
  ['node.k8s.io/v1beta1', 'RuntimeClass'],
  ['policy/v1beta1', 'PodDisruptionBudget Eviction'],
  ['rbac.authorization.k8s.io/v1alpha1', RBAC],
  ['rbac.authorization.k8s.io/v1beta1', RBAC],
  ['scheduling.k8s.io/v1beta1', 'PriorityClass'],
  ['storage.k8s.io/v1alpha1', 'VolumeAttachment CSIStorageCapacity VolumeAttributesClass'],
  ['storage.k8s.io/v1beta1', 'StorageClass VolumeAttachment CSIDriver CSINode CSIStorageCapacity'],
]);

/** Returns the group whose kind of the same name a retired kind becomes, or `undefined` for a kind that is not retired. */
export function retiredKindGroup(apiVersion: string, kind: string): string | undefined {
  for (const entry of RETIRED.get(apiVersion)?.split(' ') ?? []) {
    const [name, group] = entry.split('=');
    if (name === kind) return group ?? apiVersion.split('/')[0];
  }
  return undefined;
}
