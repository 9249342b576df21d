/**
 * Repairs services and IPAddress objects that do not match: each cluster address of a service needs its IPAddress object, and
 * each IPAddress that was created for a service needs that service. The allocator writes both in one commit, so mismatches come
 * from an older version or from manual changes.
 */
import type { Logger } from '../../../api/component/logger.ts';
import type { Client } from '../../../api/client/client.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { CoreEventRecorder, referenceTo } from '../../../api/client/event-recorder.ts';
import type { EventRecorder } from '../../../api/client/event-report.ts';
import type { Informers } from '../../../api/client/informer.ts';
import { ipAddresses, services } from '../../../api/client/resources.ts';
import { cidrContains, parseCidr, parseIp } from '../../../api/meta/ip-addresses.ts';
import { isAlreadyExists, isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import { every, ReconcileLoop, splitKey } from '../controller.ts';
import { ensureDefaultRange } from './default-service-range.ts';
import type { IpAddress, ServiceCidr } from '../../registry/kinds/networking/networking-types.ts';
import {
  clusterAddresses,
  hasServiceLabels,
  ipAddressOf,
  isManaged,
  parentService,
  refersTo,
} from '../../registry/kinds/core/service-ip-addresses.ts';
import type { Service } from '../../registry/kinds/core/service-types.ts';
import type { Stores } from '../../registry/registry.ts';
import { selectionOf } from '../../storage/selection.ts';

/** How long another server may still be writing the service of an address, as a request takes at most. */
const GRACE_MS = 60_000;
const RANGE_PERIOD_MS = 10_000;
const REPAIR_PERIOD_MS = 180_000;

/** What is stored, at one point in time. */
export interface AddressState {
  service(namespace: string, name: string): Service | undefined;
  address(name: string): IpAddress | undefined;
  ranges(): readonly ServiceCidr[];
}

interface RepairOptions {
  readonly client: Client;
  readonly informers: Informers;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly state: AddressState;
  /** The value of `--service-cluster-ip-range`. */
  readonly serviceClusterCidrs: readonly string[];
}

/** Reads from the caches of the given stores at each call. */
export function stateOf(stores: Stores): AddressState {
  const addresses = stores.get('networking.k8s.io', 'ipaddresses').cache;
  const ranges = stores.get('networking.k8s.io', 'servicecidrs').cache;
  const all = selectionOf('');
  return {
    service: (namespace, name) => stores.get('', 'services').cache.get(namespace, name)?.object,
    address: (name) => addresses.get('', name)?.object as IpAddress | undefined,
    ranges: () => ranges.list({ selection: all }).entries.map(({ object }) => object as ServiceCidr),
  };
}

/** Checks services, addresses and ranges when they change, and periodically, until it is closed. */
export function keepServiceAddresses(options: RepairOptions): { close(): Promise<void> } {
  const { client, informers, clock, logger, serviceClusterCidrs } = options;
  const stop = new AbortController();
  const { signal } = stop;
  const recorder = new CoreEventRecorder({ client, clock, logger, component: 'ipallocator-repair-controller' });
  const repair = new Repair(options, recorder);
  const serviceCache = informers.for(services);
  const addressCache = informers.for(ipAddresses);
  const serviceLoop = new ReconcileLoop(options, { reconcile: (key) => repair.service(key) });
  const addressLoop = new ReconcileLoop(options, {
    reconcile: async (key) => {
      const recheckMs = await repair.address(key);
      if (recheckMs > 0) addressLoop.queue.addAfter(key, recheckMs);
    },
  });
  // A change of either side may break the match, so each change checks the other side as well.
  const addressChanged = (address: IpAddress): void => {
    addressLoop.enqueue(address);
    const parent = parentService(address);
    if (parent !== undefined) serviceLoop.queue.add(`${parent.namespace}/${parent.name}`);
  };
  const serviceChanged = (service: Service): void => {
    serviceLoop.enqueue(service);
    for (const address of clusterAddresses(service)) addressLoop.queue.add(address);
  };
  serviceCache.addHandler({
    add: (service) => serviceLoop.enqueue(service),
    update: (previous, service) => [previous, service].forEach(serviceChanged),
    delete: serviceChanged,
  });
  addressCache.addHandler({
    add: (address) => addressLoop.enqueue(address),
    update: (_, address) => addressChanged(address),
    delete: addressChanged,
  });
  const running = Promise.all([
    serviceLoop.run(signal, serviceCache, addressCache),
    addressLoop.run(signal, serviceCache, addressCache),
    every(options, RANGE_PERIOD_MS, signal, () => ensureDefaultRange(client, serviceClusterCidrs)),
    every(options, REPAIR_PERIOD_MS, signal, async () => {
      serviceCache.list().forEach(serviceLoop.enqueue);
      addressCache.list().forEach(addressLoop.enqueue);
    }),
  ]);
  return {
    async close() {
      stop.abort(new Error('the repair of service addresses is stopping'));
      await running;
    },
  };
}

class Repair {
  readonly #options: RepairOptions;
  readonly #recorder: EventRecorder;

  constructor(options: RepairOptions, recorder: EventRecorder) {
    this.#options = options;
    this.#recorder = recorder;
  }

  /** Gives each address of the service its IPAddress, or reports why it cannot have one. */
  async service(key: string): Promise<void> {
    const { state } = this.#options;
    const { namespace, name } = splitKey(key);
    for (const address of clusterAddresses(state.service(namespace, name))) {
      // Each step waits for a write, so the service is read again.
      const service = state.service(namespace, name);
      if (service === undefined || !clusterAddresses(service).includes(address)) continue;
      await this.#addressOf(service, address);
    }
  }

  async #addressOf(service: Service, address: string): Promise<void> {
    const { state } = this.#options;
    const title = `[${address.includes(':') ? 'IPv6' : 'IPv4'}]: ${address}`;
    if (!this.#isInRange(address)) {
      const text = `Cluster IP ${title} is not within any configured Service CIDR; please recreate service`;
      this.#report(service, 'ClusterIPOutOfRange', text);
      return;
    }
    const object = state.address(address);
    if (object === undefined) {
      this.#report(service, 'ClusterIPNotAllocated', `Cluster IP ${title} is not allocated; repairing`);
      await this.#create(service, address);
      return;
    }
    if (!refersTo(object, service)) {
      const parent = parentService(object);
      const other = parent === undefined ? undefined : state.service(parent.namespace, parent.name);
      if (clusterAddresses(other).includes(address)) {
        const text = `Cluster IP ${title} was assigned to multiple services; please recreate service`;
        this.#report(service, 'ClusterIPAlreadyAllocated', text);
        return;
      }
      const { namespace = '', name = '' } = service.metadata;
      const text = `the ClusterIP ${title} for Service ${namespace}/${name} has a wrong reference; repairing`;
      this.#report(service, 'ClusterIPNotAllocated', text);
    } else if (hasServiceLabels(object)) return;
    await this.#remove(object);
    await this.#create(service, address);
  }

  /** Removes an IPAddress whose service does not have it. Returns in how many milliseconds to check again; 0 means never. */
  async address(name: string): Promise<number> {
    const { state, clock } = this.#options;
    const object = state.address(name);
    if (object === undefined || !isManaged(object)) return 0;
    const parent = parentService(object);
    const title = `IPAddress: ${name} for Service ${parent?.namespace ?? ''}/${parent?.name ?? ''}`;
    const service = parent === undefined ? undefined : state.service(parent.namespace, parent.name);
    if (parent === undefined) {
      const text = `IPAddress ${name} appears to have been modified, not referencing a Service: cleaning up`;
      this.#reportAddress(object, 'IPAddressNotAllocated', text);
    } else if (service === undefined) {
      const ageMs = clock.now() - Date.parse(String(object.metadata.creationTimestamp));
      if (ageMs <= GRACE_MS) return GRACE_MS - ageMs + 1;
      this.#reportAddress(object, 'IPAddressNotAllocated', `${title} appears to have leaked: cleaning up`);
    } else if (clusterAddresses(service).includes(name)) return 0;
    else this.#reportAddress(object, 'IPAddressWrongReference', `${title} has a wrong reference; cleaning up`);
    await this.#remove(object);
    return 0;
  }

  #isInRange(address: string): boolean {
    const ip = parseIp(address);
    const cidrs = this.#options.state.ranges().flatMap(({ spec }) => spec?.cidrs ?? []);
    return cidrs.map(parseCidr).some((cidr) => ip !== undefined && cidr !== undefined && cidrContains(cidr, ip));
  }

  async #create(service: Service, address: string): Promise<void> {
    await tolerate(this.#options.client.create(ipAddresses, '', ipAddressOf(address, service)), isAlreadyExists);
  }

  /** Removes the object only as it was judged: another server may have repaired it meanwhile. */
  async #remove({ metadata }: IpAddress): Promise<void> {
    const { name = '', uid = '', resourceVersion = '' } = metadata;
    const removal = this.#options.client.delete(ipAddresses, '', name, { preconditions: { uid, resourceVersion } });
    await tolerate(removal, isNotFound);
  }

  #report(service: Service, reason: string, message: string): void {
    this.#options.logger.warn({ service: service.metadata.name, namespace: service.metadata.namespace }, message);
    this.#recorder.event(referenceTo(service, services), 'Warning', reason, message);
  }

  #reportAddress(address: IpAddress, reason: string, message: string): void {
    this.#options.logger.warn({ address: address.metadata.name }, message);
    this.#recorder.event(referenceTo(address, ipAddresses), 'Warning', reason, message);
  }
}
