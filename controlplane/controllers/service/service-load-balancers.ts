/**
 * Gives services of type LoadBalancer the addresses of the nodes, whose service proxies answer there: no daemon is needed.
 * Serves services without a class and with the class `LOAD_BALANCER_CLASS`.
 *
 * As cloud-controller-manager does, it protects a service by a finalizer.
 */
import type { EndpointSlice, Node, Service } from '../../../api/kinds/kinds.ts';
import { endpointSlices, nodes as nodesResource, services as servicesResource } from '../../../api/client/resources.ts';
import { referenceTo } from '../../../api/client/event-recorder.ts';
import { ETCD_CLIENT_PORT, ETCD_PEER_PORT } from '../../../api/meta/etcd-ports.ts';
import { isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import { type ControllerEnvironment, keyOf, ReconcileLoop, type RunController, splitKey } from '../controller.ts';
import {
  BalancedNodes,
  balancerAddresses,
  isOurs,
  nodesFor,
  nodesWithEndpoints,
  portsOf,
} from './load-balancer-addresses.ts';
import { LoadBalancerPorts } from './load-balancer-ports.ts';
import { SERVICE_LB_ANNOTATION } from '../../../api/meta/orchlet-annotations.ts';
import { SERVICE_NAME_LABEL } from '../../../api/meta/well-known-labels.ts';

const FINALIZER = 'service.kubernetes.io/load-balancer-cleanup';
/** The ports of etcd, which runs on nodes too. */
const ETCD_PORTS = [ETCD_CLIENT_PORT, ETCD_PEER_PORT] as const;

interface PortSpan {
  readonly first: number;
  readonly last: number;
}

/** The options of load balancers that flags set. */
export interface ServiceLoadBalancersOptions {
  /** Whether load balancers are served. If not, the controller only releases what it served before. */
  readonly isEnabled: boolean;
  /** The port of the API server, which runs on nodes. */
  readonly apiServerPort: number;
  /** Ports of all protocols that no service gets. */
  readonly reservedPorts: readonly PortSpan[];
}

/** Builds the controller for the ports of this cluster. */
export function serviceLoadBalancers(options: ServiceLoadBalancersOptions): RunController {
  return (environment, signal) => new ServiceLoadBalancers(environment, options).run(signal);
}

const isMarked = ({ metadata }: Service): boolean => metadata.annotations?.[SERVICE_LB_ANNOTATION] !== undefined;
const addressesOf = ({ status }: Service): string[] =>
  (status?.loadBalancer?.ingress ?? []).flatMap(({ ip }) => ip ?? []);

class ServiceLoadBalancers {
  readonly #environment: ControllerEnvironment;
  readonly #options: ServiceLoadBalancersOptions;
  readonly #services;
  readonly #nodes;
  readonly #slices;
  readonly #loop: ReconcileLoop;
  readonly #ports = new LoadBalancerPorts();
  readonly #balanced = new BalancedNodes();

  constructor(environment: ControllerEnvironment, options: ServiceLoadBalancersOptions) {
    this.#environment = environment;
    this.#options = options;
    this.#services = environment.informers.for(servicesResource);
    this.#nodes = environment.informers.for(nodesResource);
    this.#slices = environment.informers.for(endpointSlices);
    this.#loop = new ReconcileLoop(environment, { reconcile: (key) => this.#reconcile(key) });
  }

  async run(signal: AbortSignal): Promise<void> {
    const caches = [this.#services, this.#nodes, this.#slices];
    this.#slices.addIndex('load-balancer', ({ metadata }) => {
      const name = metadata.labels?.[SERVICE_NAME_LABEL];
      return name === undefined ? [] : [`${metadata.namespace}/${name}`];
    });
    try {
      await Promise.all(caches.map((cache) => cache.synced(signal)));
    } catch (error) {
      if (signal.aborted) return;
      throw error;
    }
    for (const node of this.#nodes.list()) this.#balanced.update(node);
    this.#resumePorts();
    this.#follow();
    await this.#loop.run(signal, ...caches);
  }

  #follow(): void {
    this.#services.addHandler({
      add: this.#loop.enqueue,
      update: (_, current) => this.#loop.enqueue(current),
      delete: this.#loop.enqueue,
    });
    const nodesChanged = (): void => {
      for (const service of this.#services.list()) if (isOurs(service)) this.#loop.enqueue(service);
    };
    const nodeChanged = (node: Node): void => {
      if (this.#balanced.update(node)) nodesChanged();
    };
    this.#nodes.addHandler({
      add: nodeChanged,
      update: (_, node) => nodeChanged(node),
      delete: (node) => {
        if (this.#balanced.remove(node)) nodesChanged();
      },
    });
    const sliceChanged = (slice: EndpointSlice): void => {
      const { namespace = '', labels } = slice.metadata;
      const service = this.#services.get(namespace, labels?.[SERVICE_NAME_LABEL] ?? '');
      if (service?.spec?.externalTrafficPolicy === 'Local' && isOurs(service)) this.#loop.enqueue(service);
    };
    this.#slices.addHandler({ add: sliceChanged, update: (_, slice) => sliceChanged(slice), delete: sliceChanged });
  }

  /** Takes the ports of all services again: first those of services with addresses, then the others, each by age. */
  #resumePorts(): void {
    if (!this.#options.isEnabled) return;
    const rank = (service: Service): string =>
      `${isMarked(service) && addressesOf(service).length > 0 ? 0 : 1} ${service.metadata.creationTimestamp ?? ''} ${keyOf(service)}`;
    const balancedServices = this.#services.list().filter(isOurs);
    for (const service of balancedServices.toSorted((a, b) => (rank(a) < rank(b) ? -1 : 1)))
      if (this.#reserved(service) === undefined) this.#ports.take(keyOf(service), portsOf(service), () => undefined);
  }

  async #reconcile(key: string): Promise<void> {
    const { namespace, name } = splitKey(key);
    const service = this.#services.get(namespace, name);
    const { isEnabled } = this.#options;
    if (service === undefined || !isOurs(service) || !isEnabled) {
      this.#ports.take(key, [], this.#retry);
      if (service !== undefined && isMarked(service)) await tolerate(this.#release(service), isNotFound);
      return;
    }
    const problem = this.#problem(key, service);
    const addresses = problem === undefined ? this.#addressesFor(key, service) : [];
    if (problem !== undefined)
      this.#event(service, 'Warning', 'SyncLoadBalancerFailed', `Error syncing load balancer: ${problem}`);
    await tolerate(this.#write(service, addresses), isNotFound);
  }

  readonly #retry = (key: string): void => void this.#loop.queue.add(key);

  #addressesFor(key: string, service: Service): string[] {
    return balancerAddresses(service, nodesFor(service, this.#balanced.all), () =>
      nodesWithEndpoints(this.#slices.byIndex('load-balancer', key)),
    );
  }

  /** Takes the ports of the service. Returns why it cannot have them, or `undefined` if it has them. */
  #problem(key: string, service: Service): string | undefined {
    const reserved = this.#reserved(service);
    const conflict = this.#ports.take(key, reserved === undefined ? portsOf(service) : [], this.#retry);
    if (reserved !== undefined) return reserved;
    return conflict === undefined
      ? undefined
      : `port ${conflict.port} of the nodes is in use by the service ${conflict.holder}; this service gets the port when that one no longer needs it`;
  }

  /** Returns why the service may not have one of its ports, or `undefined` if it may have all. */
  #reserved(service: Service): string | undefined {
    const reserved = new Set([this.#options.apiServerPort, ...ETCD_PORTS].map((port) => `TCP ${port}`));
    const port = portsOf(service).find((each) => reserved.has(each));
    if (port !== undefined) return `port ${port} belongs to the API server or to etcd`;
    const { reservedPorts } = this.#options;
    const isReserved = ({ port: number }: { readonly port: number }): boolean =>
      reservedPorts.some(({ first, last }) => first <= number && number <= last);
    const reservedPort = (service.spec?.ports ?? []).find(isReserved);
    if (reservedPort !== undefined)
      return `port ${reservedPort.port} of the nodes is reserved (--service-lb-reserved-ports)`;
    const hasNoNode = this.#balanced.all.length > 0 && nodesFor(service, this.#balanced.all).length === 0;
    return hasNoNode ? 'on each node, the agent or another process of the host has one of its ports' : undefined;
  }

  async #write(service: Service, addresses: readonly string[]): Promise<void> {
    const { metadata } = service;
    const { finalizers = [], annotations } = metadata;
    const before = addressesOf(service);
    const isProtected = finalizers.includes(FINALIZER) && annotations?.[SERVICE_LB_ANNOTATION] !== undefined;
    if (isProtected && before.join() === addresses.join()) return;
    if (before.length === 0 && addresses.length > 0)
      this.#event(service, 'Normal', 'EnsuringLoadBalancer', 'Ensuring load balancer');
    await this.#patch(service, {
      finalizers: finalizers.includes(FINALIZER) ? finalizers : [...finalizers, FINALIZER],
      mark: 'true',
      addresses,
    });
    if (addresses.length > 0) this.#event(service, 'Normal', 'EnsuredLoadBalancer', 'Ensured load balancer');
  }

  async #release(service: Service): Promise<void> {
    this.#event(service, 'Normal', 'DeletingLoadBalancer', 'Deleting load balancer');
    const { finalizers = [] } = service.metadata;
    await this.#patch(service, {
      finalizers: finalizers.filter((name) => name !== FINALIZER),
      mark: null,
      addresses: [],
    });
    this.#event(service, 'Normal', 'DeletedLoadBalancer', 'Deleted load balancer');
  }

  /** Writes metadata and status of a service in one patch, which fails if the service has changed since. */
  async #patch(
    { metadata }: Service,
    {
      finalizers,
      mark,
      addresses,
    }: { finalizers: readonly string[]; mark: string | null; addresses: readonly string[] },
  ): Promise<void> {
    const { namespace = '', name = '', resourceVersion } = metadata;
    const ingress = addresses.map((ip) => ({ ip, ipMode: 'VIP' }));
    const patch = {
      metadata: { resourceVersion, finalizers, annotations: { [SERVICE_LB_ANNOTATION]: mark } },
      status: { loadBalancer: { ingress: ingress.length > 0 ? ingress : null } },
    };
    await this.#environment.client.patch(servicesResource, namespace, name, {
      type: 'merge',
      body: patch,
      subresource: 'status',
    });
  }

  #event(service: Service, type: 'Normal' | 'Warning', reason: string, message: string): void {
    this.#environment.recorder.event(referenceTo(service, servicesResource), type, reason, message);
  }
}
