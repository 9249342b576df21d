/** The options of the service proxy and the DNS server, which replace kube-proxy and the cluster's DNS add-on. */
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
  serveClusterDns: option({
    name: 'serve-cluster-dns',
    type: 'boolean',
    default: false,
    group: SERVICES,
    help: "Serve the cluster's DNS on this node. Requires --service-proxy=iptables. The address is that of --cluster-dns or of the kube-dns service.",
  }),
} as const;
