/** Names the annotations by which agents and the control plane tell each other facts: one of them writes, the other reads. */

/**
 * Of a Node, by its agent: the keys of its serving certificate, separated by commas. The control plane accepts only a server
 * with one of these keys as the agent of the node. Only the node and administrators can write it.
 */
export const SERVING_KEYS = 'orchlet.local/serving-keys';
/** Of a Node, by its agent: the ports on which the host listens. No service gets one of them from the load balancer. */
export const LISTENING_PORTS = 'orchlet.local/listening-ports';
/** Of a Node, by its agent: the public key with which it receives WireGuard packets, as base64. */
export const WIREGUARD_PUBLIC_KEY = 'orchlet.local/wireguard-public-key';
/** Of a Node, by the control plane: since when it has its addresses and its key (`CLAIM TIME`, with commas between). */
export const CLAIMS = 'orchlet.local/claims';
/** Of a Service, by the control plane: its load balancer is the nodes themselves. */
export const SERVICE_LB_ANNOTATION = 'orchlet.local/service-lb';
