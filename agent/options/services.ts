/**
 * The options of the service proxy, network policies and the name server, which replace kube-proxy, a policy engine and the
 * cluster's DNS add-on.
 */
import { parseCidr } from '../../api/meta/ip-addresses.ts';
import { quoteText } from '../../api/meta/quote.ts';
import { notNegative } from './checks.ts';
import { option } from './option.ts';

const SERVICES = 'Services';

export const serviceOptions = {
  serviceProxy: option({
    name: 'service-proxy',
    type: 'string',
    default: 'auto',
    choices: ['auto', 'none', 'always'],
    group: SERVICES,
    help: "Whether the agent makes services reachable on this node. 'none' leaves it to kube-proxy or a network plugin. 'auto' does so too, except in a cluster whose kube-dns service is marked as served by nodes.",
  }),
  proxyMode: option({
    name: 'proxy-mode',
    type: 'string',
    default: 'auto',
    choices: ['auto', 'nftables', 'iptables'],
    group: SERVICES,
    help: "How the agent writes the rules of services. 'auto' uses nftables, in tables of its own, where the kernel and the tool nft can do it, and iptables elsewhere. Rules of the other mode are removed.",
  }),
  nodeportAddresses: option({
    name: 'nodeport-addresses',
    type: 'list',
    default: [],
    group: SERVICES,
    help: "The addresses of this host on which node ports are reachable, as ranges, or 'primary' for the addresses of the node object. Without the flag, all addresses; 127.0.0.1 only with iptables.",
    check: (values) => {
      const wrong = values.find((value) => value !== 'primary' && parseCidr(value) === undefined);
      return wrong === undefined ? undefined : `${quoteText(wrong)} is neither a range of addresses nor 'primary'`;
    },
  }),
  iptablesLocalhostNodeports: option({
    name: 'iptables-localhost-nodeports',
    type: 'boolean',
    default: true,
    group: SERVICES,
    help: 'Make node ports reachable by 127.0.0.1 on this host. Applies to iptables only. Sets the kernel parameter route_localnet.',
  }),
  networkPolicy: option({
    name: 'network-policy',
    type: 'string',
    default: 'auto',
    choices: ['auto', 'none', 'nftables'],
    group: SERVICES,
    help: "Who enforces network policies on this node. 'none' leaves it to a network plugin. 'auto' does so too, except in a cluster whose kube-dns service is marked as served by nodes: there the agent enforces them with nftables. The rules of an earlier run are removed where it is off.",
  }),
  bindPodAddresses: option({
    name: 'bind-pod-addresses',
    type: 'boolean',
    default: true,
    group: SERVICES,
    help: 'Drop what a pod of this node sends with another address than its own, or with the hardware address of another pod, so that network policies can believe the source of a packet. Concerns pods behind the bridges of the agent. Pods that forward packets of others, such as gateways of a VPN, need false.',
  }),
  podNetwork: option({
    name: 'pod-network',
    type: 'string',
    default: 'auto',
    choices: ['auto', 'none', 'vxlan', 'wireguard', 'routes'],
    group: SERVICES,
    help: "How pods of this node and of other nodes reach each other. 'none' leaves it to a network plugin. 'auto' does so too, except in a cluster whose kube-dns service is marked as served by nodes: there it is what --pod-network of the control plane says, which is 'vxlan' by default. 'wireguard' encrypts; 'routes' is for nodes on one link. All nodes of a cluster need the same. What an earlier run has set up is removed where it is off.",
  }),
  podNetworkPort: option({
    name: 'pod-network-port',
    type: 'integer',
    default: 0,
    group: SERVICES,
    check: (port) => (port >= 0 && port <= 65_535 ? undefined : 'must be a port, or 0'),
    help: 'UDP port of the pod network. 0 means 8472 for vxlan and 51820 for wireguard.',
  }),
  podNetworkKeyLifetime: option({
    name: 'pod-network-key-lifetime',
    type: 'duration',
    default: 7 * 24 * 3_600_000,
    group: SERVICES,
    check: notNegative,
    help: 'How long this node uses a WireGuard key before it creates another one. 0 means for ever.',
  }),
  serveClusterDns: option({
    name: 'serve-cluster-dns',
    type: 'boolean',
    default: false,
    group: SERVICES,
    help: "Serve the cluster's DNS on this node. Requires the service proxy. The address is that of --cluster-dns or of the kube-dns service.",
  }),
} as const;
