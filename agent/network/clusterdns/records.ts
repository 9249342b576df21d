/**
 * Computes the DNS records of the cluster by version 1.1.0 of the Kubernetes DNS specification: services, their ports, the
 * endpoints of headless services, pods by their address, and reverse records. Pure.
 */
import { isIP, isIPv6 } from 'node:net';
import type { EndpointSlice, Service } from '../../../api/kinds/kinds.ts';
import type { SlicesOf } from '../serviceproxy/service-ports.ts';
import { SERVICE_NAME_LABEL } from '../../../api/meta/well-known-labels.ts';

/** The listers from which records are computed. Domain names are in lower case and have no dot at the end. */
export interface ClusterNames {
  readonly service: (namespace: string, name: string) => Service | undefined;
  readonly slicesOf: SlicesOf;
  readonly hasServices: (namespace: string) => boolean;
  /** Returns the service with this cluster IP. */
  readonly serviceAt: (address: string) => Service | undefined;
  /** Returns the slices that have an endpoint with this address. */
  readonly slicesAt: (address: string) => readonly EndpointSlice[];
  /** The addresses of the name server for pods. */
  readonly nameServers: () => readonly string[];
}

/** A record to be encoded. All have the same TTL. */
export type DnsRecord =
  | { readonly type: 'A' | 'AAAA' | 'PTR' | 'CNAME' | 'NS'; readonly name: string; readonly data: string }
  | { readonly type: 'TXT'; readonly name: string; readonly data: string }
  | {
      readonly type: 'SRV';
      readonly name: string;
      readonly data: { readonly target: string; readonly port: number; readonly priority: 0; readonly weight: number };
    };

interface Found {
  readonly answers: readonly DnsRecord[];
  /** The addresses of the names in `answers`. */
  readonly additionals: readonly DnsRecord[];
}

/** The name in lower case without a dot at the end, and the type in upper case. */
interface RecordQuestion {
  readonly name: string;
  readonly type: string;
}

/** What this server knows of the cluster, and how much it answers. */
interface Zone {
  /** The domain of the cluster, such as `cluster.local`. */
  readonly domain: string;
  readonly names: ClusterNames;
  /**
   * The number of records that fit into the longest response. If there are more, because a service has many endpoints, one more
   * than this is returned, so that the response is marked as truncated.
   */
  readonly most?: number;
  /**
   * The place at which the reading of the endpoints begins, as a share of their number from 0 to less than 1. It varies, so
   * that all endpoints get into responses.
   */
  readonly from?: number;
}

const NOTHING: Found = { answers: [], additionals: [] };

/**
 * Answers a question for a name in the domain of the cluster. Returns `undefined` if the name does not exist, and no answers
 * if it exists without records of the type.
 */
export function clusterRecords(
  { name, type }: RecordQuestion,
  { domain, names, most = Number.MAX_SAFE_INTEGER, from = 0 }: Zone,
): Found | undefined {
  const labels = name.slice(0, -domain.length - 1).split('.');
  const server = `ns.dns.${domain}`;
  const serverRecords = (wanted: string): Found => addressRecords(server, wanted, names.nameServers(), most);
  if (name === domain)
    return type === 'NS'
      ? {
          answers: [{ type: 'NS', name, data: server }],
          additionals: ['A', 'AAAA'].flatMap((wanted) => serverRecords(wanted).answers),
        }
      : NOTHING;
  if (name === server) return serverRecords(type);
  if (name === `dns-version.${domain}`)
    return { answers: type === 'TXT' ? [{ type: 'TXT', name, data: '1.1.0' }] : [], additionals: [] };
  const [kind, namespace, last, ...more] = labels.toReversed();
  if (kind !== 'svc' && kind !== 'pod') return undefined;
  if (namespace === undefined) return NOTHING;
  if (last === undefined) return names.hasServices(namespace) ? NOTHING : undefined;
  if (kind === 'pod') return more.length > 0 ? undefined : podRecords(name, type, last);
  const service = names.service(namespace, last);
  if (service === undefined) return undefined;
  return serviceRecords(name, type, more.toReversed(), { service, namespace, domain, names, most, from });
}

