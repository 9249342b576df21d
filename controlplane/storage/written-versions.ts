/**
 * Lists the versions in which kube-apiserver 1.36 writes kinds to etcd, where they are not the version that this project
 * stores.
 */

/** The written version of a kind, by the kind. */
export const WRITTEN_VERSIONS: ReadonlyMap<string, string> = new Map([
  ['DeviceTaintRule', 'v1alpha3'],
  ['MutatingAdmissionPolicy', 'v1beta1'],
  ['MutatingAdmissionPolicyBinding', 'v1beta1'],
]);
