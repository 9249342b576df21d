/**
 * Computes how the node handles traffic to services: each port of each service of one address family, with the endpoints
 * that receive its traffic from this node. Pure. Endpoints are selected as in kube-proxy.
 */
import type { EndpointSlice, Service } from '../../../api/kinds/kinds.ts';
import { canonicalAddress, canonicalRange, type Family, isWithin } from './addresses.ts';
import { SERVICE_LB_ANNOTATION } from '../../../api/meta/orchlet-annotations.ts';
import { HEADLESS_LABEL } from '../../../api/meta/well-known-labels.ts';

type Protocol = 'TCP' | 'UDP' | 'SCTP';

/** An address and port that traffic is translated to. */
export interface Endpoint {
  readonly ip: string;
  readonly port: number;
}

/** Returns `10.1.2.3:80` or `[fd00::3]:80`, as both iptables and nftables write it. */
export const endpointText = ({ ip, port }: Endpoint): string =>
  ip.includes(':') ? `[${ip}]:${port}` : `${ip}:${port}`;

/** One port of a service in one family, with everything that its rules depend on. */
export interface ServicePort {
  /** `namespace/name:port`, which is unique in its family and protocol. Chains and comments are named after it. */
  readonly id: string;
  /** The service's `creationTimestamp`. The oldest service keeps what several claim. */
  readonly since: string;
  readonly protocol: Protocol;
  readonly clusterIp: string;
  readonly port: number;
  /** The node port; 0 if the port has none. */
  readonly nodePort: number;
  readonly externalIps: readonly string[];
  readonly loadBalancerIps: readonly string[];
  /** The source ranges that may use the load balancer IPs. Empty allows all. */
  readonly sourceRanges: readonly string[];
  /** How long a client keeps its endpoint without traffic (`sessionAffinity: ClientIP`); 0 without session affinity. */
  readonly affinitySeconds: number;
  /**
   * `externalTrafficPolicy: Local`: external traffic keeps its source address and goes only to endpoints on this node.
   */
  readonly externalLocal: boolean;
  /** The endpoints that this node prefers, without regard to traffic policies. */
  readonly cluster: readonly Endpoint[];
  /** The endpoints for traffic to the cluster IP. */
  readonly internal: readonly Endpoint[];
  /** The endpoints for traffic to node ports, external IPs and load balancer IPs. */
  readonly external: readonly Endpoint[];
  /**
   * All endpoints of a UDP port that serve, without regard to policies and topology: existing flows may lead to them. Empty
   * for other protocols.
   */
  readonly serving: readonly Endpoint[];
  /** Whether any node has usable endpoints for the port. */
  readonly hasEndpoints: boolean;
}

/** A port on which a load balancer checks whether this node has endpoints of the service. */
export interface HealthCheckPort {
  readonly service: { readonly namespace: string; readonly name: string };
  readonly port: number;
  readonly localEndpoints: number;
}

type SliceEndpoint = NonNullable<EndpointSlice['endpoints']>[number];

const OTHER_PROXY_LABEL = 'service.kubernetes.io/service-proxy-name';
/** The default of `sessionAffinityConfig.clientIP.timeoutSeconds`, and the largest value that the API accepts. */
const AFFINITY_SECONDS = 10_800;
const MAX_AFFINITY_SECONDS = 86_400;

/** The node of the agent: its place in the topology, its addresses, and the ports that no service may have there. */
export interface Place {
  readonly nodeName: string;
  /** The node's `topology.kubernetes.io/zone`; empty if it has none. */
  readonly zone: string;
  /** The addresses of the node of type InternalIP. */
  readonly nodeIps?: readonly string[];
  /** The addresses of the node of type ExternalIP. A router translates them to those of `nodeIps` before packets arrive. */
  readonly externalIps?: readonly string[];
  /** Ports of nodes that no service may have, such as `TCP 10250`: those of agents and of the pod network. */
  readonly reservedPorts?: readonly string[];
  /** Ports on which processes of this host listen. No service may have them at the addresses of the node. */
  readonly listeningPorts?: readonly string[];
}

/** Lists the endpoint slices of a service. */
export type SlicesOf = (namespace: string, service: string) => readonly EndpointSlice[];

