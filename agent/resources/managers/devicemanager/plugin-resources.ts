/**
 * Owns the resources that device plugins serve: one plugin for each resource, with its devices and their health. After a
 * plugin disconnects, its devices stay listed as unhealthy for five minutes. If the plugin has not reconnected by then, the
 * resource is removed.
 */
import type { Logger } from '../../../../api/component/logger.ts';
import { background } from '../../../../api/machinery/background.ts';
import type { Clock } from '../../../../api/machinery/clock.ts';
import { DeviceEndpoint, type PluginDevice } from './device-endpoint.ts';
import { acceptDevices, MAX_DEVICES, MAX_RESOURCES } from './plugin-limits.ts';
import { HEALTHY, UNHEALTHY } from './schema.ts';

interface PluginResourcesOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly numaNodes: readonly number[];
  readonly onRegistered: (resource: string, tookMs: number) => void;
  /**
   * Called after each list of a plugin and when a plugin disconnects, with the ids of the devices that appeared,
   * disappeared or changed their health.
   */
  readonly onDevices: (resource: string, ids: ReadonlySet<string>) => void;
  /** Called five minutes after a plugin has disconnected, when its resource expires unless it has reconnected. */
  readonly onExpiry: () => void;
}

interface Resource {
  endpoint: DeviceEndpoint | undefined;
  /** The time at which the plugin disconnected; `undefined` while it is connected. */
  goneAtMs: number | undefined;
  devices: ReadonlyMap<string, PluginDevice>;
}

/** The device capacity and allocatable that the node reports. */
export interface DeviceCapacity {
  readonly capacity: Readonly<Record<string, string>>;
  readonly allocatable: Readonly<Record<string, string>>;
}

const GRACE_MS = 5 * 60_000;

/** Owns the endpoints and the devices of each resource. */
export class PluginResources {
  readonly #options: PluginResourcesOptions;
  readonly #resources = new Map<string, Resource>();
  /** Removed resources. The node reports them with zero, so that no client relies on an old value. */
  readonly #removed = new Set<string>();

  constructor(options: PluginResourcesOptions) {
    this.#options = options;
  }

