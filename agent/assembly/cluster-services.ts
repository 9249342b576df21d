/**
 * Provides services to the agent: the environment variables of pods, and, if the options enable them, the service proxy and
 * the name server.
 */
import type { MetricsRegistry } from '../../api/component/metrics.ts';
import { background } from '../../api/machinery/background.ts';
import type { Client } from '../../api/client/client.ts';
import type { Informers } from '../../api/client/informer.ts';
import { remoteInformers } from '../../api/client/remote-informers.ts';
import type { Service } from '../../api/kinds/kinds.ts';
import { endpointSlices, services } from '../../api/client/resources.ts';
import type { PodCheckpoints } from '../pods/checkpoints/pod-checkpoints.ts';
import type { ClusterDns } from '../network/clusterdns/cluster-dns.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import type { NodeObject } from '../base/model/node.ts';
import type { ServiceLister } from '../runtime/kuberuntime/environment.ts';
import { takeNamespaceLock } from '../network/namespace-lock.ts';
import { hostNftables } from '../network/nftables.ts';
import { hostPacketFilter } from '../network/serviceproxy/iptables.ts';
import { proxyMetrics } from '../network/serviceproxy/proxy-metrics.ts';
import { IptablesWriter } from '../network/serviceproxy/iptables-writer.ts';
import { NftablesWriter, SERVICES_TABLE } from '../network/serviceproxy/nftables-writer.ts';
import type { RuleWriter } from '../network/serviceproxy/rule-writer.ts';
import { connectionTimeouts } from '../network/serviceproxy/connection-timeouts.ts';
import { prepareHost, PROXY_LOCK, ServiceProxy } from '../network/serviceproxy/service-proxy.ts';
import { canonicalRange, familyOf } from '../network/serviceproxy/addresses.ts';
import type { Place } from '../network/serviceproxy/service-ports.ts';
import { hostConntrack } from '../network/serviceproxy/udp-connections.ts';
import type { AgentFlags } from '../options/agent-options.ts';
import type { Base } from './base.ts';
import { clusterNames, DEFAULT_DOMAIN } from './cluster-names.ts';
import { modeOfCluster, podNetworkPort } from './pod-network.ts';
import { LISTENING_PORTS, POD_NETWORK, SERVED_BY } from '../../api/meta/orchlet-annotations.ts';
import { ZONE_LABEL } from '../../api/meta/well-known-labels.ts';
import { SYSTEM_NAMESPACE } from '../../api/meta/system-namespaces.ts';

/** What the other parts read of the services of the cluster. Without an API server there are none. */
export interface ClusterServices {
  readonly lister: ServiceLister;
  /** Name servers of pods with the policy ClusterFirst. */
  readonly nameServers: () => readonly string[];
  /** Returns the addresses of name servers at which this node itself answers. */
  readonly ownNameServers: () => readonly string[];
  /** Returns the domain of the cluster, or an empty text if there is none. */
  readonly clusterDomain: () => string;
  /** Whether the nodes of this cluster provide its services. Waits for the API server or a stored state. */
  providedByNodes(signal: AbortSignal): Promise<boolean>;
  /** An annotation of the service `kube-dns`; empty without it, or in clusters whose nodes do not provide services. */
  annotation(key: string): string;
  /**
   * Stops the parts. `hostCleared` means that no pods remain on this host that need the rules of services, so that the rules
   * are removed.
   */
  close(how: { readonly hostCleared: boolean }): Promise<void>;
}

interface NodeFacts {
  node(): NodeObject;
  podCidrs(): readonly string[];
}

const DNS_SERVICE = 'kube-dns';

interface ClusterServicesDeps {
  readonly client: Client | undefined;
  readonly checkpoints: PodCheckpoints | undefined;
  readonly node: NodeFacts;
  readonly metrics: MetricsRegistry;
}

/**
 * Creates the service proxy and the name server of this node, as far as it has them. Resolves when the stored state has been
 * read; it does not wait for the API server.
 */
