/** Distributes endpoints over slices with few writes: an endpoint stays in its slice while its ports are the same. Pure. */
import { stringifyJson } from '../../../api/codec/json.ts';
import type { DiscoveryV1EndpointPort, V1Endpoint } from '@kubernetes/client-node';
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import type { EndpointSlice, Node, Pod, Service, Wire } from '../../../api/kinds/kinds.ts';
import { isPodReady, isPodTerminating } from '../pod-state.ts';
import { addressOf, belongsToEndpoints, targetPortIn, referenceToPod } from './service-pods.ts';
import { ZONE_LABEL } from '../../../api/meta/well-known-labels.ts';

/** An endpoint as it is stored. */
export type Endpoint = Wire<V1Endpoint>;
/** A port of a slice as it is stored. */
export type EndpointPort = Wire<DiscoveryV1EndpointPort>;
/** The families of slices that are written. `FQDN` slices belong to users. */
export type AddressType = 'IPv4' | 'IPv6';

/** Endpoints of the same address family with the same ports, which can share a slice. */
export interface EndpointGroup {
  readonly addressType: AddressType;
  readonly ports: readonly EndpointPort[];
  readonly endpoints: readonly Endpoint[];
}

/** What a reconciliation writes. */
export interface SlicePlan {
  readonly create: readonly EndpointGroup[];
  readonly update: readonly {
    readonly slice: EndpointSlice;
    readonly endpoints: readonly Endpoint[];
    readonly ports: readonly EndpointPort[];
  }[];
  readonly remove: readonly EndpointSlice[];
}

/** Returns the address families of the service. If it lists none, returns that of its cluster IP, or IPv4 without one. */
export function familiesOf(service: Service): AddressType[] {
  const families = (service.spec?.ipFamilies ?? []).filter(
    (family): family is AddressType => family === 'IPv4' || family === 'IPv6',
  );
  if (families.length > 0) return families;
  return [(service.spec?.clusterIP ?? '').includes(':') ? 'IPv6' : 'IPv4'];
}

/**
 * Groups the endpoints of a service by address family and set of ports, since named ports differ between pods. A slice has
 * endpoints of one group.
 */
export function groupEndpoints(
  service: Service,
  pods: readonly Pod[],
  nodes: (name: string) => Node | undefined,
): EndpointGroup[] {
  const groups = new Map<string, { addressType: AddressType; ports: EndpointPort[]; endpoints: Endpoint[] }>();
  for (const addressType of familiesOf(service)) {
    for (const pod of pods) {
      const address = addressOf(pod, addressType);
      if (address === undefined || !belongsToEndpoints(pod, { includeTerminating: true })) continue;
      const node = nodes(pod.spec?.nodeName ?? '');
      if (lacksNode(service, node)) continue;
      const ports = portsFor(service, pod);
      const key = `${addressType} ${stringifyJson(ports)}`;
      let group = groups.get(key);
      if (group === undefined) {
        group = { addressType, ports, endpoints: [] };
        groups.set(key, group);
      }
      group.endpoints.push(withHints(service, endpointOf(service, pod, address, node)));
    }
  }
  return [...groups.values()];
}

const lacksNode = (service: Service, node: Node | undefined): boolean =>
  node === undefined && service.spec?.publishNotReadyAddresses !== true;

/** Returns the first pod that the slices of the service omit, because its node does not exist (yet). */
export function podWithoutNode(
  service: Service,
  pods: readonly Pod[],
  nodes: (name: string) => Node | undefined,
): Pod | undefined {
  return pods.find(
    (pod) =>
      belongsToEndpoints(pod, { includeTerminating: true }) && lacksNode(service, nodes(pod.spec?.nodeName ?? '')),
  );
}

const NEAR_ZONE = new Set(['PreferClose', 'PreferSameZone', 'PreferSameNode']);

/**
 * Adds hints to ready endpoints of a service with a traffic distribution: they are for clients of their own zone, or of their
 * own node.
 */
function withHints({ spec }: Service, endpoint: Endpoint): Endpoint {
  const { zone, nodeName, conditions } = endpoint;
  const distribution = spec?.trafficDistribution ?? '';
  if (!NEAR_ZONE.has(distribution) || conditions?.ready !== true) return endpoint;
  const hints = {
    ...(zone === undefined ? {} : { forZones: [{ name: zone }] }),
    ...(distribution === 'PreferSameNode' && nodeName !== undefined ? { forNodes: [{ name: nodeName }] } : {}),
  };
  return Object.keys(hints).length === 0 ? endpoint : { ...endpoint, hints };
}

function portsFor(service: Service, pod: Pod): EndpointPort[] {
  const ports: EndpointPort[] = [];
  for (const port of service.spec?.ports ?? []) {
    const number = targetPortIn(pod, port);
    if (number === undefined) continue;
    const { appProtocol } = port;
    ports.push({
      name: port.name ?? '',
      port: number,
      protocol: port.protocol ?? 'TCP',
      ...(appProtocol === undefined ? {} : { appProtocol }),
    });
  }
  return ports;
}