  names(): readonly string[] {
    return [...this.#resources.keys()];
  }

  has(name: string): boolean {
    return this.#resources.has(name);
  }

  endpoint(name: string): DeviceEndpoint | undefined {
    return this.#resources.get(name)?.endpoint;
  }

  /**
   * Adds a resource that had a plugin before the agent started, unless the node has too many. The plugin has as much time to
   * reconnect as if it disconnected now.
   */
  expect(name: string): void {
    if (!this.#hasRoom(name)) return;
    this.#resources.set(name, { endpoint: undefined, goneAtMs: this.#options.clock.monotonic(), devices: new Map() });
  }

  #hasRoom(name: string): boolean {
    if (this.#resources.has(name) || this.#removed.has(name)) return true;
    return this.#resources.size + this.#removed.size < MAX_RESOURCES;
  }

  /**
   * Connects to a plugin and follows its devices until the signal aborts. A plugin that already serves the same resource is
   * replaced. Throws if the plugin does not respond, or the node has too many resources of plugins.
   */
  async connect(name: string, socket: string, signal: AbortSignal): Promise<void> {
    const { logger, clock, onRegistered } = this.#options;
    const checkRoom = (): void => {
      if (!this.#hasRoom(name)) throw new Error(`the node has ${MAX_RESOURCES} resources of device plugins already`);
    };
    checkRoom();
    const fromMs = clock.monotonic();
    const endpoint = await DeviceEndpoint.connect(socket, signal);
    try {
      // Others may have registered meanwhile.
      checkRoom();
    } catch (error) {
      endpoint.stop();
      throw error;
    }
    signal.addEventListener('abort', () => endpoint.stop(), { once: true });
    const before = this.#resources.get(name);
    this.#resources.set(name, { endpoint, goneAtMs: undefined, devices: before?.devices ?? new Map() });
    this.#removed.delete(name);
    before?.endpoint?.stop();
    onRegistered(name, clock.monotonic() - fromMs);
    logger.info({ resource: name, socket }, 'Registered a device plugin');
    const following = endpoint
      .follow((devices) => this.#updateDevices(name, endpoint, devices), clock)
      .finally(() => this.#loseEndpoint(name, endpoint));
    background(following, { logger, what: 'Following a device plugin', fields: { resource: name }, signal });
  }

  /** Treats the plugin as disconnected, unless another one has registered the resource at another socket since. */
  disconnect(name: string, socket: string): void {
    const endpoint = this.endpoint(name);
    if (endpoint?.socket === socket) this.#loseEndpoint(name, endpoint);
  }

  #updateDevices(name: string, endpoint: DeviceEndpoint, devices: readonly PluginDevice[]): void {
    const resource = this.#resources.get(name);
    if (resource?.endpoint !== endpoint) return;
    const others = this.#resources.values().reduce((sum, other) => sum + other.devices.size, -resource.devices.size);
    const { numaNodes } = this.#options;
    this.#replace(name, resource, acceptDevices(devices, { numaNodes, most: MAX_DEVICES - others }));
  }

  #loseEndpoint(name: string, endpoint: DeviceEndpoint): void {
    const resource = this.#resources.get(name);
    if (resource?.endpoint !== endpoint) return;
    endpoint.stop();
    resource.endpoint = undefined;
    resource.goneAtMs = this.#options.clock.monotonic();
    const unhealthy = [...resource.devices].map(([id, device]) => [id, { ...device, health: UNHEALTHY }] as const);
    this.#replace(name, resource, new Map(unhealthy));
    this.#options.clock.after(GRACE_MS, () => this.#options.onExpiry());
  }

  #replace(name: string, resource: Resource, after: Resource['devices']): void {
    const before = resource.devices;
    resource.devices = after;
    const ids = [...new Set([...before.keys(), ...after.keys()])];
    this.#options.onDevices(name, new Set(ids.filter((id) => before.get(id)?.health !== after.get(id)?.health)));
  }

  /** Returns the capacity, and removes expired resources. */
  capacity(): DeviceCapacity {
    const capacity: Record<string, string> = {};
    const allocatable: Record<string, string> = {};
    for (const [name, { devices, goneAtMs }] of this.#resources) {
      if (goneAtMs !== undefined && this.#options.clock.monotonic() - goneAtMs >= GRACE_MS) {
        this.#resources.delete(name);
        this.#removed.add(name);
        continue;
      }
      capacity[name] = String(devices.size);
      allocatable[name] = String(this.healthy(name).size);
    }
    for (const name of this.#removed) {
      capacity[name] = '0';
      allocatable[name] = '0';
    }
    return { capacity, allocatable };
  }

  /** Returns the ids of all devices of a resource, whether they are healthy or not. */
  ids(name: string): readonly string[] {
    return [...(this.#resources.get(name)?.devices.keys() ?? [])];
  }

  /** Returns the ids of the healthy devices of a resource. */
  healthy(name: string): Set<string> {
    return new Set(this.healthyDevices(name).map(({ id }) => id));
  }

  /** Returns the healthy devices of a resource. */
  healthyDevices(name: string): readonly PluginDevice[] {
    return [...(this.#resources.get(name)?.devices.values() ?? [])].filter(({ health }) => health === HEALTHY);
  }

  /**
   * Returns the health of a device. A device that its plugin no longer lists counts as healthy, because nothing else is known
   * of it.
   */
  health(name: string, id: string): string {
    return this.#resources.get(name)?.devices.get(id)?.health ?? HEALTHY;
  }

  /** Returns the NUMA nodes of a device; none for a device without NUMA affinity. */
  nodesOf(name: string, id: string): readonly number[] {
    return (this.#resources.get(name)?.devices.get(id)?.topology?.nodes ?? []).map((node) => node.id);
  }

  /** Whether the plugin names NUMA nodes for any device of the resource. */
  hasTopology(name: string): boolean {
    return this.ids(name).some((id) => this.nodesOf(name, id).length > 0);
  }
}
