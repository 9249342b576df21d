/**
 * The resources that device plugins serve: one plugin each, its devices and their health. A plugin that went away leaves its
 * devices, all of them sick, for five minutes; what is not back by then is gone. The device manager gives devices away, this
 * says which there are.
 */
import type { Logger } from '../../../api/component/logger.ts';
import { background } from '../../../api/machinery/background.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { DeviceEndpoint, type PluginDevice } from './device-endpoint.ts';
import { HEALTHY } from './schema.ts';

export interface PluginResourcesOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly onRegistered: (resource: string, tookMs: number) => void;
  /** The health of these devices is another, or they came or went. */
  readonly onDevices: (resource: string, ids: ReadonlySet<string>) => void;
  /** The time of a resource without a plugin is up. */
  readonly onExpiry: () => void;
}

interface Resource {
  endpoint: DeviceEndpoint | undefined;
  /** When the plugin went away; of one that is there it is undefined. */
  goneAtMs: number | undefined;
  devices: ReadonlyMap<string, PluginDevice>;
}

/** What the node tells of devices. */
export interface DeviceCapacity {
  readonly capacity: Readonly<Record<string, string>>;
  readonly allocatable: Readonly<Record<string, string>>;
}

const GRACE_MS = 5 * 60_000;

export class PluginResources {
  readonly #options: PluginResourcesOptions;
  readonly #resources = new Map<string, Resource>();
  /** Were there once: told with zero, so that nobody counts on an old figure. */
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

  /** Had a plugin before the agent's start: it has as long to come back as one that went away now. */
  expect(name: string): void {
    this.#resources.set(name, { endpoint: undefined, goneAtMs: this.#options.clock.monotonic(), devices: new Map() });
  }

  /** Throws where the plugin does not answer. One that serves the same resource already is replaced. */
  async connect(name: string, socket: string, signal: AbortSignal): Promise<void> {
    const { logger, clock, onRegistered } = this.#options;
    const fromMs = clock.monotonic();
    const endpoint = await DeviceEndpoint.connect(socket, signal);
    signal.addEventListener('abort', () => endpoint.stop(), { once: true });
    const before = this.#resources.get(name);
    this.#resources.set(name, { endpoint, goneAtMs: undefined, devices: before?.devices ?? new Map() });
    this.#removed.delete(name);
    before?.endpoint?.stop();
    onRegistered(name, clock.monotonic() - fromMs);
    logger.info({ resource: name, socket }, 'A device plugin is registered');
    const following = endpoint
      .follow((devices) => this.#take(name, endpoint, devices))
      .finally(() => this.#lose(name, endpoint));
    background(following, { logger, what: 'Following a device plugin', fields: { resource: name }, signal });
  }

  disconnect(name: string, socket: string): void {
    const endpoint = this.endpoint(name);
    if (endpoint?.socket === socket) this.#lose(name, endpoint);
  }

  #take(name: string, endpoint: DeviceEndpoint, devices: readonly PluginDevice[]): void {
    const resource = this.#resources.get(name);
    if (resource?.endpoint !== endpoint) return;
    this.#replace(name, resource, new Map(devices.map((device) => [device.id, device])));
  }

  #lose(name: string, endpoint: DeviceEndpoint): void {
    const resource = this.#resources.get(name);
    if (resource?.endpoint !== endpoint) return;
    endpoint.stop();
    resource.endpoint = undefined;
    resource.goneAtMs = this.#options.clock.monotonic();
    const sick = [...resource.devices].map(([id, device]) => [id, { ...device, health: 'Unhealthy' }] as const);
    this.#replace(name, resource, new Map(sick));
    this.#options.clock.after(GRACE_MS, () => this.#options.onExpiry());
  }

  #replace(name: string, resource: Resource, after: Resource['devices']): void {
    const before = resource.devices;
    resource.devices = after;
    const ids = [...new Set([...before.keys(), ...after.keys()])];
    this.#options.onDevices(name, new Set(ids.filter((id) => before.get(id)?.health !== after.get(id)?.health)));
  }

  /** Forgets what has had its time. */
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

  ids(name: string): readonly string[] {
    return [...(this.#resources.get(name)?.devices.keys() ?? [])];
  }

  healthy(name: string): Set<string> {
    return new Set(this.healthyDevices(name).map(({ id }) => id));
  }

  healthyDevices(name: string): readonly PluginDevice[] {
    return [...(this.#resources.get(name)?.devices.values() ?? [])].filter(({ health }) => health === HEALTHY);
  }

  /** Of one that its plugin does not list any more nobody knows better. */
  health(name: string, id: string): string {
    return this.#resources.get(name)?.devices.get(id)?.health ?? HEALTHY;
  }

  /** Empty for a device that is as near to every node. */
  nodesOf(name: string, id: string): readonly number[] {
    return (this.#resources.get(name)?.devices.get(id)?.topology?.nodes ?? []).map((node) => node.id);
  }

  hasTopology(name: string): boolean {
    return this.ids(name).some((id) => this.nodesOf(name, id).length > 0);
  }
}