export async function clusterServices(base: Base, deps: ClusterServicesDeps): Promise<ClusterServices> {
  const { flags, clock, logger, signal } = base;
  const { client, checkpoints, node: facts, metrics } = deps;
  if (client === undefined) {
    return {
      lister: { synced: () => true, list: () => [] },
      nameServers: () => flags.clusterDns,
      ownNameServers: () => [],
      clusterDomain: () => flags.clusterDomain,
      providedByNodes: () => Promise.resolve(false),
      annotation: () => '',
      close: async () => undefined,
    };
  }
  const informers = remoteInformers({ client, clock, logger });
  const serviceInformer = informers.for(services);
  const lister = { synced: () => serviceInformer.hasSynced, list: () => serviceInformer.list() };
  const onChange = (listener: () => void): void =>
    void serviceInformer.addHandler({ add: listener, update: listener, delete: listener });
  const remembered = checkpoints === undefined ? lister : await checkpoints.services(lister, onChange);
  /** Returns the service `kube-dns` if this node serves it. The cast also holds for stored objects, which are all services. */
  const servedDns = (): Service | undefined => {
    const dns = remembered.list().find(isNameServer) as Service | undefined;
    return dns !== undefined && servesNames(flags, dns) ? dns : undefined;
  };
  const nameServers = (): readonly string[] =>
    flags.clusterDns.length > 0 ? flags.clusterDns : (servedDns()?.spec?.clusterIPs ?? []);
  const clusterDomain = (): string => clusterDomainOf(flags, servedDns());
  const network = startNetwork(base, informers, { nameServers, metrics }, facts).catch((error: unknown) => {
    if (!signal.aborted) logger.error({ err: error }, 'Cannot start the service proxy');
    return undefined;
  });
  return {
    lister: remembered,
    nameServers,
    ownNameServers: () => (servedDns() === undefined ? [] : nameServers()),
    clusterDomain,
    async providedByNodes(aborted) {
      if (!remembered.synced()) await serviceInformer.synced(aborted);
      const dns = remembered.list().find(isNameServer);
      return dns !== undefined && isServedByNodes(dns);
    },
    annotation(key) {
      const dns = remembered.list().find(isNameServer);
      const annotations = new Map(Object.entries(dns?.metadata.annotations ?? {}));
      return annotations.get(SERVED_BY) === 'nodes' ? (annotations.get(key) ?? '') : '';
    },
    async close(how) {
      await (await network)?.close(how);
      await informers.close();
    },
  };
}

/**
 * Returns the domain of the cluster, or '' if it is not known. If the node takes the name servers from the service `kube-dns`,
 * the domain is the default one: otherwise short names of its pods would not resolve.
 */
export function clusterDomainOf(
  flags: Pick<AgentFlags, 'clusterDomain' | 'clusterDns'>,
  servedDns: KubeObject | undefined,
): string {
  if (flags.clusterDomain !== '' || flags.clusterDns.length > 0) return flags.clusterDomain;
  return servedDns === undefined ? '' : DEFAULT_DOMAIN;
}

const isNameServer = ({ metadata }: KubeObject): boolean =>
  metadata.namespace === SYSTEM_NAMESPACE && metadata.name === DNS_SERVICE;

/** Whether the service `kube-dns` states that each node serves it. */
const isServedByNodes = ({ metadata }: KubeObject): boolean => metadata.annotations?.[SERVED_BY] === 'nodes';

function servesNames(flags: AgentFlags, dns: KubeObject | undefined): boolean {
  if (flags.serviceProxy === 'auto') return dns !== undefined && isServedByNodes(dns);
  return flags.serviceProxy !== 'none' && flags.serveClusterDns;
}

/** Starts the service proxy and the name server that the options enable. Resolves to `undefined` if neither is enabled. */
async function startNetwork(
  base: Base,
  informers: Informers,
  { nameServers, metrics }: { readonly nameServers: () => readonly string[]; readonly metrics: MetricsRegistry },
  facts: NodeFacts,
): Promise<Pick<ClusterServices, 'close'> | undefined> {
  const { flags, signal } = base;
  if (flags.serviceProxy === 'none') return undefined;
  const serviceInformer = informers.for(services);
  if (flags.serviceProxy === 'auto') await serviceInformer.synced(signal);
  const dns = serviceInformer.get(SYSTEM_NAMESPACE, DNS_SERVICE);
  if (flags.serviceProxy === 'auto' && (dns === undefined || !isServedByNodes(dns))) return undefined;
  return serviceNetwork(base, informers, { withNames: servesNames(flags, dns), nameServers, metrics }, facts);
}