function endpointOf(service: Service, pod: Pod, address: string, node: Node | undefined): Endpoint {
  const serving = isPodReady(pod);
  const terminating = isPodTerminating(pod);
  const { namespace } = pod.metadata;
  const nodeName = pod.spec?.nodeName ?? '';
  const zone = node?.metadata.labels?.[ZONE_LABEL];
  const hostname = pod.spec?.hostname ?? '';
  const isNamed =
    hostname !== '' && pod.spec?.subdomain === service.metadata.name && namespace === service.metadata.namespace;
  return {
    addresses: [address],
    conditions: {
      ready: service.spec?.publishNotReadyAddresses === true || (serving && !terminating),
      serving,
      terminating,
    },
    ...(isNamed ? { hostname } : {}),
    targetRef: referenceToPod(pod),
    ...(nodeName === '' ? {} : { nodeName }),
    ...(zone === undefined ? {} : { zone }),
  };
}

/**
 * Decides which slices are created, updated and deleted. `placeholders` are the address families that have a slice even if the
 * service has no endpoints.
 */
export function planSlices(options: {
  readonly existing: readonly EndpointSlice[];
  readonly groups: readonly EndpointGroup[];
  readonly placeholders: readonly AddressType[];
  readonly maxPerSlice: number;
  /** Whether the metadata of a slice is out of date. */
  readonly isStale: (slice: EndpointSlice) => boolean;
}): SlicePlan {
  const { maxPerSlice } = options;
  const create: EndpointGroup[] = [];
  const update: { slice: EndpointSlice; endpoints: readonly Endpoint[]; ports: readonly EndpointPort[] }[] = [];
  const used = new Set<EndpointSlice>();
  for (const group of options.groups) {
    const slices = options.existing.filter(
      (slice) => slice.addressType === group.addressType && samePorts(slice.ports ?? [], group.ports),
    );
    const wanted = new Map(group.endpoints.map((endpoint) => [identityOf(endpoint), endpoint]));
    const contents = slices.map((slice) => {
      const endpoints: Endpoint[] = [];
      for (const endpoint of slice.endpoints ?? []) {
        const next = wanted.get(identityOf(endpoint));
        if (next === undefined) continue;
        wanted.delete(identityOf(endpoint));
        endpoints.push(semanticEqual(next, endpoint) ? endpoint : next);
      }
      return { slice, endpoints };
    });
    const unplaced = [...wanted.values()];
    // New endpoints go to the fullest slice that has room.
    for (const content of contents.toSorted((a, b) => b.endpoints.length - a.endpoints.length)) {
      content.endpoints.push(...unplaced.splice(0, Math.max(0, maxPerSlice - content.endpoints.length)));
    }
    while (unplaced.length > 0) create.push({ ...group, endpoints: unplaced.splice(0, maxPerSlice) });
    for (const { slice, endpoints } of contents) {
      if (endpoints.length === 0) continue;
      used.add(slice);
      if (!semanticEqual(endpoints, slice.endpoints) || options.isStale(slice))
        update.push({ slice, endpoints, ports: group.ports });
    }
  }
  for (const addressType of options.placeholders) {
    if (options.groups.some((group) => group.addressType === addressType)) continue;
    const empty = options.existing.find(
      (slice) => slice.addressType === addressType && (slice.endpoints ?? []).length === 0,
    );
    if (empty === undefined) create.push({ addressType, ports: [], endpoints: [] });
    else {
      used.add(empty);
      if (options.isStale(empty) || (empty.ports ?? []).length > 0)
        update.push({ slice: empty, endpoints: [], ports: [] });
    }
  }
  return {
    ...reuse(
      create,
      options.existing.filter((slice) => !used.has(slice)),
      update,
    ),
    update,
  };
}

/** Replaces pairs of a slice to delete and one to create by an update, so that there is no moment without endpoints. */
function reuse(
  create: readonly EndpointGroup[],
  spare: readonly EndpointSlice[],
  update: { slice: EndpointSlice; endpoints: readonly Endpoint[]; ports: readonly EndpointPort[] }[],
): { readonly create: EndpointGroup[]; readonly remove: EndpointSlice[] } {
  const remove = [...spare];
  const remaining = create.filter((group) => {
    const at = remove.findIndex((slice) => slice.addressType === group.addressType);
    const [slice] = at < 0 ? [] : remove.splice(at, 1);
    if (slice === undefined) return true;
    update.push({ slice, endpoints: group.endpoints, ports: group.ports });
    return false;
  });
  return { create: remaining, remove };
}

/** Returns a key of the pod and the addresses of an endpoint, which does not depend on its state. */
export function identityOf(endpoint: Endpoint): string {
  return `${endpoint.targetRef?.uid ?? ''} ${endpoint.addresses.join(',')}`;
}

function samePorts(a: readonly EndpointPort[], b: readonly EndpointPort[]): boolean {
  const sorted = (ports: readonly EndpointPort[]): string[] =>
    ports
      .map(({ name, port, protocol, appProtocol }) => stringifyJson([name ?? '', port, protocol, appProtocol]))
      .toSorted();
  return semanticEqual(sorted(a), sorted(b));
}
