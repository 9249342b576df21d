/**
 * Computes how the node handles traffic to services: each port of each service of one address family, with the
 * endpoints that receive its traffic from this node. Pure. `ServiceProxy` calls it with the content of its informers,
 * and the rule writers read the result.
 *
 * Endpoints are selected as in kube-proxy: ready endpoints; if there are none, terminating endpoints that still serve;
 * topology hints if every endpoint has them; only endpoints on this node under a `Local` policy.
 */
import type { EndpointSlice, Service } from '../../../api/machinery/kinds.ts';
import { canonicalAddress, canonicalRange, type Family } from './addresses.ts';

export type Protocol = 'TCP' | 'UDP' | 'SCTP';

export interface Endpoint {
  readonly ip: string;
  readonly port: number;
}

export interface ServicePort {
  /** `namespace/name:port`, which is unique in its family. Chains and comments are named after it. */
  readonly id: string;
  readonly protocol: Protocol;
  readonly clusterIp: string;
  readonly port: number;
  /** 0 if there is none. */
  readonly nodePort: number;
  readonly externalIps: readonly string[];
  readonly loadBalancerIps: readonly string[];
  /** The source ranges that may use the load balancer IPs. Empty allows all. */
  readonly sourceRanges: readonly string[];
  /** How long a client stays with one endpoint; 0 for no affinity. */
  readonly affinitySeconds: number;
  /**
   * `externalTrafficPolicy: Local`: external traffic keeps its source address and goes only to endpoints on this node.
   */
  readonly externalLocal: boolean;
  /** The endpoints for traffic to the cluster IP. */
  readonly internal: readonly Endpoint[];
  /** The endpoints for traffic to node ports, external IPs and load balancer IPs. */
  readonly external: readonly Endpoint[];
  /**
   * The cluster has endpoints for the port, possibly not for traffic from this node. Without local endpoints the
   * traffic is dropped, not rejected.
   */
  readonly hasEndpoints: boolean;
}

/** A port on which a load balancer checks whether this node has endpoints of the service. */
export interface HealthCheckPort {
  readonly service: { readonly namespace: string; readonly name: string };
  readonly port: number;
  readonly localEndpoints: number;
}

export type SliceEndpoint = NonNullable<EndpointSlice['endpoints']>[number];

/** The label of an EndpointSlice that names its service. */
export const SERVICE_NAME_LABEL = 'kubernetes.io/service-name';
const OTHER_PROXY_LABEL = 'service.kubernetes.io/service-proxy-name';
const AFFINITY_SECONDS = 10_800;

/** The location of the agent in the topology. */
export interface Place {
  readonly nodeName: string;
  /** The node's `topology.kubernetes.io/zone`; empty if it has none. */
  readonly zone: string;
}

export type SlicesOf = (namespace: string, service: string) => readonly EndpointSlice[];

/**
 * Sorted by id, so that equal states produce equal rules. An external address that is the cluster IP of a service is left out:
 * whoever may write a service could otherwise take the traffic of another one, such as queries to the name server.
 */
export function servicePorts(
  services: readonly Service[],
  slicesOf: SlicesOf,
  family: Family,
  place: Place,
): ServicePort[] {
  const clusterIps = new Set(
    services.flatMap(({ spec }) => spec?.clusterIPs ?? []).map((address) => canonicalAddress(address, family)),
  );
  return services
    .filter((service) => isProxied(service))
    .flatMap((service) => portsOf(service, slicesOf, family, { place, clusterIps }))
    .toSorted((a, b) => (a.id < b.id ? -1 : 1));
}

export function healthCheckPorts(services: readonly Service[], slicesOf: SlicesOf, place: Place): HealthCheckPort[] {
  return services.flatMap((service) => {
    const { type, externalTrafficPolicy, healthCheckNodePort: port = 0 } = service.spec ?? {};
    if (type !== 'LoadBalancer' || externalTrafficPolicy !== 'Local' || port === 0) return [];
    const { namespace = '', name = '' } = service.metadata;
    const local = slicesOf(namespace, name)
      .flatMap(({ endpoints = [] }) => endpoints)
      .filter((endpoint) => endpoint.nodeName === place.nodeName && isReady(endpoint));
    return [{ service: { namespace, name }, port, localEndpoints: local.length }];
  });
}

function isProxied({ metadata, spec }: Service): boolean {
  if (metadata.labels?.[OTHER_PROXY_LABEL] !== undefined || spec?.type === 'ExternalName') return false;
  const first = spec?.clusterIPs?.[0] ?? '';
  return first !== '' && first !== 'None';
}

