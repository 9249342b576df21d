/**
 * Registers device plugins, and allocates their devices to containers, on the NUMA nodes that the topology manager chose
 * and by the plugin's preference. Its allocations survive a restart in a checkpoint.
 */
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../../../api/component/logger.ts';
import { initAndMainContainers } from '../../../../api/kinds/pod-containers.ts';
import { background } from '../../../../api/machinery/background.ts';
import type { Clock } from '../../../../api/machinery/clock.ts';
import type { Container, ContainerStatusJson, Pod } from '../../../base/model/pod.ts';
import { isOfClaim } from '../dra/extended-resources.ts';
import { buildCodecs, type MessageCodec } from '../../../../api/grpc/codec.ts';
import type { Plugin, PluginHandler } from '../../../volumes/plugins/plugin-manager.ts';
import { bytesOf, limitsOf } from '../../../runtime/kuberuntime/resources.ts';
import { readStateFile, StateWriter } from '../checkpoint-file.ts';
import { type AffinityStore, type HintProvider, isOrdinaryInit, podAmount } from '../hint-provider.ts';
import type { ProviderHints, TopologyHint } from '../topologymanager/hints.ts';
import { CHECKPOINT_NAME, deviceCheckpoint, readDeviceCheckpoint } from './device-checkpoint.ts';
import type { PluginDevice } from './device-endpoint.ts';
import { completeChoice, deviceHints, type DeviceTopology } from './device-topology.ts';
import { type DeviceCapacity, PluginResources } from './plugin-resources.ts';
import type { DeviceRunOptions } from '../../../runtime/kuberuntime/device-options.ts';
import { idsOf, PodDevices } from './pod-devices.ts';
import { LostAllocations } from './lost-allocations.ts';
import { checkAnswer, isPluginResource, MAX_SHOWN_CHARS } from './plugin-limits.ts';
import { makeFolder } from '../../../../api/machinery/replace-file.ts';
import { quoteText } from '../../../../api/meta/quote.ts';
import { DEVICE_MESSAGES, SUPPORTED_VERSIONS } from './schema.ts';

/** The directories, the topology and the observers of the manager. */
export interface DeviceManagerOptions {
  /** The directory of the plugins' sockets: `<root-dir>/device-plugins`. */
  readonly directory: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly numaNodes: readonly number[];
  readonly affinity: AffinityStore;
  /** Called when the node's device capacity may have changed. */
  readonly onNodeChange: () => void;
  /** Called when the health of devices of these pods has changed. */
  readonly onPodsChange: (uids: readonly string[]) => void;
  readonly observe: (event: 'registration' | 'allocation', resource: string, tookMs: number) => void;
}

/** Owns the plugins and the devices that are allocated to containers. */
export class DeviceManager implements HintProvider {
  readonly #options: DeviceManagerOptions;
  readonly #codec: MessageCodec;
  readonly #resources: PluginResources;
  readonly #pods = new PodDevices();
  readonly #writer: StateWriter;
  /** Present if the checkpoint could not be read. */
  #lostAllocations: LostAllocations | undefined;
  /** Devices of ordinary init containers of the pod that was admitted last, by resource. Its other containers reuse them. */
  #reusable: { readonly podUid: string; readonly ids: Map<string, Set<string>> } = { podUid: '', ids: new Map() };