/** Starts the service proxy, and with `withNames` the name server behind it. */
async function serviceNetwork(
  base: Base,
  informers: Informers,
  {
    withNames,
    nameServers,
    metrics,
  }: {
    readonly withNames: boolean;
    readonly nameServers: () => readonly string[];
    readonly metrics: MetricsRegistry;
  },
  facts: NodeFacts,
): Promise<Pick<ClusterServices, 'close'>> {
  const { flags, clock, logger, nodeName, signal } = base;
  const serviceInformer = informers.for(services);
  const slices = informers.for(endpointSlices);
  let dns: ClusterDns | undefined;
  const proxy = new ServiceProxy({
    services: serviceInformer,
    slices,
    ...ruleWriters(flags.proxyMode, clock),
    conntrack: hostConntrack(),
    observer: proxyMetrics(metrics, clock),
    clock,
    logger: logger.child({ part: 'service-proxy' }),
    masqueradeBit: flags.iptablesMasqueradeBit,
    place: () => placeOf(nodeName, facts.node(), flags, serviceInformer.get(SYSTEM_NAMESPACE, DNS_SERVICE)),
    podCidrs: () => facts.podCidrs(),
    nodePortRanges: () => nodePortRanges(flags.nodeportAddresses, facts.node()),
    localhostNodePorts: flags.iptablesLocalhostNodeports && flags.nodeportAddresses.length === 0,
    nameServer: () =>
      dns === undefined
        ? undefined
        : { addresses: nameServers().filter((address) => dns?.families.includes(familyOf(address))), port: dns.port },
    onWritten: (family) => dns?.serve(family),
    prepareHost: prepareHost(logger),
    setTimeouts: connectionTimeouts(logger),
    takeLock: () => takeNamespaceLock(PROXY_LOCK),
  });
  if (withNames) {
    dns = await clusterNames(base, informers, {
      nameServers,
      metrics,
      isConfigured: (service) => isNameServer(service) && isServedByNodes(service),
    });
    await dns.listen(0);
  }
  background(proxy.run(signal), { logger, what: 'Keeping the rules of services', signal });
  return {
    async close({ hostCleared }) {
      await proxy.close({ remove: hostCleared });
      await dns?.close();
    },
  };
}

function ruleWriters(
  proxyMode: string,
  clock: Base['clock'],
): { readonly writers: readonly RuleWriter[]; readonly otherWriters: readonly RuleWriter[] } {
  const filter = hostPacketFilter();
  const all = [
    new NftablesWriter({ nft: hostNftables(), filter, table: SERVICES_TABLE, clock }),
    new IptablesWriter(filter, clock),
  ];
  const isAllowed = ({ mode }: RuleWriter): boolean => proxyMode === 'auto' || proxyMode === mode;
  return { writers: all.filter(isAllowed), otherWriters: all.filter((writer) => !isAllowed(writer)) };
}

function placeOf(nodeName: string, node: NodeObject, flags: AgentFlags, dns: Service | undefined): Place {
  const agentPort = node.status?.daemonEndpoints?.kubeletEndpoint?.Port ?? flags.port;
  const published = new Map(Object.entries(dns?.metadata.annotations ?? {})).get(POD_NETWORK) ?? '';
  const networkPort = podNetworkPort(flags.podNetwork === 'auto' ? modeOfCluster(published) : flags.podNetwork, flags);
  return {
    nodeName,
    zone: node.metadata.labels?.[ZONE_LABEL] ?? '',
    nodeIps: addressesOf(node, 'InternalIP'),
    externalIps: addressesOf(node, 'ExternalIP'),
    // The agents of other nodes listen on the same ports.
    reservedPorts: [`TCP ${agentPort}`, ...(networkPort === 0 ? [] : [`UDP ${networkPort}`])],
    listeningPorts: (node.metadata.annotations?.[LISTENING_PORTS] ?? '').split(','),
  };
}

const addressesOf = ({ status }: NodeObject, wanted: 'InternalIP' | 'ExternalIP'): string[] =>
  (status?.addresses ?? []).filter(({ type }) => type === wanted).map(({ address }) => address);

/**
 * Returns the ranges of `--nodeport-addresses` in canonical form, for `primary` the internal addresses of the node. Leaves out
 * values that are no ranges.
 */
function nodePortRanges(values: readonly string[], node: NodeObject): string[] {
  return values.flatMap((value) => {
    if (value !== 'primary') return canonicalRange(value, value.includes(':') ? 'IPv6' : 'IPv4') ?? [];
    return addressesOf(node, 'InternalIP').map((address) => `${address}/${address.includes(':') ? 128 : 32}`);
  });
}
