/**
 * The options of the service proxy, network policies and the DNS server, which replace kube-proxy, a policy engine and the
 * cluster's DNS add-on.
 */
import { option } from './option.ts';

const SERVICES = 'Services';

export const serviceOptions = {
  serviceProxy: option({
    name: 'service-proxy',
    type: 'string',
    default: 'auto',
    choices: ['auto', 'none', 'iptables'],
    group: SERVICES,
    help: "How services are reachable on this node. 'none' leaves it to kube-proxy or a network plugin. 'auto' does so too, except in a cluster whose kube-dns service is marked as served by nodes.",
  }),
  networkPolicy: option({
    name: 'network-policy',
    type: 'string',
    default: 'auto',
    choices: ['auto', 'none', 'nftables'],
    group: SERVICES,
    help: "Who enforces network policies on this node. 'none' leaves it to a network plugin. 'auto' does so too, except in a cluster whose kube-dns service is marked as served by nodes: there the agent enforces them with nftables. The rules of an earlier run are removed where it is off.",
  }),
  serveClusterDns: option({
    name: 'serve-cluster-dns',
    type: 'boolean',
    default: false,
    group: SERVICES,
    help: "Serve the cluster's DNS on this node. Requires --service-proxy=iptables. The address is that of --cluster-dns or of the kube-dns service.",
  }),
} as const;
