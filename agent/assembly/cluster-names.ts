/** Creates the name server of the node: its informers, its cache, and the servers to which it forwards other queries. */
import type { MetricsRegistry } from '../../api/component/metrics.ts';
import type { Logger } from '../../api/component/logger.ts';
import type { Informers } from '../../api/client/informer.ts';
import type { Service } from '../../api/kinds/kinds.ts';
import { configMaps, endpointSlices, services } from '../../api/client/resources.ts';
import type { ClusterDns } from '../network/clusterdns/cluster-dns.ts';
import { dnsMetrics } from '../network/clusterdns/dns-metrics.ts';
import {
  type ForwardConfig,
  forwardConfig,
  NO_FORWARD_CONFIG,
  stubServers,
} from '../network/clusterdns/forward-config.ts';
import { ResponseCache, type CacheObserver } from '../network/clusterdns/response-cache.ts';
import { hostDns } from '../runtime/kuberuntime/dns.ts';
import type { Base } from './base.ts';
import { SYSTEM_NAMESPACE } from '../../api/meta/system-namespaces.ts';

/** The domain of a cluster whose nodes serve `kube-dns`, unless `--cluster-domain` sets another one. */
export const DEFAULT_DOMAIN = 'cluster.local';
const CONFIG_NAME = 'kube-dns';

interface ClusterNamesOptions {
  /** The addresses that pods send queries to. */
  readonly nameServers: () => readonly string[];
  readonly metrics: MetricsRegistry;
  /**
   * Whether this is the service `kube-dns` of a cluster whose nodes serve names. Only there may the agent read the ConfigMap
   * with the name servers of other domains.
   */
  readonly isConfigured: (service: Service) => boolean;
}

/** Creates the server, and follows the ConfigMap `kube-dns` where it may be read. */
export async function clusterNames(
  { flags, clock, logger: parent }: Base,
  informers: Informers,
  { nameServers, metrics, isConfigured }: ClusterNamesOptions,
): Promise<ClusterDns> {
  const logger = parent.child({ part: 'dns' });
  const serviceInformer = informers.for(services);
  const slices = informers.for(endpointSlices);
  serviceInformer.addIndex('address', ({ spec }) => spec?.clusterIPs ?? []);
  slices.addIndex('address', ({ endpoints }) => endpoints?.flatMap(({ addresses }) => addresses) ?? []);
  const domain = flags.clusterDomain === '' ? DEFAULT_DOMAIN : flags.clusterDomain.toLowerCase();
  // The metrics read the size of the cache, and the cache reports to an observer of the metrics, which is thus set later.
  const cacheMetrics: { observer?: CacheObserver } = {};
  const cache = new ResponseCache({
    clock,
    observer: { hit: (type) => cacheMetrics.observer?.hit(type), miss: () => cacheMetrics.observer?.miss() },
  });
  const observer = dnsMetrics(metrics, () => cache.size);
  cacheMetrics.observer = observer.cache;
  let config = NO_FORWARD_CONFIG;
  let isFollowing = false;
  const follow = (service: Service): void => {
    if (isFollowing || !isConfigured(service)) return;
    isFollowing = true;
    followConfig(informers, logger, (data) => {
      config = forwardConfig(data, { domain, nameServers: nameServers() });
      cache.clear();
      return config;
    });
  };
  serviceInformer.addHandler({ add: follow, update: (_, service) => follow(service) });
  // Only agents that serve names load the codec of DNS messages.
  const { ClusterDns: Server } = await import('../network/clusterdns/cluster-dns.ts');
  return new Server({
    names: {
      service: (namespace, name) => serviceInformer.get(namespace, name),
      slicesOf: (namespace, name) => slices.byIndex('service', `${namespace}/${name}`),
      hasServices: (namespace) => serviceInformer.list(namespace).length > 0,
      serviceAt: (address) => serviceInformer.byIndex('address', address)[0],
      slicesAt: (address) => slices.byIndex('address', address),
      nameServers,
    },
    domain,
    synced: () => serviceInformer.hasSynced && slices.hasSynced,
    async upstreams(name) {
      const chosen = stubServers(config, name) ?? config.upstreams;
      if (chosen.length > 0) return chosen;
      const { servers } = await hostDns({ clusterDns: [], clusterDomain: '', resolvConf: flags.resolvConf });
      return servers.filter((server) => !nameServers().includes(server));
    },
    cache,
    clock,
    observer,
    logger,
  });
}

function followConfig(
  informers: Informers,
  logger: Logger,
  apply: (data: Readonly<Record<string, string>> | undefined) => ForwardConfig,
): void {
  const changed = (data: Readonly<Record<string, string>> | undefined): void => {
    const { problems } = apply(data);
    const configMap = `${SYSTEM_NAMESPACE}/${CONFIG_NAME}`;
    if (problems.length > 0)
      logger.warn(
        { configMap, problems: problems.slice(0, 10) },
        'Parts of the configuration of the name server are invalid',
      );
  };
  informers.for(configMaps, { namespace: SYSTEM_NAMESPACE, fieldSelector: `metadata.name=${CONFIG_NAME}` }).addHandler({
    add: ({ data }) => changed(data),
    update: (_, { data }) => changed(data),
    delete: () => changed(undefined),
  });
}