/** Returns the port on which load balancers check this node for the service; `undefined` if there is none. */
export function healthCheckPort(service: Service, slicesOf: SlicesOf, place: Place): HealthCheckPort | undefined {
  const { type, externalTrafficPolicy, healthCheckNodePort: port = 0 } = service.spec ?? {};
  if (type !== 'LoadBalancer' || externalTrafficPolicy !== 'Local' || !isPortNumber(port)) return undefined;
  const { namespace = '', name = '' } = service.metadata;
  const local = slicesOf(namespace, name)
    .flatMap(({ endpoints = [] }) => endpoints)
    .filter((endpoint) => endpoint.nodeName === place.nodeName && isReady(endpoint));
  return { service: { namespace, name }, port, localEndpoints: local.length };
}

const isPortNumber = (port: unknown): port is number =>
  typeof port === 'number' && Number.isInteger(port) && port > 0 && port <= 0xffff;
const PROTOCOLS: ReadonlySet<unknown> = new Set<Protocol>(['TCP', 'UDP', 'SCTP']);
const isProtocol = (protocol: unknown): protocol is Protocol => PROTOCOLS.has(protocol);

function isProxied({ metadata, spec }: Service): boolean {
  if (metadata.labels?.[OTHER_PROXY_LABEL] !== undefined || spec?.type === 'ExternalName') return false;
  const first = spec?.clusterIPs?.[0] ?? '';
  return first !== '' && first !== 'None';
}

/** Whether addresses of services lead to the endpoints of a slice. Those with the headless label are for names alone. */
export const isProxiedSlice = ({ metadata }: EndpointSlice): boolean => metadata.labels?.[HEADLESS_LABEL] === undefined;

/**
 * Returns the ports of a service in one family, without regard to other services that claim the same address. Ports,
 * protocols and addresses that no rule can express are left out, because another API server may have accepted them.
 */
export function portsOf(service: Service, slicesOf: SlicesOf, family: Family, place: Place): ServicePort[] {
  if (!isProxied(service)) return [];
  const { namespace = '', name = '', creationTimestamp } = service.metadata;
  const spec = service.spec ?? {};
  const [clusterIp] = addressesOf(spec.clusterIPs, family);
  if (clusterIp === undefined) return [];
  const slices = slicesOf(namespace, name)
    .filter(({ addressType }) => addressType === family)
    .map(({ endpoints, ports }) => ({ endpoints: endpoints ?? [], numbers: portNumbers(ports ?? []) }));
  const externalLocal = spec.externalTrafficPolicy === 'Local';
  const shared = {
    since: creationTimestamp ?? '',
    clusterIp,
    externalIps: addressesOf(spec.externalIPs, family),
    ...loadBalancerOf(service, family, place),
    affinitySeconds: affinityOf(spec),
    externalLocal,
  };
  return (spec.ports ?? []).flatMap(({ name: portName = '', protocol = 'TCP', port, nodePort = 0 }) => {
    if (!isProtocol(protocol) || !isPortNumber(port)) return [];
    const candidates = slices.flatMap(({ endpoints, numbers }) => {
      const number = numbers.get(portName);
      return isPortNumber(number) ? endpoints.map((endpoint) => ({ endpoint, number })) : [];
    });
    const cluster = usable(nearby(candidates, place), family);
    const local = usable(
      candidates.filter(({ endpoint }) => endpoint.nodeName === place.nodeName),
      family,
    );
    return {
      ...shared,
      id: `${namespace}/${name}:${portName}`,
      protocol,
      port,
      nodePort: isPortNumber(nodePort) ? nodePort : 0,
      cluster,
      internal: spec.internalTrafficPolicy === 'Local' ? local : cluster,
      external: externalLocal ? local : cluster,
      serving:
        protocol === 'UDP'
          ? endpointsOf(
              candidates.filter(({ endpoint }) => isServing(endpoint)),
              family,
            )
          : [],
      hasEndpoints: usable(candidates, family).length > 0,
    };
  });
}

const addressesOf = (addresses: readonly string[] = [], family: Family): string[] => [
  ...new Set(addresses.flatMap((address) => canonicalAddress(address, family) ?? [])),
];

/**
 * Returns the load balancer IPs that this node serves, and the source ranges that may use them.
 *
 * Where the nodes are the load balancer, each node serves only its own addresses. Nodes report their addresses themselves, so
 * a compromised node could otherwise draw the traffic for any address that it reports.
 *
 * If the source ranges admit this node, they admit the load balancer IPs as well: packets that this host sends to an address
 * of one of its own interfaces have that address as their source.
 */
