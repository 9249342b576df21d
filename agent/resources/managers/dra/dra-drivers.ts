/**
 * Keeps the DRA drivers that have registered, and calls them. It follows the health that they report, and deletes the
 * slices of those that have gone.
 */
import type { Logger } from '../../../../api/component/logger.ts';
import type { Client } from '../../../../api/client/client.ts';
import type { Clock } from '../../../../api/machinery/clock.ts';
import { connectGrpc, type GrpcCallObserver, type GrpcClient } from '../../../../api/grpc/grpc-client.ts';
import type { PluginHandler } from '../../../volumes/plugins/plugin-manager.ts';
import { checkDriverName } from '../../../volumes/plugins/plugin-names.ts';
import { type DeviceHealth, DriverHealth, healthKey } from './driver-health.ts';
import { DRA_MESSAGES, DRA_METHODS } from './schema.ts';
import { SliceCleanup } from './slice-cleanup.ts';

interface DraDriversOptions {
  /** Absent on a host without an API server, which has no slices. */
  readonly client: Client | undefined;
  readonly nodeName: string;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Called with the driver and the keys (`healthKey`) of the devices whose health has changed. */
  readonly onHealth: (driver: string, devices: ReadonlySet<string>) => void;
  /** Returns the observer of calls to the driver of this name. */
  readonly observeCalls: ((driver: string) => GrpcCallObserver) | undefined;
}

type Version = keyof typeof DRA_METHODS;
type DriverClient = GrpcClient<typeof DRA_MESSAGES, (typeof DRA_METHODS)[Version]>;

interface Instance {
  readonly socket: string;
  readonly version: Version;
}

/** Owns the instances of drivers, their streams of health and the cleanup of slices. */
export class DraDrivers {
  /** The instances of each driver by name, newest last. An update registers the new instance before it removes the old one. */
  readonly #instances = new Map<string, readonly Instance[]>();
  readonly #slices: SliceCleanup | undefined;
  readonly #health: DriverHealth;
  readonly #observeCalls: DraDriversOptions['observeCalls'];

  constructor({ client, nodeName, clock, logger, onHealth, observeCalls }: DraDriversOptions) {
    this.#observeCalls = observeCalls;
    this.#slices = client === undefined ? undefined : new SliceCleanup({ client, nodeName, clock, logger });
    this.#health = new DriverHealth({ clock, logger, onChange: onHealth });
  }

  /** Deletes slices of drivers that have gone, and keeps the streams of health open, until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([this.#slices?.run(signal), this.#health.run(signal)]);
  }

  /** Returns the handler by which drivers register with the plugin manager. */
  handler(): PluginHandler {
    return {
      validate: ({ name, supportedVersions }) => {
        checkDriverName(name, this.#instances);
        versionOf(supportedVersions);
      },
      register: ({ name, endpoint, supportedVersions }) => {
        const instance = { socket: endpoint, version: versionOf(supportedVersions) };
        this.#instances.set(name, [...this.#otherInstances(name, endpoint), instance]);
        this.#slices?.keep(name);
        this.#health.watch(name, endpoint, supportedVersions);
        return Promise.resolve();
      },
      deregister: (name, endpoint) => {
        const remaining = this.#otherInstances(name, endpoint);
        this.#health.unwatch(endpoint);
        if (remaining.length > 0) this.#instances.set(name, remaining);
        else if (this.#instances.delete(name)) this.#slices?.expire(name);
        return Promise.resolve();
      },
    };
  }

  #otherInstances(name: string, endpoint: string): readonly Instance[] {
    return (this.#instances.get(name) ?? []).filter(({ socket }) => socket !== endpoint);
  }

  /** Throws if the driver is not registered. Returns its newest instance. */
  newestInstance(driver: string): Instance {
    const instance = this.#instances.get(driver)?.at(-1);
    if (instance === undefined) throw new Error(`DRA driver ${driver} is not registered`);
    return instance;
  }

  /** Calls the newest instance of the driver. Rejects if there is none. */
  async call<T>(driver: string, work: (client: DriverClient) => Promise<T>): Promise<T> {
    const instance = this.newestInstance(driver);
    const observe = this.#observeCalls?.(driver);
    const client = await connectGrpc({
      socket: instance.socket,
      messages: DRA_MESSAGES,
      methods: DRA_METHODS[instance.version],
      ...(observe === undefined ? {} : { observe }),
    });
    try {
      return await work(client);
    } finally {
      client.close();
    }
  }

  healthOf(driver: string, pool: string, device: string): DeviceHealth {
    return this.#health.healthOf(driver, healthKey(pool, device));
  }
}

function versionOf(supported: readonly string[]): Version {
  const found = supported.find((version): version is Version => Object.hasOwn(DRA_METHODS, version));
  if (found === undefined)
    throw new Error(
      `none of the DRA gRPC services ${supported.join(', ')} is supported: ${Object.keys(DRA_METHODS).join(', ')}`,
    );
  return found;
}
