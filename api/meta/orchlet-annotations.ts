/** Names the annotations by which agents and the control plane exchange facts. */

/**
 * The hashes of the public keys of a node's serving certificates, separated by commas. Its agent writes it to the Node. The
 * control plane accepts only a server with one of these keys as the agent of the node.
 */
export const SERVING_KEYS = 'orchlet.local/serving-keys';
/**
 * The ports on which the host of a node listens. Its agent writes it to the Node. The load balancer gives none of them to a
 * service at this node.
 */
export const LISTENING_PORTS = 'orchlet.local/listening-ports';
/** The public key with which a node receives WireGuard packets, as base64. Its agent writes it to the Node. */
export const WIREGUARD_PUBLIC_KEY = 'orchlet.local/wireguard-public-key';
/** The annotation that is `true` if the agent of a node creates local volumes. The agent writes it to the Node. */
export const LOCAL_VOLUMES = 'orchlet.local/local-volumes';
/**
 * The annotation with the times since which a node has its addresses and its key (`CLAIM TIME`, separated by commas). The
 * control plane writes it to the Node.
 */
export const CLAIMS = 'orchlet.local/claims';
/** Marks a service whose load balancer is the nodes themselves. The control plane writes it to the Service. */
export const SERVICE_LB_ANNOTATION = 'orchlet.local/service-lb';
/**
 * `nodes` if the nodes serve cluster names. The control plane writes it to the Service `kube-dns`. The resolver files of pods
 * depend on it.
 */
export const SERVED_BY = 'orchlet.local/served-by';
/** The pod network that agents set up. The control plane writes it to the Service `kube-dns`. */
export const POD_NETWORK = 'orchlet.local/pod-network';
/** The ranges of all pods, separated by commas. The control plane writes it to the Service `kube-dns`. */
export const POD_RANGES = 'orchlet.local/pod-ranges';