/**
 * Returns the address that a name such as `10-0-0-7.shop.pod.cluster.local` spells, or `undefined` if it spells none. Does not
 * verify that such a pod exists, like CoreDNS with `pods insecure`.
 */
function podRecords(name: string, type: string, label: string): Found | undefined {
  const address = addressOf(label);
  return address === undefined ? undefined : addressRecords(name, type, [address], 1);
}

/** Returns the label of an address, in which dashes replace dots and colons. */
const dashed = (address: string): string => address.replaceAll(/[.:]/g, '-');

function addressOf(label: string): string | undefined {
  const v4 = label.replaceAll('-', '.');
  if (/^\d{1,3}(\.\d{1,3}){3}$/.test(v4) && v4.split('.').every((part) => Number(part) < 256)) return v4;
  const v6 = label.replaceAll('-', ':');
  return isIPv6(v6) ? v6 : undefined;
}

interface ServiceContext {
  readonly service: Service;
  readonly namespace: string;
  readonly domain: string;
  readonly names: ClusterNames;
  readonly most: number;
  readonly from: number;
}

/** The types for which an ExternalName service has its alias; it has no records of other types, as in CoreDNS. */
const ALIASED: ReadonlySet<string> = new Set(['A', 'AAAA', 'CNAME']);

/** Returns the records of a service. `before` has the labels before its name. */
function serviceRecords(
  name: string,
  type: string,
  before: readonly string[],
  context: ServiceContext,
): Found | undefined {
  if (before.length > 2) return undefined;
  const { service } = context;
  const { spec } = service;
  if (spec?.type === 'ExternalName') {
    const target = (spec.externalName ?? '').replace(/\.$/, '');
    // An alias leads to a name, and never to an address.
    if (before.length > 0 || target === '' || isIP(target) !== 0) return undefined;
    return ALIASED.has(type) ? { answers: [{ type: 'CNAME', name, data: target }], additionals: [] } : NOTHING;
  }
  const addresses = (spec?.clusterIPs ?? []).filter((address) => address !== 'None' && address !== '');
  const isHeadless = addresses.length === 0;
  if (before.length === 0) {
    // A headless service without ready endpoints does not exist, as in CoreDNS.
    if (isHeadless && endpointHosts(context).next().done === true) return undefined;
    if (type === 'SRV') return portRecords(name, '', '', context);
    const hostAddresses = isHeadless ? endpointHosts(context).flatMap((host) => host.addresses) : addresses;
    return addressRecords(name, type, hostAddresses, context.most);
  }
  if (before.length === 1) {
    const hosts = hostsNamed(before[0] ?? '', context);
    if (hosts.length === 0) return undefined;
    if (type === 'SRV') return srvRecords(name, hosts.values().flatMap(targetsOf(context)), context.most);
    const hostAddresses = hosts.flatMap((host) => host.addresses);
    return addressRecords(name, type, hostAddresses, context.most);
  }
  // CoreDNS takes the labels of port and protocol without an underscore as well.
  const [port = '', protocol = ''] = before.map((label) => label.replace(/^_/, ''));
  const found = portRecords(name, port, protocol, context);
  if (found.answers.length === 0) return undefined;
  if (type === 'SRV') return found;
  const targets = found.additionals.flatMap((record) => (record.type === type ? [String(record.data)] : []));
  return addressRecords(name, type, targets, context.most);
}

interface Host {
  readonly label: string;
  readonly addresses: readonly string[];
  readonly ports: readonly { readonly name?: string; readonly protocol?: string; readonly port?: number }[];
}

type Ports = Host['ports'];

