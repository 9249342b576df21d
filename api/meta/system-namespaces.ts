/** Names the namespaces that Kubernetes defines, and the object in them that every joining host reads. */

/** The namespace of the cluster's own workloads, tokens and configurations. */
export const SYSTEM_NAMESPACE = 'kube-system';
/** The namespace whose objects clients may read without credentials. */
export const PUBLIC_NAMESPACE = 'kube-public';
/** The namespace of the Leases by which nodes show that they are alive. */
export const NODE_LEASE_NAMESPACE = 'kube-node-lease';
/** The ConfigMap of the public namespace that contains the address and the CA of the cluster. */
export const CLUSTER_INFO = 'cluster-info';