function loadBalancerOf(
  { metadata, spec, status }: Service,
  family: Family,
  { nodeIps = [], externalIps = [] }: Place,
): Pick<ServicePort, 'loadBalancerIps' | 'sourceRanges'> {
  const stated = (status?.loadBalancer?.ingress ?? [])
    .filter(({ ip, ipMode }) => ip !== undefined && ipMode !== 'Proxy')
    .map(({ ip = '' }) => ip);
  const isExternalIp = stated.some((ip) => externalIps.includes(ip));
  const nodeAddresses = addressesOf([...nodeIps, ...externalIps], family);
  const isServedByNodes = metadata.annotations?.[SERVICE_LB_ANNOTATION] !== undefined;
  const all = addressesOf(isExternalIp ? [...stated, ...nodeIps] : stated, family);
  const loadBalancerIps = isServedByNodes ? all.filter((address) => nodeAddresses.includes(address)) : all;
  const ranges = (spec?.loadBalancerSourceRanges ?? []).flatMap((range) => canonicalRange(range, family) ?? []);
  const ownIps = addressesOf(nodeIps, family);
  const admitsNode = ranges.some((range) => ownIps.some((address) => isWithin(address, range)));
  const ownRanges = admitsNode ? loadBalancerIps.map((address) => `${address}/${family === 'IPv4' ? 32 : 128}`) : [];
  return { loadBalancerIps, sourceRanges: [...new Set([...ranges, ...ownRanges])] };
}

function affinityOf({ sessionAffinity, sessionAffinityConfig }: NonNullable<Service['spec']>): number {
  if (sessionAffinity !== 'ClientIP') return 0;
  const seconds: unknown = sessionAffinityConfig?.clientIP?.timeoutSeconds;
  return Number.isInteger(seconds) && Number(seconds) > 0
    ? Math.min(Number(seconds), MAX_AFFINITY_SECONDS)
    : AFFINITY_SECONDS;
}

/** Returns the port numbers of a slice by name; the first one of a name counts. */
function portNumbers(ports: NonNullable<EndpointSlice['ports']>): ReadonlyMap<string, number | undefined> {
  return new Map(ports.map(({ name, port }) => [name ?? '', port] as const).toReversed());
}

interface Candidate {
  readonly endpoint: SliceEndpoint;
  readonly number: number;
}

/** Whether the endpoint is ready. An absent `ready` condition means ready. */
const isReady = ({ conditions }: SliceEndpoint): boolean => conditions?.ready !== false;
const isServing = ({ conditions }: SliceEndpoint): boolean => (conditions?.serving ?? conditions?.ready) !== false;

/** Returns the ready endpoints; if there are none, the terminating endpoints that still serve. */
function usable(candidates: readonly Candidate[], family: Family): Endpoint[] {
  const ready = candidates.filter(({ endpoint }) => isReady(endpoint));
  const terminating = (): Candidate[] =>
    candidates.filter(({ endpoint }) => endpoint.conditions?.terminating === true && isServing(endpoint));
  return endpointsOf(ready.length > 0 ? ready : terminating(), family);
}

/** Returns each pair of address and port once, in a fixed order, so that equal endpoints give equal rules. */
function endpointsOf(candidates: readonly Candidate[], family: Family): Endpoint[] {
  const found = new Map<string, Endpoint>();
  for (const { endpoint, number } of candidates) {
    const ip = canonicalAddress(endpoint.addresses[0] ?? '', family);
    if (ip !== undefined) found.set(`${ip} ${number}`, { ip, port: number });
  }
  return [...found.values()].toSorted((a, b) => (`${a.ip} ${a.port}` < `${b.ip} ${b.port}` ? -1 : 1));
}

/**
 * Returns the ready endpoints that are hinted for this node or for its zone, as kube-proxy does; all candidates if hints
 * select none.
 */
function nearby(candidates: readonly Candidate[], { nodeName, zone }: Place): readonly Candidate[] {
  const ready = candidates.filter(({ endpoint }) => isReady(endpoint));
  const hinted = (key: 'forNodes' | 'forZones', value: string): readonly Candidate[] => {
    if (value === '' || !ready.every(({ endpoint }) => (endpoint.hints?.[key] ?? []).length > 0)) return [];
    return ready.filter(({ endpoint }) => endpoint.hints?.[key]?.some(({ name }) => name === value));
  };
  const near = [hinted('forNodes', nodeName), hinted('forZones', zone)].find(({ length }) => length > 0);
  return near ?? candidates;
}
