/**
 * The node manager registers the node, updates its status on changes and periodically, and renews its lease.
 */
import type { Logger } from '../../../api/component/logger.ts';
import { Backoff } from '../../../api/machinery/backoff.ts';
import type { Client } from '../../../api/client/client.ts';
import { background } from '../../../api/machinery/background.ts';
import { type Clock, formatTime, pause, whenAborted } from '../../../api/machinery/clock.ts';
import { remoteInformers } from '../../../api/client/remote-informers.ts';
import { nodes } from '../../../api/client/resources.ts';
import { WakeableLoop } from '../../../api/machinery/wakeable-loop.ts';
import { formatCidr, parseCidr } from '../../../api/meta/ip-addresses.ts';
import { jsonEqual } from '../../../api/meta/json-equality.ts';
import type { JsonValue } from '../../../api/meta/object.ts';
import { isNotFound } from '../../../api/meta/status-error.ts';
import type { NodeObject } from '../../base/model/node.ts';
import type { NodeInfo } from '../../pods/workers/node-info.ts';
import type { ImageInfo, Runtime, RuntimeFeatures, RuntimeInfo } from '../../runtime/runtime.ts';
import { filesystemSpace, hostCapacity, maxPids, systemInfo } from '../../host/host-facts.ts';
import { annotationChanges, type NodeFacts, statusChanges, statusPatch, withStatus } from './node-object.ts';
import type { DeviceCapacity } from '../../resources/managers/devicemanager/plugin-resources.ts';
import { NodeAddresses } from './node-addresses.ts';
import { keepNodeLease } from './node-lease.ts';
import { initialNode, type NodeIdentity, registerWithApi } from './node-registration.ts';
import type { Capacity } from './reserved.ts';
import { statusIsNow, type Transition, transitions } from './transitions.ts';

/** What the node manager needs. Without a client the node exists in this process only. */
export interface NodeManagerOptions {
  readonly client: Client | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly runtime: Runtime;
  readonly identity: NodeIdentity;
  readonly rootDirectory: string;
  readonly version: string;
  /** The value of `--node-ip`. */
  readonly nodeIps: readonly string[];
  readonly registerNode: boolean;
  readonly maxPods: number;
  readonly podsPerCore: number;
  readonly maxImages: number;
  /** The part of a capacity that pods do not get, by resource, in cores, bytes and processes. */
  readonly reserved: (capacity: Capacity) => Readonly<Record<string, number>>;
  /** `--local-storage-capacity-isolation`: the status has the capacity of ephemeral storage. */
  readonly reportStorage: boolean;
  readonly declaredFeatures: readonly string[];
  /** How often the status is computed, and how often it is sent even if nothing changed. */
  readonly statusIntervalMs: number;
  readonly reportIntervalMs: number;
  readonly leaseDurationSeconds: number;
  /** `--pod-cidr`: the pod CIDRs of a node without an API server. */
  readonly podCidr: string;
  /** Returns a number from 0 to below 1. */
  readonly random: () => number;
  /** Replaces the addresses of this host. */
  readonly addresses?: () => readonly string[];
  /** Called at the steps of the node's start; a step can occur more than once. */
  readonly onStep?: (step: 'registering' | 'registered' | 'ready') => void;
  /** Called with each event about the node: at the start, and when a condition or the cordon changes. */
  readonly onTransition?: (transition: Transition) => void;
  /** Called with the node when it is restored, and each time that the API server has sent it. */
  readonly onRead?: (node: NodeObject) => void;
  /** The host has cgroup v1. An event warns of that at each start. */
  readonly hasCgroupV1?: boolean;
}

/** How long the first status waits for the first reading of the runtime. */
const FIRST_READING_MS = 10_000;
/** The first failure to update the status is logged, and then each that completes this number. */
const FAILURES_PER_WARNING = 10;

/** The kubelet's warning, which names the page with the reasons. */
const CGROUP_V1 =
  'cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. Please migrate to cgroup v2. More information at https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1';

