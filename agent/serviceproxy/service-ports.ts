/**
 * What the nodes shall do with traffic to services: each port of each service of one address family, with the endpoints that
 * take it from this node. Pure; `ServiceProxy` calls it with what its informers hold, the rule writers read the result.
 *
 * Who takes traffic follows the reference's proxies: ready endpoints; while there are none, those that end but still serve;
 * topology hints where every endpoint has them; only this node's under a policy `Local`.
 */
import { isIPv6 } from 'node:net';
import type { EndpointSlice, Service } from '../../api/machinery/kinds.ts';

export type Family = 'IPv4' | 'IPv6';
export type Protocol = 'TCP' | 'UDP' | 'SCTP';

export interface Endpoint {
  readonly ip: string;
  readonly port: number;
}

export interface ServicePort {
  /** `namespace/name:port`, unique in its family; chains and comments are named after it. */
  readonly id: string;
  readonly protocol: Protocol;
  readonly clusterIp: string;
  readonly port: number;
  /** 0 for none. */
  readonly nodePort: number;
  readonly externalIps: readonly string[];
  readonly loadBalancerIps: readonly string[];
  /** Who may come in by the balancer's addresses; empty is everybody. */
  readonly sourceRanges: readonly string[];
  /** One client stays with one endpoint that long; 0 for no affinity. */
  readonly affinitySeconds: number;
  /** Traffic from outside keeps its source address and goes to this node's endpoints only. */
  readonly externalLocal: boolean;
  /** For the cluster's address. */
  readonly internal: readonly Endpoint[];
  /** For node ports and outer addresses. */
  readonly external: readonly Endpoint[];
  /** Somebody in the cluster takes the traffic, if not from this node: it is dropped here, not refused. */
  readonly hasEndpoints: boolean;
}

/** A port that a balancer asks whether this node has endpoints of the service. */
export interface HealthCheckPort {
  readonly service: { readonly namespace: string; readonly name: string };
  readonly port: number;
  readonly localEndpoints: number;
}

export type SliceEndpoint = NonNullable<EndpointSlice['endpoints']>[number];

/** The label by which a slice names its service. */
export const SERVICE_NAME_LABEL = 'kubernetes.io/service-name';
const OTHER_PROXY_LABEL = 'service.kubernetes.io/service-proxy-name';
const AFFINITY_SECONDS = 10_800;

/** Where the agent is. */
export interface Place {
  readonly nodeName: string;
  /** `topology.kubernetes.io/zone` of the node; '' where it has none. */
  readonly zone: string;
}

export type SlicesOf = (namespace: string, service: string) => readonly EndpointSlice[];

/** Sorted by id, so that equal states make equal rules. */
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
    addresses.filter((address) => isIPv6(address.split('/')[0] ?? '') === (family === 'IPv6'));
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
    const everywhere = usable(nearby(candidates, place));
    const here = usable(candidates.filter(({ endpoint }) => endpoint.nodeName === place.nodeName));
    return {
      id: `${namespace}/${name}:${port.name ?? ''}`,
      protocol,
      clusterIp,
      port: port.port,
      nodePort: port.nodePort ?? 0,
      externalIps: ofFamily(spec.externalIPs),
      loadBalancerIps: ofFamily(balancer),
      sourceRanges: ofFamily(spec.loadBalancerSourceRanges),
      affinitySeconds:
        spec.sessionAffinity === 'ClientIP'
          ? (spec.sessionAffinityConfig?.clientIP?.timeoutSeconds ?? AFFINITY_SECONDS)
          : 0,
      externalLocal,
      internal: spec.internalTrafficPolicy === 'Local' ? here : everywhere,
      external: externalLocal ? here : everywhere,
      hasEndpoints: usable(candidates).length > 0,
    };
  });
}

interface Candidate {
  readonly endpoint: SliceEndpoint;
  readonly number: number;
}

/** An absent condition is good news. */
const isReady = ({ conditions }: SliceEndpoint): boolean => conditions?.ready !== false;
const isServing = ({ conditions }: SliceEndpoint): boolean => (conditions?.serving ?? conditions?.ready) !== false;

function usable(candidates: readonly Candidate[]): Endpoint[] {
  const ready = candidates.filter(({ endpoint }) => isReady(endpoint));
  const ending = (): Candidate[] =>
    candidates.filter(({ endpoint }) => endpoint.conditions?.terminating === true && isServing(endpoint));
  const found = new Map<string, Endpoint>();
  for (const { endpoint, number } of ready.length > 0 ? ready : ending()) {
    const [ip] = endpoint.addresses;
    if (ip !== undefined) found.set(`${ip} ${number}`, { ip, port: number });
  }
  return [...found.values()].toSorted((a, b) => (`${a.ip} ${a.port}` < `${b.ip} ${b.port}` ? -1 : 1));
}

/** Those that are hinted to this node, else to its zone, where every ready endpoint has such a hint; else all. */
function nearby(candidates: readonly Candidate[], { nodeName, zone }: Place): readonly Candidate[] {
  const ready = candidates.filter(({ endpoint }) => isReady(endpoint));
  const hinted = (key: 'forNodes' | 'forZones', value: string): readonly Candidate[] => {
    if (value === '' || !ready.every(({ endpoint }) => (endpoint.hints?.[key] ?? []).length > 0)) return [];
    return ready.filter(({ endpoint }) => endpoint.hints?.[key]?.some(({ name }) => name === value));
  };
  const near = [hinted('forNodes', nodeName), hinted('forZones', zone)].find(({ length }) => length > 0);
  return near ?? candidates;
}