/** Yields the ready endpoints of a service. `portsOf` selects the ports of a slice, and a slice without any is skipped. */
function* endpointHosts(
  { service, namespace, names, from }: ServiceContext,
  portsOf?: (ports: Ports) => Ports,
): Generator<Host, undefined> {
  for (const slice of rotated(names.slicesOf(namespace, service.metadata.name ?? ''), from)) {
    if (slice.addressType === 'FQDN') continue;
    const ports = portsOf?.(slice.ports ?? []) ?? slice.ports ?? [];
    if (portsOf !== undefined && ports.length === 0) continue;
    for (const { addresses, conditions, hostname } of rotated(slice.endpoints ?? [], from)) {
      if (conditions?.ready === false) continue;
      const label = hostname === undefined || hostname === '' ? dashed(addresses[0] ?? '') : hostname;
      yield { label, addresses, ports };
    }
  }
}

/** Yields all items of the list, beginning at the place `from`, a share of its length. */
function* rotated<T>(items: readonly T[], from: number): Generator<T, undefined> {
  const start = Math.floor(from * items.length);
  yield* items.values().drop(start);
  yield* items.values().take(start);
}

/** The ready endpoints of slices by label. Slices of an informer never change, and a query must not visit all endpoints. */
const hostsOfSlices = new WeakMap<EndpointSlice, ReadonlyMap<string, readonly Host[]>>();

function hostsNamed(label: string, context: ServiceContext): Host[] {
  const { names, namespace, service } = context;
  return names.slicesOf(namespace, service.metadata.name ?? '').flatMap((slice) => {
    let cached = hostsOfSlices.get(slice);
    if (cached === undefined) {
      const hosts = endpointHosts({ ...context, names: { ...names, slicesOf: () => [slice] } });
      hostsOfSlices.set(slice, (cached = Map.groupBy(hosts, (host) => host.label)));
    }
    return cached.get(label) ?? [];
  });
}

/** What an SRV record leads to: a name and a port. */
interface Target {
  readonly target: string;
  readonly port: number;
  readonly addresses: readonly string[];
}

const serviceNameOf = ({ service, namespace, domain }: ServiceContext): string =>
  `${service.metadata.name}.${namespace}.svc.${domain}`;

const targetsOf =
  (context: ServiceContext) =>
  ({ label, addresses, ports }: Host): readonly Target[] =>
    ports.map(({ port = 0 }) => ({ target: `${label}.${serviceNameOf(context)}`, port, addresses }));

/** Returns the SRV records of ports with this name and protocol; empty matches any. */
function portRecords(name: string, port: string, protocol: string, context: ServiceContext): Found {
  const { service, most } = context;
  const wanted = (each: { readonly name?: string; readonly protocol?: string }): boolean =>
    (port === '' || each.name === port) && (protocol === '' || (each.protocol ?? 'TCP').toLowerCase() === protocol);
  const addresses = (service.spec?.clusterIPs ?? []).filter((address) => address !== 'None' && address !== '');
  if (addresses.length === 0) {
    const hosts = endpointHosts(context, (ports) => ports.filter(wanted));
    return srvRecords(name, hosts.flatMap(targetsOf(context)), most);
  }
  const ports = (service.spec?.ports ?? []).filter(wanted);
  const target = serviceNameOf(context);
  return srvRecords(
    name,
    ports.values().map((each) => ({ target, port: each.port ?? 0, addresses })),
    most,
  );
}

/** Returns one SRV record for each name and port, with the addresses of the names. */
function srvRecords(name: string, all: IteratorObject<Target>, most: number): Found {
  const targets = new Map<string, Target>();
  const addresses = new Map<string, Set<string>>();
  let found = 0;
  // Many endpoints may have one name, so more of them are read than records are needed.
  for (const each of all.take(4 * most)) {
    const { target, port } = each;
    // Several endpoints can have one target and port: those of other protocols, and the address of the other family.
    if (!targets.has(`${target} ${port}`)) targets.set(`${target} ${port}`, each);
    if (targets.size > most) break;
    const ofTarget = addresses.get(target) ?? new Set();
    addresses.set(target, ofTarget);
    for (const address of each.addresses) ofTarget.add(address);
    found += each.addresses.length;
  }
  // CoreDNS divides by the number of addresses and ports.
  const weight = Math.max(1, Math.floor(100 / Math.max(1, found)));
  return {
    answers: [...targets.values()].map(({ target, port }) => ({
      type: 'SRV',
      name,
      data: { target, port, priority: 0, weight },
    })),
    additionals: [...addresses].flatMap(([target, ofTarget]) => [
      ...addressRecords(target, 'A', ofTarget, most).answers,
      ...addressRecords(target, 'AAAA', ofTarget, most).answers,
    ]),
  };
}