/** The state of the agent's other parts, as far as the node's status shows it. */
export interface NodeStatusSource {
  /** Returns why the runtime is unhealthy, as in the message of the Ready condition (`PLEG is not healthy: …`). */
  runtimeErrors(): readonly string[];
  /** Resolves when the runtime has been read once. Before that, it counts as unhealthy. */
  runtimeRead(): Promise<void>;
  networkErrors(): readonly string[];
  pressure(kind: 'memory' | 'disk' | 'pid'): boolean;
  /** The devices of plugins. */
  deviceCapacity(): DeviceCapacity;
  /** Returns the attached volumes that pods of the node use, and that must not be detached. */
  volumesInUse(): readonly string[];
  /** Returns the port on which the agent's server listens. It differs from `--port` if that is 0. */
  serverPort(): number;
  /** Returns the hashes of the public keys of the server's certificate. Empty if the server is off. */
  servingKeys(): readonly string[];
  /** Resolves to the ports on which processes of the host listen, such as `TCP 22`. */
  listeningPorts(): Promise<readonly string[]>;
}

/** Owns the status of this agent's Node object, the annotations with facts of the host, and the lease. */
export class NodeManager implements NodeInfo {
  readonly name: string;
  readonly #options: NodeManagerOptions;
  readonly #cidrListeners: ((cidrs: readonly string[]) => void)[] = [];
  readonly #addresses: NodeAddresses;
  #node: NodeObject;
  #runtimeInfo: RuntimeInfo | undefined;
  #features: RuntimeFeatures = { handlers: [], supplementalGroupsPolicy: false };
  #cidrs: readonly string[];
  #sentAtMs = 0;
  /**
   * Changes that the API server dropped from the last status, because its version lacks the fields. They alone cause no update.
   */
  #droppedChanges: Readonly<Record<string, JsonValue>> = {};
  #registered = false;
  readonly #synced = Promise.withResolvers<void>();
  #isCordoned = false;
  readonly #loop: WakeableLoop;

