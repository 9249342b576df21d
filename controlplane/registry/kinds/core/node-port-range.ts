/**
 * Allocates node ports among several servers. As in kube-apiserver, one object has a bit for each port of the range. It is
 * changed in the transaction of a service that takes or frees ports.
 */
import { SerialQueue } from '../../../../api/machinery/serial-queue.ts';
import { encodeObject, parseObject } from '../../../storage/object-bytes.ts';
import { isStorageError, StorageError, type Storage, type TransactionWrite } from '../../../storage/storage.ts';
import type { ServiceClaims } from './service-claims.ts';
import { portsOf, type Service } from './service-types.ts';

/** The key of the allocated node ports. In etcd it is that of kube-apiserver: `/registry/ranges/servicenodeports`. */
const RANGE_KEY = '/core/ranges/servicenodeports';
/** How often a write is tried when other servers change the object at the same time. */
const ATTEMPTS = 20;

/** A range of ports. Both ends belong to it. */
interface PortRange {
  readonly from: number;
  readonly to: number;
}

interface NodePortRangeOptions {
  readonly ports: PortRange;
  readonly claims: ServiceClaims;
  readonly storage: () => Storage;
}

interface ServicePortsChange {
  readonly service: Service | undefined;
  readonly old: Service | undefined;
}

/** Allocates node ports in the shared object. */
export class NodePortRange {
  readonly #options: NodePortRangeOptions;
  /** Runs the writes that change the object, so that those of one server do not compete. */
  readonly #writes = new SerialQueue();
  /** Ports that writes found allocated in the object, perhaps without a service, and that have not been free there since. */
  readonly #avoided = new Set<number>();

  constructor(options: NodePortRangeOptions) {
    this.#options = options;
  }

  /** Whether writes found the port allocated in the object, perhaps without a service, so that another one should be chosen. */
  avoids(port: number): boolean {
    return this.#avoided.has(port);
  }

  /** Avoids no port until a write finds one allocated again. To be called when no other port is left. */
  forgetAvoided(): void {
    this.#avoided.clear();
  }

  /**
   * Runs `write` with the operations that allocate and release the ports of a service. There are none with one server, or if
   * the ports do not change. Rejects with StorageError `occupied` if another server has taken one of the ports.
   */
  async write<T>(
    { service, old }: ServicePortsChange,
    write: (operations: readonly TransactionWrite[]) => Promise<T>,
  ): Promise<T> {
    const before = new Set(portsOf(old?.spec ?? {}));
    const now = new Set(portsOf(service?.spec ?? {}));
    const taken = [...now.difference(before)];
    const dropped = [...before.difference(now)];
    if (this.#options.storage().catchUp === undefined || taken.length + dropped.length === 0) return write([]);
    return this.#writes.run(() => this.#writeInTurn({ taken, dropped }, write));
  }

  async #writeInTurn<T>(
    change: { readonly taken: readonly number[]; readonly dropped: readonly number[] },
    write: (operations: readonly TransactionWrite[]) => Promise<T>,
  ): Promise<T> {
    for (let attempt = 1; ; attempt += 1) {
      const operation = await this.#operation(change);
      try {
        return await write([operation]);
      } catch (error) {
        const rangeChanged = isStorageError(error, 'occupied') && error.occupiedKey === RANGE_KEY;
        if (!rangeChanged || attempt === ATTEMPTS) throw error;
      }
    }
  }

  /**
   * Returns the operation that takes and frees ports in the stored RangeAllocation. Rejects with `occupied` if a port that is
   * to be taken is allocated there, or a stored service has it.
   */
  async #operation({
    taken,
    dropped,
  }: {
    readonly taken: readonly number[];
    readonly dropped: readonly number[];
  }): Promise<TransactionWrite> {
    const { ports, claims, storage } = this.#options;
    const stored = await storage().get(RANGE_KEY);
    const range = `${ports.from}-${ports.to}`;
    const allocation = stored === undefined ? undefined : (parseObject(stored.value) as unknown as RangeAllocation);
    // Without an object of the range of the flag, the ports of the stored services are allocated.
    let bits = allocation?.range === range ? bitsOf(allocation.data) : this.#bitsOfServices();
    for (const port of this.#avoided) if ((bits & bitOf(port, ports)) === 0n) this.#avoided.delete(port);
    for (const port of taken) {
      const bit = bitOf(port, ports);
      // A kube-apiserver takes a port before it stores the service.
      if ((bits & bit) !== 0n) this.#avoided.add(port);
      if ((bits & bit) !== 0n || claims.countOf(port) > 0)
        throw new StorageError('occupied', `node port ${port} is already allocated`);
      bits |= bit;
    }
    // Another stored service may have the same port.
    for (const port of dropped) if (claims.countOf(port) <= 1) bits &= ~bitOf(port, ports);
    const object = { kind: 'RangeAllocation', apiVersion: 'v1', metadata: {}, range, data: dataOf(bits) };
    return { key: RANGE_KEY, value: encodeObject(object), expectedRevision: stored?.revision ?? 0 };
  }

  #bitsOfServices(): bigint {
    const { claims, ports } = this.#options;
    return [...claims.ports()].reduce((bits, port) => bits | bitOf(port, ports), 0n);
  }
}

interface RangeAllocation {
  readonly range?: string;
  /** A number in base64, whose lowest bit stands for the first port of the range. */
  readonly data?: string;
}

function bitOf(port: number, { from, to }: PortRange): bigint {
  return port < from || port > to ? 0n : 1n << BigInt(port - from);
}

function bitsOf(data = ''): bigint {
  const hex = Buffer.from(data, 'base64').toString('hex');
  return hex === '' ? 0n : BigInt(`0x${hex}`);
}

function dataOf(bits: bigint): string {
  if (bits === 0n) return '';
  const hex = bits.toString(16);
  return Buffer.from(hex.length % 2 === 0 ? hex : `0${hex}`, 'hex').toString('base64');
}
