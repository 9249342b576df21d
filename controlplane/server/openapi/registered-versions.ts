/**
 * Lists the groups and versions that kube-apiserver knows, served or not. The document of OpenAPI 2 has them as the groups and
 * versions of the options types.
 */
const VERSIONS: Readonly<Record<string, string>> = {
  '': 'v1',
  'admission.k8s.io': 'v1 v1beta1',
  'admissionregistration.k8s.io': 'v1 v1alpha1 v1beta1',
  'apiextensions.k8s.io': 'v1 v1beta1',
  'apiregistration.k8s.io': 'v1 v1beta1',
  apps: 'v1 v1beta1 v1beta2',
  'authentication.k8s.io': 'v1 v1alpha1 v1beta1',
  'authorization.k8s.io': 'v1 v1beta1',
  autoscaling: 'v1 v2',
  batch: 'v1 v1beta1',
  'certificates.k8s.io': 'v1 v1alpha1 v1beta1',
  'coordination.k8s.io': 'v1 v1alpha2 v1beta1',
  'discovery.k8s.io': 'v1 v1beta1',
  'events.k8s.io': 'v1 v1beta1',
  extensions: 'v1beta1',
  'flowcontrol.apiserver.k8s.io': 'v1 v1beta1 v1beta2 v1beta3',
  'imagepolicy.k8s.io': 'v1alpha1',
  'internal.apiserver.k8s.io': 'v1alpha1',
  'networking.k8s.io': 'v1 v1beta1',
  'node.k8s.io': 'v1 v1alpha1 v1beta1',
  policy: 'v1 v1beta1',
  'rbac.authorization.k8s.io': 'v1 v1alpha1 v1beta1',
  'resource.k8s.io': 'v1 v1alpha3 v1beta1 v1beta2',
  'scheduling.k8s.io': 'v1 v1alpha2 v1beta1',
  'storage.k8s.io': 'v1 v1alpha1 v1beta1',
  'storagemigration.k8s.io': 'v1beta1',
};

interface GroupVersion {
  readonly group: string;
  readonly version: string;
}

/** A row for each group and version of the table above. */
export const REGISTERED_VERSIONS: readonly GroupVersion[] = Object.entries(VERSIONS).flatMap(([group, versions]) =>
  versions.split(' ').map((version) => ({ group, version })),
);

/** The groups that clients of Kubernetes have no kinds of. */
const SERVER_GROUPS: ReadonlySet<string> = new Set([
  'admission.k8s.io',
  'apiextensions.k8s.io',
  'apiregistration.k8s.io',
  'imagepolicy.k8s.io',
]);

/**
 * The groups and versions that the OpenAPI 3 documents of custom resources list: those of the client library of Kubernetes.
 */
export const CLIENT_VERSIONS: readonly GroupVersion[] = REGISTERED_VERSIONS.filter(
  ({ group }) => !SERVER_GROUPS.has(group),
);
