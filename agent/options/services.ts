/** Options: what the agent does for services and names of the cluster, beside or in place of add-ons. */
import { option } from './option.ts';

const SERVICES = 'Services';

export const serviceOptions = {
  serviceProxy: option({
    name: 'service-proxy',
    type: 'string',
    default: 'auto',
    choices: ['auto', 'none', 'iptables'],
    group: SERVICES,
    help: "How this node gives services their addresses. 'none' leaves it to kube-proxy or a network plugin; 'auto' does too, but in a cluster whose kube-dns says that nodes serve it.",
  }),
  serveClusterDns: option({
    name: 'serve-cluster-dns',
    type: 'boolean',
    default: false,
    group: SERVICES,
    help: 'Answer names of the cluster on this node, with --service-proxy=iptables. --cluster-dns, or the service kube-dns, has the address.',
  }),
} as const;
