/** Names the signers of Kubernetes that sign certificates of clients and of nodes. */

/** Signs certificates of clients of the API server. */
export const CLIENT_SIGNER = 'kubernetes.io/kube-apiserver-client';
/** Signs the certificates with which nodes are clients of the API server. */
export const NODE_CLIENT_SIGNER = 'kubernetes.io/kube-apiserver-client-kubelet';
/** Signs the certificates of the servers of nodes. */
export const NODE_SERVING_SIGNER = 'kubernetes.io/kubelet-serving';