function addressRecords(name: string, type: string, addresses: Iterable<string>, most: number): Found {
  if (type !== 'A' && type !== 'AAAA') return NOTHING;
  const ofType = new Set<string>();
  for (const address of addresses) {
    // The addresses are valid, and only those of IPv6 have a colon.
    if (address.includes(':') === (type === 'AAAA')) ofType.add(address);
    if (ofType.size > most) break;
  }
  return { answers: [...ofType].map((data) => ({ type, name, data })), additionals: [] };
}

/** Answers a question for a name under `in-addr.arpa` or `ip6.arpa`. Returns `undefined` if no name has the address. */
export function reverseRecords(
  { name, type }: RecordQuestion,
  { domain, names, most = Number.MAX_SAFE_INTEGER }: Zone,
): Found | undefined {
  const address = reversedAddress(name);
  if (address === undefined) return undefined;
  const found = [...targetsAt(address, domain, names).take(most + 1)];
  if (found.length === 0) return undefined;
  return { answers: type === 'PTR' ? found.map((data) => ({ type: 'PTR', name, data })) : [], additionals: [] };
}

function* targetsAt(address: string, domain: string, names: ClusterNames): Generator<string> {
  const service = names.serviceAt(address);
  if (service !== undefined) {
    yield `${service.metadata.name}.${service.metadata.namespace}.svc.${domain}`;
    return;
  }
  for (const slice of names.slicesAt(address)) {
    const { namespace = '', labels } = slice.metadata;
    const name = labels?.[SERVICE_NAME_LABEL] ?? '';
    if (name === '') continue;
    const label = labelsOf(slice).get(address);
    if (label !== undefined) yield `${label}.${name}.${namespace}.svc.${domain}`;
  }
}

/** The labels of the ready endpoints of slices by address, kept for the same reason as `hostsOfSlices`. */
const labelsOfSlices = new WeakMap<EndpointSlice, ReadonlyMap<string, string>>();

function labelsOf(slice: EndpointSlice): ReadonlyMap<string, string> {
  const cached = labelsOfSlices.get(slice);
  if (cached !== undefined) return cached;
  const labels = new Map<string, string>();
  for (const { addresses, conditions, hostname } of slice.endpoints ?? []) {
    if (conditions?.ready === false) continue;
    for (const address of addresses)
      if (!labels.has(address))
        labels.set(address, hostname === undefined || hostname === '' ? dashed(address) : hostname);
  }
  labelsOfSlices.set(slice, labels);
  return labels;
}

function reversedAddress(name: string): string | undefined {
  const v4 = /^(\d{1,3}(?:\.\d{1,3}){3})\.in-addr\.arpa$/.exec(name)?.[1];
  if (v4 !== undefined) return v4.split('.').toReversed().join('.');
  const v6 = /^([0-9a-f](?:\.[0-9a-f]){31})\.ip6\.arpa$/.exec(name)?.[1];
  if (v6 === undefined) return undefined;
  const digits = v6.split('.').toReversed().join('');
  const full = digits.match(/.{4}/g)?.join(':') ?? '';
  return canonicalV6(full);
}

/** Formats an IPv6 address as the Kubernetes API does. */
function canonicalV6(address: string): string {
  return new URL(`http://[${address}]`).hostname.slice(1, -1);
}