  private constructor(options: DeviceManagerOptions, codec: MessageCodec) {
    this.#options = options;
    this.#codec = codec;
    this.#resources = new PluginResources({
      clock: options.clock,
      logger: options.logger,
      numaNodes: options.numaNodes,
      onRegistered: (resource, tookMs) => options.observe('registration', resource, tookMs),
      onDevices: (resource, ids) => this.#devicesChanged(resource, ids),
      onExpiry: () => {
        // Reading the capacity removes expired resources.
        this.#resources.capacity();
        this.#saveInBackground();
        options.onNodeChange();
      },
    });
    const path = join(options.directory, CHECKPOINT_NAME);
    const { clock, logger } = options;
    this.#writer = new StateWriter({ path, what: 'the checkpoint of devices', clock, logger });
  }

  static async start(options: DeviceManagerOptions): Promise<DeviceManager> {
    const codecs = buildCodecs(DEVICE_MESSAGES);
    const manager = new DeviceManager(options, codecs('ContainerAllocateResponse'));
    await makeFolder(options.directory, 0o750);
    await manager.#restore();
    return manager;
  }

  async #restore(): Promise<void> {
    const { directory, logger } = this.#options;
    const path = join(directory, CHECKPOINT_NAME);
    try {
      const json = await readStateFile(path);
      if (json === undefined) return;
      const { entries, registered } = readDeviceCheckpoint(json);
      this.#pods.restore(entries, this.#codec);
      for (const resource of Object.keys(registered)) if (isPluginResource(resource)) this.#resources.expect(resource);
    } catch (error) {
      // Like the kubelet, the manager drops a checkpoint that it cannot read. Plugins register again.
      this.#lostAllocations = new LostAllocations();
      logger.error(
        { err: error, path },
        'Cannot read the checkpoint of devices, allocating no resource of which pods that already run have devices',
      );
    }
  }

  /** Removes the sockets of device plugins. A plugin registers again when its socket disappears. */
  async removeSockets(): Promise<void> {
    const { directory } = this.#options;
    for (const entry of await readdir(directory, { withFileTypes: true }))
      if (entry.isSocket()) await rm(join(directory, entry.name), { force: true });
  }

  /** Returns the plugin manager's handler for plugins that register through their own socket. */
  handler(): PluginHandler {
    return {
      validate: (plugin) => checkPlugin(plugin),
      register: ({ name, endpoint }, signal) => this.connect(name, endpoint, signal),
      deregister: (name, endpoint) => {
        this.#resources.disconnect(name, endpoint);
        return Promise.resolve();
      },
    };
  }

  /** Connects to the plugin of a resource. Throws if it does not respond, or if the node has too many resources. */
  connect(resource: string, socket: string, signal: AbortSignal): Promise<void> {
    return this.#resources.connect(resource, socket, signal);
  }

  #devicesChanged(resource: string, ids: ReadonlySet<string>): void {
    this.#saveInBackground();
    this.#options.onNodeChange();
    const pods = this.#pods.podsWith(resource, ids);
    if (pods.length > 0) this.#options.onPodsChange(pods);
  }

  #saveInBackground(): void {
    background(this.#save(), { logger: this.#options.logger, what: 'Writing the checkpoint of devices' });
  }

  #save(): Promise<void> {
    return this.#writer.write(() =>
      deviceCheckpoint(
        this.#pods.entries(this.#codec),
        Object.fromEntries(
          this.#resources
            .names()
            .toSorted()
            .map((name) => [name, [...this.#resources.healthy(name)].sort()]),
        ),
      ),
    );
  }

  capacity(): DeviceCapacity {
    return this.#resources.capacity();
  }

  /** Returns the healthy devices by resource. */
  allocatableDevices(): ReadonlyMap<string, readonly PluginDevice[]> {
    return new Map(this.#resources.names().map((name) => [name, this.#resources.healthyDevices(name)]));
  }

  /**
   * Returns the devices of a container by resource, with the NUMA nodes that they had when they were allocated. A device with
   * several nodes occurs once for each.
   */
  containerDevices(podUid: string, container: string): ReadonlyMap<string, readonly PluginDevice[]> {
    return new Map(
      [...this.#pods.ofContainer(podUid, container)].map(([resource, { byNode }]) => [
        resource,
        [...byNode].flatMap(([node, ids]) =>
          ids.map((id) => ({ id, health: '', topology: node < 0 ? null : { nodes: [{ id: node }] } })),
        ),
      ]),
    );
  }

  /** Returns the number of devices by resource that pods have. */
  allocatedCounts(): ReadonlyMap<string, number> {
    return this.#pods.counts();
  }

  pods(): readonly string[] {
    return [...this.#pods.pods(), ...(this.#lostAllocations?.pods() ?? [])];
  }

  #isServedOrAllocated(resource: string): boolean {
    return this.#resources.has(resource) || this.#pods.isAllocated(resource);
  }

  /** Returns how many devices to allocate by resource, without those of claims. Limits count, and not requests. */
  #wanted(pod: Pod, container: Container): ReadonlyMap<string, number> {
    return new Map(
      Object.entries(limitsOf(container))
        .filter(
          ([resource]) =>
            resource.includes('/') && this.#isServedOrAllocated(resource) && !isOfClaim(pod, container, resource),
        )
        .map(([resource, text]) => [resource, bytesOf(text)]),
    );
  }

  wants(pod: Pod, container: Container): boolean {
    return this.#lostAllocations?.hold(pod, container) === true || this.#wanted(pod, container).size > 0;
  }

  async allocate(pod: Pod, container: Container): Promise<void> {
    const { uid } = pod.metadata;
    if (this.#lostAllocations?.hold(pod, container) === true) return;
    const wanted = this.#wanted(pod, container);
    if (wanted.size === 0) return;
    for (const [resource, count] of wanted) {
      this.#lostAllocations?.check(resource);
      const ids = await this.#choose(pod, container, resource, count);
      if (ids.length > 0) await this.#allocateFrom(uid, container.name, resource, ids);
    }
    this.#updateReusable(pod, container);
    await this.#save();
  }

  async #allocateFrom(podUid: string, container: string, resource: string, ids: readonly string[]): Promise<void> {
    const { clock, observe } = this.#options;
    const endpoint = this.#resources.endpoint(resource);
    if (endpoint === undefined) throw new Error(`unknown Device Plugin ${resource}`);
    const fromMs = clock.monotonic();
    const answer = await endpoint.allocate(ids);
    checkAnswer(answer);
    observe('allocation', resource, clock.monotonic() - fromMs);
    const byNode = new Map<number, string[]>();
    for (const id of ids) {
      const nodes = this.#resources.nodesOf(resource, id);
      for (const node of nodes.length === 0 ? [-1] : nodes) {
        const idsOfNode = byNode.get(node);
        if (idsOfNode === undefined) byNode.set(node, [id]);
        else idsOfNode.push(id);
      }
    }
    this.#pods.insert(podUid, container, { resource, byNode, answer });
  }

  /**
   * Returns the ids to allocate; empty if the container already has its devices. Throws an error whose message appears
   * in the pod's status.
   */
  async #choose(pod: Pod, container: Container, resource: string, count: number): Promise<readonly string[]> {
    const { uid } = pod.metadata;
    const allocation = this.#pods.ofContainer(uid, container.name).get(resource);
    if (allocation !== undefined) {
      const held = idsOf(allocation).size;
      if (held === count) return [];
      throw new Error(
        `pod ${quoteText(uid)} container ${quoteText(container.name)} changed request for resource ${quoteText(resource)} from ${held} to ${count}`,
      );
    }
    if (count === 0) return [];
    const healthy = this.#resources.healthy(resource);
    if (!this.#resources.has(resource)) throw new Error(`cannot allocate unregistered device ${resource}`);
    if (healthy.size === 0)
      throw new Error(`no healthy devices present; cannot allocate unhealthy devices ${resource}`);
    const chosen = new Set([...this.#reusableOf(uid, resource)].slice(0, count));
    if (chosen.size === count) return [...chosen];
    const available = healthy.difference(this.#pods.inUse(resource)).difference(chosen);
    const missing = count - chosen.size;
    if (available.size < missing)
      throw new Error(
        `requested number of devices unavailable for ${resource}. Requested: ${missing}, Available: ${available.size}`,
      );
    return completeChoice(chosen, {
      count,
      available,
      topology: this.#topologyOf(resource),
      affinity: this.#options.affinity.affinity(uid, container.name).affinity,
      preferred: async (request) => (await this.#resources.endpoint(resource)?.preferred(request)) ?? [],
    });
  }

  /** Returns the devices of a resource with their NUMA nodes. */
  #topologyOf(resource: string): DeviceTopology {
    return {
      numaNodes: this.#options.numaNodes,
      ids: this.#resources.ids(resource),
      hasTopology: this.#resources.hasTopology(resource),
      nodesOf: (id) => this.#resources.nodesOf(resource, id),
    };
  }

  #reusableOf(podUid: string, resource: string): ReadonlySet<string> {
    return (this.#reusable.podUid === podUid ? this.#reusable.ids.get(resource) : undefined) ?? new Set();
  }

  #updateReusable(pod: Pod, container: Container): void {
    const { uid } = pod.metadata;
    if (this.#reusable.podUid !== uid) this.#reusable = { podUid: uid, ids: new Map() };
    for (const [resource, allocation] of this.#pods.ofContainer(uid, container.name)) {
      const before = this.#reusableOf(uid, resource);
      const ids = idsOf(allocation);
      this.#reusable.ids.set(resource, isOrdinaryInit(pod, container) ? before.union(ids) : before.difference(ids));
    }
  }

  release(podUid: string): void {
    this.#lostAllocations?.release(podUid);
    if (this.#pods.delete(podUid)) this.#saveInBackground();
  }

  /** Prepares the devices for a start of the container, and returns what it needs. Throws what keeps it from starting. */
  async runOptions(pod: Pod, container: Container): Promise<DeviceRunOptions> {
    const { uid } = pod.metadata;
    const allocations = this.#pods.ofContainer(uid, container.name);
    for (const [resource, count] of this.#wanted(pod, container)) {
      const allocation = allocations.get(resource);
      if (count > 0 && allocation === undefined) this.#lostAllocations?.check(resource);
      const endpoint = this.#resources.endpoint(resource);
      if (count === 0 || endpoint?.options.preStartRequired !== true) continue;
      if (allocation === undefined)
        throw new Error(
          `no devices found allocated in local cache for pod ${quoteText(uid)}, container ${quoteText(container.name)}, resource ${quoteText(resource)}`,
        );
      try {
        await endpoint.preStart([...idsOf(allocation)]);
      } catch (error) {
        throw new Error(`device plugin PreStartContainer rpc failed with err: ${(error as Error).message}`, {
          cause: error,
        });
      }
    }
    return this.#pods.runOptions(uid, container.name);
  }

  /** Returns every device of a container with its health, by resource, or `undefined` if it has none. */
  deviceHealth(podUid: string, container: string): ContainerStatusJson['allocatedResourcesStatus'] {
    const rows = [...this.#pods.ofContainer(podUid, container)].map(([resource, allocation]) => ({
      name: resource,
      resources: [...idsOf(allocation)].map((id) => ({
        resourceID: id,
        health: this.#resources.health(resource, id),
      })),
    }));
    return rows.length === 0 ? undefined : rows;
  }

  containerHints(pod: Pod, container: Container): ProviderHints {
    const { uid } = pod.metadata;
    const hints: Record<string, readonly TopologyHint[] | undefined> = {};
    for (const [resource, count] of this.#wanted(pod, container)) {
      const allocation = this.#pods.ofContainer(uid, container.name).get(resource);
      hints[resource] = this.#hintsFor(
        resource,
        count,
        allocation === undefined ? undefined : idsOf(allocation),
        this.#reusableOf(uid, resource),
      );
    }
    return hints;
  }

  podHints(pod: Pod): ProviderHints {
    const { uid } = pod.metadata;
    const containers = initAndMainContainers(pod.spec);
    const hints: Record<string, readonly TopologyHint[] | undefined> = {};
    for (const resource of new Set(containers.flatMap((container) => [...this.#wanted(pod, container).keys()]))) {
      const count = podAmount(pod, (container) => this.#wanted(pod, container).get(resource) ?? 0);
      const held = new Set(
        containers.flatMap(({ name }) => {
          const allocation = this.#pods.ofContainer(uid, name).get(resource);
          return allocation === undefined ? [] : [...idsOf(allocation)];
        }),
      );
      hints[resource] = this.#hintsFor(resource, count, held.size === 0 ? undefined : held, new Set());
    }
    return hints;
  }

  #hintsFor(
    resource: string,
    count: number,
    held: ReadonlySet<string> | undefined,
    reusable: ReadonlySet<string>,
  ): readonly TopologyHint[] | undefined {
    if (!this.#resources.hasTopology(resource)) return undefined;
    const topology = this.#topologyOf(resource);
    if (held !== undefined)
      return held.size === count ? deviceHints(topology, { count, available: held, reusable: new Set() }) : [];
    const available = this.#resources.healthy(resource).difference(this.#pods.inUse(resource));
    if (available.union(reusable).size < count) return [];
    return deviceHints(topology, { count, available, reusable });
  }
}

/** Throws if the resource name is invalid or the plugin supports no known version. */
export function checkPlugin({ name, supportedVersions }: Pick<Plugin, 'name' | 'supportedVersions'>): void {
  if (!supportedVersions.some((version) => SUPPORTED_VERSIONS.includes(version)))
    throw new Error(
      `requested API version ${quoteText(supportedVersions.join(','))} is not supported by kubelet. Supported version is ${quoteText(SUPPORTED_VERSIONS.join(','))}`,
    );
  if (!isPluginResource(name))
    throw new Error(`the ResourceName ${quoteText(name.slice(0, MAX_SHOWN_CHARS))} is invalid`);
}
