/** Maintains the `kubernetes` service in `default` and its endpoints, by which pods reach the API servers. */
import type { Logger } from '../../../api/component/logger.ts';
import { Backoff } from '../../../api/machinery/backoff.ts';
import type { Client, Resource } from '../../../api/client/client.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { endpoints, endpointSlices, services } from '../../../api/client/resources.ts';
import { jsonEqual } from '../../../api/meta/json-equality.ts';
import type { JsonValue, KubeObject } from '../../../api/meta/object.ts';
import { WakeableLoop } from '../../../api/machinery/wakeable-loop.ts';
import { isConflict, isInvalid, isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import { createIfMissing } from './existing-objects.ts';
import { serviceAddress } from './service-addresses.ts';
import { RENEW_MS, type ServerAddresses } from './server-addresses.ts';
import { SERVICE_NAME_LABEL } from '../../../api/meta/well-known-labels.ts';

interface KubernetesServiceOptions {
  readonly client: Client;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The address of this server for pods. It is `undefined` while the host has none that others reach. */
  readonly address: () => string | undefined;
  readonly port: number;
  /** The value of `--service-cluster-ip-range`. */
  readonly serviceClusterCidrs: readonly string[];
  /** Whether this server writes the endpoints (`--endpoint-reconciler-type`). The service exists in any case. */
  readonly publishes: boolean;
  /** The addresses of all servers on this storage. Without it, this server is the only one. */
  readonly servers?: ServerAddresses | undefined;
}

/** The index of the address of the service `kubernetes`: the first one of the range, which serving certificates name. */
export const KUBERNETES_ADDRESS = 1;
const NAMESPACE = 'default';
const NAME = 'kubernetes';
/** The interval in which the objects are checked, because clients may delete or change them. */
const CHECK_MS = RENEW_MS;

/** Reconciles periodically, and when a server comes or goes, until it is closed. Failures are logged and retried. */
export function keepKubernetesService(options: KubernetesServiceOptions): { close(): Promise<void> } {
  const { servers, logger } = options;
  const stop = new AbortController();
  const loop = new WakeableLoop({
    clock: options.clock,
    backoff: new Backoff({ firstMs: CHECK_MS, longestMs: CHECK_MS }),
    onError: (error) =>
      logger.warn({ err: error }, 'The kubernetes service could not be updated; the update will be tried again'),
  });
  const unfollow = servers?.onChange(() => loop.wake());
  const running = loop.run(stop.signal, async () => {
    await reconcile(options);
    return CHECK_MS;
  });
  return {
    async close() {
      unfollow?.();
      stop.abort(new Error('the server is closed'));
      await running;
      if (servers !== undefined && options.publishes) await withdraw(options, servers);
    },
  };
}

/** Removes this server from the endpoints when it stops. If it is the only server, its addresses stay. */
async function withdraw(options: KubernetesServiceOptions, servers: ServerAddresses): Promise<void> {
  try {
    await servers.remove();
    const others = await servers.all();
    if (others.length > 0) await publish(options, others);
  } catch (error) {
    options.logger.warn({ err: error }, 'The address of this server could not be removed from the kubernetes service');
  }
}

async function reconcile(options: KubernetesServiceOptions): Promise<void> {
  await ensureService(options);
  const { servers, publishes } = options;
  const address = options.address();
  if (address === undefined || !publishes) return;
  await servers?.renew(address);
  await publish(options, (await servers?.all()) ?? [address]);
}

/** Writes the endpoints and their slice. */
async function publish({ client, port }: KubernetesServiceOptions, addresses: readonly string[]): Promise<void> {
  // A slice and the service have one family, that of the first address.
  const isIpv6 = addresses[0]?.includes(':') === true;
  const addressType = isIpv6 ? 'IPv6' : 'IPv4';
  const ofFamily = addresses.filter((address) => address.includes(':') === isIpv6);
  const ports = [{ name: 'https', port, protocol: 'TCP' }];
  await ensure(
    client,
    endpoints,
    {
      apiVersion: 'v1',
      kind: 'Endpoints',
      metadata: { name: NAME, namespace: NAMESPACE, labels: { 'endpointslice.kubernetes.io/skip-mirror': 'true' } },
      subsets: [{ addresses: ofFamily.map((ip) => ({ ip })), ports }],
    },
    'subsets',
  );
  await removeSliceOfOtherFamily(client, addressType);
  await ensure(
    client,
    endpointSlices,
    {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: { name: NAME, namespace: NAMESPACE, labels: { [SERVICE_NAME_LABEL]: NAME } },
      addressType,
      endpoints: ofFamily.map((address) => ({ addresses: [address], conditions: { ready: true } })),
      ports,
    },
    'endpoints',
  );
}

/**
 * Deletes the EndpointSlice of the service `kubernetes` if it has another address family, because the family of a slice cannot
 * be changed.
 */
async function removeSliceOfOtherFamily(client: Client, addressType: string): Promise<void> {
  const existing: KubeObject | undefined = await tolerate(client.get(endpointSlices, NAMESPACE, NAME), isNotFound);
  if (existing === undefined || existing['addressType'] === addressType) return;
  await tolerate(client.delete(endpointSlices, NAMESPACE, NAME), isNotFound);
}

async function ensureService({ client, port, serviceClusterCidrs, logger }: KubernetesServiceOptions): Promise<void> {
  const clusterIP = serviceAddress(serviceClusterCidrs, KUBERNETES_ADDRESS);
  const service = (spec: Readonly<Record<string, JsonValue>>): KubeObject => ({
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: NAME, namespace: NAMESPACE, labels: { component: 'apiserver', provider: 'kubernetes' } },
    spec: {
      ports: [{ name: 'https', protocol: 'TCP', port: 443, targetPort: port }],
      type: 'ClusterIP',
      sessionAffinity: 'None',
      ...spec,
    },
  });
  try {
    await ensure(client, services, service(clusterIP === undefined ? {} : { clusterIP }));
  } catch (error) {
    if (!isInvalid(error)) throw error;
    logger.warn(
      { clusterIP },
      'Another service has the first address of the range, so the kubernetes service gets one that certificates do not name',
    );
    await ensure(client, services, service({}));
  }
}

/** Creates a missing object. If `field` is given, restores this field and the ports of an existing one. */
async function ensure(client: Client, resource: Resource, wanted: KubeObject, field?: string): Promise<void> {
  const existing: KubeObject | undefined = await tolerate(client.get(resource, NAMESPACE, NAME), isNotFound);
  if (existing === undefined) return createIfMissing(client, resource, wanted);
  const isKept = (name: string): boolean => wanted[name] === undefined || jsonEqual(existing[name], wanted[name]);
  if (field === undefined || (isKept(field) && isKept('ports'))) return;
  const update = client.update(resource, {
    ...existing,
    [field]: wanted[field],
    ...(wanted['ports'] === undefined ? {} : { ports: wanted['ports'] }),
  });
  // Another server or client wrote in between. The next check compares again.
  await tolerate(update, isConflict);
}
