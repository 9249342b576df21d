/** Counts the cluster addresses and node ports of the stored services, whichever server wrote them. */
import { selectionOf } from '../../../storage/selection.ts';
import type { StoredValue, VersionChange } from '../../../storage/resource-versions.ts';
import type { StoredResource } from '../../store.ts';
import { clusterAddresses } from './service-ip-addresses.ts';
import { portsOf, type Service } from './service-types.ts';

interface ServiceStores {
  get(group: string, resource: string): StoredResource;
}

/** Counts how many stored services have each address and each port, because two of them may have the same. */
export class ServiceClaims {
  readonly #stores: ServiceStores;
  readonly #addresses = new Map<string, number>();
  readonly #ports = new Map<number, number>();
  #isFollowing = false;

  constructor(stores: ServiceStores) {
    this.#stores = stores;
  }

  /** Whether a stored service has the address, which is in canonical form. */
  hasAddress(address: string): boolean {
    this.#follow();
    return this.#addresses.has(address);
  }

  /** Returns the number of stored services that have the port. */
  countOf(port: number): number {
    this.#follow();
    return this.#ports.get(port) ?? 0;
  }

  /** Returns the node ports that services have. */
  ports(): Iterable<number> {
    this.#follow();
    return this.#ports.keys();
  }

  #follow(): void {
    if (this.#isFollowing) return;
    this.#isFollowing = true;
    const { cache, storage } = this.#stores.get('', 'services');
    for (const { object } of cache.list({ selection: selectionOf('') }).entries) this.#add(object as Service, 1);
    storage.watch(
      { prefix: SERVICES, afterRevision: storage.revision() },
      {
        onEvents: (changes) => this.#take(changes),
        onEnd: () => {
          this.#isFollowing = false;
          this.#addresses.clear();
          this.#ports.clear();
        },
      },
    );
  }

  #take(changes: readonly VersionChange[]): void {
    const { cache } = this.#stores.get('', 'services');
    const serviceOf = (value: StoredValue): Service => cache.entryOf(value).object as Service;
    for (const { previous, current } of changes) {
      if (current !== undefined) this.#add(serviceOf(current), 1);
      if (previous !== undefined) this.#add(serviceOf(previous), -1);
    }
  }

  #add(service: Service, count: 1 | -1): void {
    for (const address of clusterAddresses(service)) add(this.#addresses, address, count);
    for (const port of new Set(portsOf(service.spec ?? {}))) add(this.#ports, port, count);
  }
}

const SERVICES = '/core/services/';

function add<K>(counts: Map<K, number>, key: K, count: number): void {
  const now = (counts.get(key) ?? 0) + count;
  if (now > 0) counts.set(key, now);
  else counts.delete(key);
}
