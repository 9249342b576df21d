/** Names the annotations by which agents and the control plane exchange facts: one of them writes, the other reads. */

/**
 * Of a Node, by its agent: the keys of its serving certificate, separated by commas. The control plane accepts only a server
 * with one of these keys as the agent of the node. Only the node and administrators can write it.
 */
export const SERVING_KEYS = 'orchlet.local/serving-keys';
/** Of a Node, by its agent: the ports on which the host listens. No service gets one of them from the load balancer. */
export const LISTENING_PORTS = 'orchlet.local/listening-ports';
/** Of a Node, by its agent: the public key with which it receives WireGuard packets, as base64. */
export const WIREGUARD_PUBLIC_KEY = 'orchlet.local/wireguard-public-key';
/** Of a Node, by its agent: `true` if it creates local volumes on its node. */
export const LOCAL_VOLUMES = 'orchlet.local/local-volumes';
/** Of a Node, by the control plane: since when it has its addresses and its key (`CLAIM TIME`, with commas between). */
export const CLAIMS = 'orchlet.local/claims';
/** Of a Service, by the control plane: its load balancer is the nodes themselves. */
export const SERVICE_LB_ANNOTATION = 'orchlet.local/service-lb';
/** Of the Service `kube-dns`, by the control plane: `nodes` if the nodes serve it. The resolver files of pods depend on it. */
export const SERVED_BY = 'orchlet.local/served-by';
/** Of the Service `kube-dns`, by the control plane: the pod network that agents set up. */
export const POD_NETWORK = 'orchlet.local/pod-network';
/** Of the Service `kube-dns`, by the control plane: the ranges of all pods, with commas between. */
export const POD_RANGES = 'orchlet.local/pod-ranges';
