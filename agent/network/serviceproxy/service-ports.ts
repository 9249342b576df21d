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

/** Sorted by id, so that equal states produce equal rules. */
export function servicePorts(
  services: readonly Service[],
  slicesOf: SlicesOf,
  family: Family,
  place: Place,
): ServicePort[] {
  return services
    .filter((service) => isProxied(service))
    .flatMap((service) => portsOf(service, slicesOf, family, place))
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

function portsOf(service: Service, slicesOf: SlicesOf, family: Family, place: Place): ServicePort[] {
  const { namespace = '', name = '' } = service.metadata;
  const spec = service.spec ?? {};
  const ofFamily = (addresses: readonly string[] = []): string[] =>
    addresses.flatMap((address) => canonicalAddress(address, family) ?? []);
  const rangesOfFamily = (ranges: readonly string[] = []): string[] =>
    ranges.flatMap((range) => canonicalRange(range, family) ?? []);
  const [clusterIp] = ofFamily(spec.clusterIPs);
  if (clusterIp === undefined) return [];
  const slices = slicesOf(namespace, name).filter(({ addressType }) => addressType === family);
  const balancer = (service.status?.loadBalancer?.ingress ?? [])
    .filter(({ ip, ipMode }) => ip !== undefined && ipMode !== 'Proxy')
    .map(({ ip = '' }) => ip);
  const externalLocal = spec.externalTrafficPolicy === 'Local';
  return (spec.ports ?? []).map((port) => {
    const protocol = (port.protocol ?? 'TCP') as Protocol;
    const candidates = slices.flatMap((slice) => {
      const target = slice.ports?.find((each) => (each.name ?? '') === (port.name ?? ''));
      if (target?.port === undefined) return [];
      const { port: number } = target;
      return (slice.endpoints ?? []).map((endpoint) => ({ endpoint, number }));
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
      externalIps: ofFamily(spec.externalIPs),
      loadBalancerIps: ofFamily(balancer),
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