interface Surroundings {
  readonly place: Place;
  /** The addresses of all services, which no external address may be. */
  readonly clusterIps: ReadonlySet<string | undefined>;
}

function portsOf(
  service: Service,
  slicesOf: SlicesOf,
  family: Family,
  { place, clusterIps }: Surroundings,
): ServicePort[] {
  const { namespace = '', name = '' } = service.metadata;
  const spec = service.spec ?? {};
  const ofFamily = (addresses: readonly string[] = []): string[] =>
    addresses.flatMap((address) => canonicalAddress(address, family) ?? []);
  const externalOfFamily = (addresses: readonly string[] = []): string[] =>
    ofFamily(addresses).filter((address) => !clusterIps.has(address));
  const rangesOfFamily = (ranges: readonly string[] = []): string[] =>
    ranges.flatMap((range) => canonicalRange(range, family) ?? []);
  const [clusterIp] = ofFamily(spec.clusterIPs);
  if (clusterIp === undefined) return [];
  const slices = slicesOf(namespace, name)
    .filter(({ addressType }) => addressType === family)
    .map(({ endpoints, ports }) => ({ endpoints: endpoints ?? [], numbers: portNumbers(ports ?? []) }));
  const balancer = (service.status?.loadBalancer?.ingress ?? [])
    .filter(({ ip, ipMode }) => ip !== undefined && ipMode !== 'Proxy')
    .map(({ ip = '' }) => ip);
  const externalLocal = spec.externalTrafficPolicy === 'Local';
  return (spec.ports ?? []).map((port) => {
    const protocol = (port.protocol ?? 'TCP') as Protocol;
    const candidates = slices.flatMap(({ endpoints, numbers }) => {
      const number = numbers.get(port.name ?? '');
      return number === undefined ? [] : endpoints.map((endpoint) => ({ endpoint, number }));
    });
    const everywhere = usable(nearby(candidates, place), family);
    const here = usable(
      candidates.filter(({ endpoint }) => endpoint.nodeName === place.nodeName),
      family,
    );
    return {
      id: `${namespace}/${name}:${port.name ?? ''}`,
      protocol,
      clusterIp,
      port: port.port,
      nodePort: port.nodePort ?? 0,
      externalIps: externalOfFamily(spec.externalIPs),
      loadBalancerIps: externalOfFamily(balancer),
      sourceRanges: rangesOfFamily(spec.loadBalancerSourceRanges),
      affinitySeconds:
        spec.sessionAffinity === 'ClientIP'
          ? (spec.sessionAffinityConfig?.clientIP?.timeoutSeconds ?? AFFINITY_SECONDS)
          : 0,
      externalLocal,
      internal: spec.internalTrafficPolicy === 'Local' ? here : everywhere,
      external: externalLocal ? here : everywhere,
      hasEndpoints: usable(candidates, family).length > 0,
    };
  });
}

/** The port numbers of a slice by name; the first one of a name counts. A slice may have thousands of ports. */
function portNumbers(ports: NonNullable<EndpointSlice['ports']>): ReadonlyMap<string, number | undefined> {
  return new Map(ports.map(({ name, port }) => [name ?? '', port] as const).toReversed());
}

interface Candidate {
  readonly endpoint: SliceEndpoint;
  readonly number: number;
}

/** An absent `ready` condition means ready. */
const isReady = ({ conditions }: SliceEndpoint): boolean => conditions?.ready !== false;
const isServing = ({ conditions }: SliceEndpoint): boolean => (conditions?.serving ?? conditions?.ready) !== false;

function usable(candidates: readonly Candidate[], family: Family): Endpoint[] {
  const ready = candidates.filter(({ endpoint }) => isReady(endpoint));
  const ending = (): Candidate[] =>
    candidates.filter(({ endpoint }) => endpoint.conditions?.terminating === true && isServing(endpoint));
  const found = new Map<string, Endpoint>();
  for (const { endpoint, number } of ready.length > 0 ? ready : ending()) {
    const ip = canonicalAddress(endpoint.addresses[0] ?? '', family);
    if (ip !== undefined) found.set(`${ip} ${number}`, { ip, port: number });
  }
  return [...found.values()].toSorted((a, b) => (`${a.ip} ${a.port}` < `${b.ip} ${b.port}` ? -1 : 1));
}

/**
 * Selects the endpoints that are hinted for this node, or for its zone, if every ready endpoint has such a hint.
 * Otherwise selects all.
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