  constructor(options: NodeManagerOptions) {
    this.#options = options;
    this.#loop = new WakeableLoop({
      clock: options.clock,
      backoff: new Backoff({ firstMs: 400, longestMs: 7_000, jitter: 0.1, random: options.random }),
      onError: (error, failures) => {
        if (failures !== 1 && failures % FAILURES_PER_WARNING !== 0) return;
        options.logger.warn(
          { node: options.identity.nodeName, err: error },
          'Cannot update the status of the node, retrying',
        );
      },
    });
    this.name = options.identity.nodeName;
    this.#cidrs = options.podCidr === '' ? [] : options.podCidr.split(',');
    this.#node = initialNode(options.identity);
    this.#addresses = new NodeAddresses({
      clock: options.clock,
      configured: options.nodeIps,
      ...(options.addresses === undefined ? {} : { found: options.addresses }),
    });
  }

  node(): NodeObject {
    return this.#node;
  }

  /** The node has been registered with the API server (its uid is known). */
  get registered(): boolean {
    return this.#registered;
  }

  /** Resolves when the API server has sent the node, or has no node of this name. */
  synced(): Promise<void> {
    return this.#synced.promise;
  }

  hostIps(): readonly string[] {
    return this.#addresses.recent();
  }

  allocatable(): Readonly<Record<string, string>> {
    return this.#node.status?.allocatable ?? {};
  }

  podCidrs(): readonly string[] {
    return this.#cidrs;
  }

  onPodCidrs(listener: (cidrs: readonly string[]) => void): void {
    this.#cidrListeners.push(listener);
    if (this.#cidrs.length > 0) listener(this.#cidrs);
  }

  /** Takes the node as it was before the agent's start. It holds until the API server sends the node. */
  restore(last: NodeObject): void {
    if (!this.#registered) this.#take(last);
  }

  /** Updates the status soon, because something that it shows has changed. */
  changed(): void {
    this.#loop.wake();
  }

  /** Reads the host and the runtime once: afterwards `node` has the resources that pods may use. */
  async prepare(source: NodeStatusSource): Promise<void> {
    await this.#readRuntime();
    this.#node = withStatus(this.#node, await this.#facts(source));
  }

  /** Registers the node and keeps its status and lease until the signal aborts. Follows `prepare`. */
  async run(source: NodeStatusSource, signal: AbortSignal): Promise<void> {
    const { client, clock, logger, leaseDurationSeconds, random } = this.#options;
    this.#options.onTransition?.({ type: 'Normal', reason: 'Starting', message: 'Starting kubelet.' });
    if (this.#options.hasCgroupV1 === true)
      this.#options.onTransition?.({ type: 'Warning', reason: 'CgroupV1', message: CGROUP_V1 });
    if (client === undefined) return this.#keepLocalStatus(source, signal);
    const lease = {
      client,
      clock,
      logger,
      nodeName: this.name,
      durationSeconds: leaseDurationSeconds,
      nodeUid: () => (this.#registered ? this.#node.metadata.uid : undefined),
      random,
    };
    await Promise.all([
      this.#keepStatus(client, source, signal),
      keepNodeLease(lease, signal),
      this.#follow(client, signal),
    ]);
  }

  /** Keeps the status without an API server, where it serves only the agent's own parts. */
  async #keepLocalStatus(source: NodeStatusSource, signal: AbortSignal): Promise<void> {
    // `prepare` has computed the first status.
    let isFirst = true;
    await this.#loop.run(signal, async () => {
      if (!isFirst) await this.prepare(source);
      isFirst = false;
      return this.#options.statusIntervalMs;
    });
  }

  /** Watches the node's own object, because others set its pod CIDRs, labels and taints. */
  async #follow(client: Client, signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options;
    const informers = remoteInformers({ client, clock, logger });
    const take = (node: unknown): void => this.#take(node as NodeObject);
    const informer = informers.for(nodes, { fieldSelector: `metadata.name=${this.name}` });
    informer.addHandler({ add: take, update: (_previous, node) => take(node) });
    background(
      informer.synced(signal).then(() => this.#synced.resolve()),
      { logger, what: 'Reading the node', signal },
    );
    await whenAborted(signal);
    await informers.close();
  }

  async #keepStatus(client: Client, source: NodeStatusSource, signal: AbortSignal): Promise<void> {
    let isRead = false;
    const read = source.runtimeRead().then(() => this.changed());
    await this.#loop.run(signal, async () => {
      if (!this.#registered) await this.#register(client, source);
      // Before the runtime is read, the node would be NotReady, and services would stop sending traffic to its pods.
      if (!isRead) await Promise.race([read, pause(this.#options.clock, FIRST_READING_MS, signal)]);
      isRead = true;
      await this.#updateStatus(client, source);
      return this.#options.statusIntervalMs * (0.95 + 0.1 * this.#options.random());
    });
  }

  async #readRuntime(): Promise<void> {
    try {
      this.#runtimeInfo = await this.#options.runtime.info();
      this.#features = await this.#options.runtime.features();
    } catch (error) {
      this.#options.logger.debug({ err: error }, 'The container runtime does not respond');
    }
  }

  async #images(): Promise<readonly ImageInfo[]> {
    try {
      return await this.#options.runtime.listImages();
    } catch (error) {
      this.#options.logger.debug({ err: error }, 'Cannot list the images for the status of the node');
      return [];
    }
  }

  async #facts(source: NodeStatusSource): Promise<NodeFacts> {
    const options = this.#options;
    if (this.#runtimeInfo === undefined) await this.#readRuntime();
    const capacity = hostCapacity();
    const rootSpace = options.reportStorage
      ? // If the space cannot be read, the node reports no storage until the next status.
        await filesystemSpace(options.rootDirectory).catch(() => undefined)
      : undefined;
    return {
      name: this.name,
      hostname: this.name,
      addresses: this.#addresses.read(),
      system: systemInfo(),
      capacity,
      rootSpace,
      runtime: this.#runtimeInfo,
      features: this.#features,
      images: await this.#images(),
      maxImages: options.maxImages,
      version: options.version,
      maxPods: options.maxPods,
      podsPerCore: options.podsPerCore,
      reserved: options.reserved({
        cpus: capacity.cpus,
        memoryBytes: capacity.memoryBytes,
        storageBytes: rootSpace?.capacityBytes ?? 0,
        pids: maxPids(),
      }),
      serverPort: source.serverPort(),
      servingKeys: source.servingKeys(),
      listeningPorts: await source.listeningPorts(),
      runtimeErrors: source.runtimeErrors(),
      networkErrors: source.networkErrors(),
      pressure: (kind) => source.pressure(kind),
      deviceCapacity: source.deviceCapacity(),
      declaredFeatures: options.declaredFeatures,
      volumesInUse: source.volumesInUse(),
      now: formatTime(options.clock.now()),
    };
  }

  async #register(client: Client, source: NodeStatusSource): Promise<void> {
    const { identity, registerNode, onStep, logger } = this.#options;
    onStep?.('registering');
    const { node, isNew } = await registerWithApi(client, identity, {
      registerNode,
      firstStatus: async (initial) => withStatus(initial, await this.#facts(source)),
    });
    if (isNew) logger.info({ node: this.name }, 'Registered the node');
    this.#take(node);
    if (isNew) this.#reportTransitions(initialNode(identity), node);
    this.#registered = true;
    onStep?.('registered');
  }

  #take(node: NodeObject): void {
    if (node.metadata.uid !== undefined) this.#followCordon(node);
    this.#node = node;
    this.#options.onRead?.(node);
    if (node.status?.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True') === true)
      this.#options.onStep?.('ready');
    const cidrs = podRanges(node);
    if (cidrs.length === 0 || jsonEqual(cidrs, this.#cidrs as string[])) return;
    this.#cidrs = cidrs;
    for (const listener of this.#cidrListeners) listener(cidrs);
  }

  /** Sends the status if it has changed or a report is due. Throws the errors of the API. */
  async #updateStatus(client: Client, source: NodeStatusSource): Promise<void> {
    const { clock, reportIntervalMs } = this.#options;
    const due = clock.now() - this.#sentAtMs >= reportIntervalMs;
    await this.#readRuntime();
    const facts = await this.#facts(source);
    // A node without pod CIDRs is read in any case, because they may have been assigned meanwhile.
    if (!due && !this.#hasChanged(this.#node, facts) && this.#cidrs.length > 0) return;
    let current: NodeObject;
    try {
      current = (await client.get(nodes, '', this.name)) as unknown as NodeObject;
    } catch (error) {
      // The Node was deleted, so the next turn registers it again.
      if (isNotFound(error)) this.#registered = false;
      throw error;
    }
    this.#take(current);
    if (!due && !this.#hasChanged(current, facts)) return;
    const next = withStatus(current, facts);
    const annotations = annotationChanges(current, facts);
    const patch = {
      metadata: { uid: current.metadata.uid, ...(annotations === undefined ? {} : { annotations }) },
      status: statusPatch(current.status, next.status),
    };
    const answer = await client.patch(nodes, '', this.name, { type: 'strategic', body: patch, subresource: 'status' });
    const updated = answer as unknown as NodeObject;
    this.#take(updated);
    this.#droppedChanges = statusChanges(updated.status, withStatus(updated, facts).status);
    this.#sentAtMs = clock.now();
    this.#reportTransitions(current, next);
  }

  /** Reports when the node is cordoned or uncordoned. */
  #followCordon(node: NodeObject): void {
    const isCordoned = node.spec?.unschedulable === true;
    if (isCordoned === this.#isCordoned) return;
    this.#isCordoned = isCordoned;
    this.#options.onTransition?.(statusIsNow(this.name, isCordoned ? 'NodeNotSchedulable' : 'NodeSchedulable'));
  }

  #reportTransitions(before: NodeObject, after: NodeObject): void {
    for (const transition of transitions(before, after)) this.#options.onTransition?.(transition);
  }

  /** Whether the status has changes that the API server would store. */
  #hasChanged(node: NodeObject, facts: NodeFacts): boolean {
    if (annotationChanges(node, facts) !== undefined) return true;
    return !jsonEqual(statusChanges(node.status, withStatus(node, facts).status), this.#droppedChanges);
  }
}

/**
 * Returns the pod ranges of a node in their canonical form, because they become part of packet rules: API servers also accept
 * leading zeros and bits after the prefix. A text that is no CIDR is left out.
 */
function podRanges({ spec }: NodeObject): string[] {
  const { podCIDR, podCIDRs } = (spec ?? {}) as { readonly podCIDR?: string; readonly podCIDRs?: readonly string[] };
  const ranges = podCIDRs ?? (podCIDR === undefined ? [] : [podCIDR]);
  return ranges.flatMap((text) => parseCidr(text) ?? []).map(formatCidr);
}
