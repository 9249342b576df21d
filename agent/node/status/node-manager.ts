/**
 * The node manager: registers the node, keeps its status (on change, and every few minutes besides) and renews its lease. It
 * is what the rest of the agent asks about its own node.
 */
import type { Logger } from '../../../api/component/logger.ts';
import { Backoff, backoffDelay } from '../../../api/machinery/backoff.ts';
import type { Client } from '../../../api/machinery/client.ts';
import { type Clock, formatMicroTime, formatTime, whenAborted } from '../../../api/machinery/clock.ts';
import { Informers } from '../../../api/machinery/informer.ts';
import { leases, nodes } from '../../../api/machinery/resources.ts';
import { WakeableLoop } from '../../../api/machinery/wakeable-loop.ts';
import { jsonEqual } from '../../../api/meta/json-equality.ts';
import type { JsonValue, KubeObject } from '../../../api/meta/object.ts';
import { isAlreadyExists, isConflict, isNotFound } from '../../../api/meta/status-error.ts';
import type { NodeConditionSource, NodeInfo, NodeObject } from '../../model/core-types.ts';
import type { Runtime, RuntimeFeatures, RuntimeInfo } from '../../runtime/runtime.ts';
import { filesystemSpace, hostAddresses, hostCapacity, maxPids, systemInfo } from '../../host/host-facts.ts';
import { type NodeFacts, statusChanges, statusPatch, withStatus } from './node-object.ts';
import type { DeviceCapacity } from '../../resources/managers/devicemanager/plugin-resources.ts';
import type { Capacity } from './reserved.ts';

export interface NodeManagerOptions {
  readonly client: Client | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly runtime: Runtime;
  readonly nodeName: string;
  readonly rootDirectory: string;
  readonly version: string;
  readonly serverPort: number;
  /** `--node-ip`; empty: found, `::` or `0.0.0.0` alone: found, of that family first. */
  readonly nodeIps: readonly string[];
  readonly registerNode: boolean;
  readonly registerSchedulable: boolean;
  readonly labels: Readonly<Record<string, string>>;
  readonly taints: readonly { readonly key: string; readonly value?: string; readonly effect: string }[];
  readonly providerId: string;
  /** Of the node when it is registered. */
  readonly annotations: Readonly<Record<string, string>>;
  readonly maxPods: number;
  readonly podsPerCore: number;
  readonly maxImages: number;
  /** What of a capacity pods do not get, by resource: cores, bytes. */
  readonly reserved: (capacity: Capacity) => Readonly<Record<string, number>>;
  /** `--local-storage-capacity-isolation`: how much ephemeral storage there is is told. */
  readonly tellStorage: boolean;
  /** What device plugins have. */
  readonly deviceCapacity: () => DeviceCapacity;
  readonly declaredFeatures: readonly string[];
  /** Attached volumes that pods of the node use: nobody may detach them. */
  readonly volumesInUse: () => readonly string[];
  /** How often the status is looked at, and how often it is sent though nothing changed. */
  readonly statusIntervalMs: number;
  readonly reportIntervalMs: number;
  readonly leaseDurationSeconds: number;
  /** `--pod-cidr`, where there is no API server to say. */
  readonly podCidr: string;
  /** 0 to 1. */
  readonly random: () => number;
  /** Instead of those of this host. */
  readonly addresses?: () => readonly string[];
  /** The steps of the node's start, each possibly more than once. */
  readonly onStep?: (step: 'registering' | 'registered' | 'ready') => void;
  /** A condition came or went: `NodeReady`, `NodeHasDiskPressure`, …; told as an event. */
  readonly onTransition?: (reason: string, message: string) => void;
}

const HOST_IPS_MS = 10_000;
const LEASE_NAMESPACE = 'kube-node-lease';
const ATTACH_DETACH = 'volumes.kubernetes.io/controller-managed-attach-detach';

const LEASE_RETRY = { firstMs: 400, longestMs: 12_800 };

export class NodeManager implements NodeInfo {
  readonly name: string;
  readonly #options: NodeManagerOptions;
  readonly #cidrListeners: ((cidrs: readonly string[]) => void)[] = [];
  #source: NodeConditionSource | undefined;
  #node: NodeObject;
  #runtimeInfo: RuntimeInfo | undefined;
  #features: RuntimeFeatures = { handlers: [], supplementalGroupsPolicy: false };
  #cidrs: readonly string[];
  #hostIps: { readonly atMs: number; readonly ips: readonly string[] } | undefined;
  #sentAtMs = 0;
  /** What the API server left out of the last status: an older one has not all fields. Not sent again for its own sake. */
  #untaken: Readonly<Record<string, JsonValue>> = {};
  #registered = false;
  readonly #loop: WakeableLoop;

  constructor(options: NodeManagerOptions) {
    this.#options = options;
    this.#loop = new WakeableLoop({
      clock: options.clock,
      backoff: new Backoff({ firstMs: 400, longestMs: 7_000, jitter: 0.1, random: options.random }),
      onError: (error, failures) => {
        if (failures !== 1 && failures % 10 !== 0) return;
        options.logger.warn(
          { node: options.nodeName, err: error instanceof Error ? error.message : error },
          'The status of the node could not be brought up to date; it is tried again',
        );
      },
    });
    this.name = options.nodeName;
    this.#cidrs = options.podCidr === '' ? [] : options.podCidr.split(',');
    this.#node = this.#initialNode();
  }

  /** The other parts of the agent, which need this one first. */
  connect(source: NodeConditionSource): void {
    this.#source = source;
  }

  node(): NodeObject {
    return this.#node;
  }

  /** The node has been registered with the API server (its uid is known). */
  get registered(): boolean {
    return this.#registered;
  }

  /** As of the last look at the node's status: reading them costs by the pods, each of which has an interface on the host. */
  hostIps(): readonly string[] {
    const known = this.#hostIps;
    if (known !== undefined && this.#options.clock.monotonic() - known.atMs < HOST_IPS_MS) return known.ips;
    return this.#lookForHostIps();
  }

  #lookForHostIps(): readonly string[] {
    const { clock, nodeIps, addresses = hostAddresses } = this.#options;
    const ips = chooseAddresses(nodeIps, addresses);
    this.#hostIps = { atMs: clock.monotonic(), ips };
    return ips;
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

  /** As it was before the agent's start: its labels and ranges hold until the API server tells newer ones. */
  restore(last: NodeObject): void {
    if (!this.#registered) this.#take(last);
  }

  /** Something that the status tells has changed: look soon. */
  changed(): void {
    this.#loop.wake();
  }

  /** Looks at the host and the runtime once: `node` then says what pods may use. */
  async prepare(): Promise<void> {
    await this.#readRuntime();
    this.#node = withStatus(this.#node, await this.#facts());
  }

  async run(signal: AbortSignal): Promise<void> {
    const { client } = this.#options;
    await this.prepare();
    if (client === undefined) {
      await this.#loop.run(signal, async () => {
        await this.prepare();
        return this.#options.statusIntervalMs;
      });
      return;
    }
    await Promise.all([
      this.#keepStatus(client, signal),
      this.#keepLease(client, signal),
      this.#follow(client, signal),
    ]);
  }

  /** Follows the node's own object: its pod ranges, labels and taints as others set them. */
  async #follow(client: Client, signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options;
    const informers = new Informers({ client, clock, logger });
    const take = (node: unknown): void => this.#take(node as NodeObject);
    informers
      .for(nodes, { fieldSelector: `metadata.name=${this.name}` })
      .addHandler({ add: take, update: (_previous, node) => take(node) });
    await whenAborted(signal);
    await informers.close();
  }

  async #keepStatus(client: Client, signal: AbortSignal): Promise<void> {
    await this.#loop.run(signal, async () => {
      if (!this.#registered) await this.#register(client);
      await this.#updateStatus(client);
      return this.#options.statusIntervalMs * (0.95 + 0.1 * this.#options.random());
    });
  }

  #initialNode(): NodeObject {
    const { labels, taints, providerId, registerSchedulable, nodeName } = this.#options;
    const system = systemInfo();
    const spec = {
      ...(providerId === '' ? {} : { providerID: providerId }),
      ...(registerSchedulable && taints.length === 0 ? {} : { taints: [...taints] }),
      ...(registerSchedulable ? {} : { unschedulable: true }),
    };
    return {
      apiVersion: 'v1',
      kind: 'Node',
      metadata: {
        name: nodeName,
        labels: {
          'kubernetes.io/hostname': nodeName,
          'kubernetes.io/os': system.operatingSystem,
          'kubernetes.io/arch': system.architecture,
          'beta.kubernetes.io/os': system.operatingSystem,
          'beta.kubernetes.io/arch': system.architecture,
          ...labels,
        },
        annotations: { ...this.#options.annotations },
      },
      spec,
    } as unknown as NodeObject;
  }

  async #readRuntime(): Promise<void> {
    try {
      this.#runtimeInfo = await this.#options.runtime.info();
      this.#features = await this.#options.runtime.features();
    } catch (error) {
      this.#options.logger.debug({ err: error }, 'the container runtime does not answer');
    }
  }

  async #facts(): Promise<NodeFacts> {
    const options = this.#options;
    if (this.#runtimeInfo === undefined) await this.#readRuntime();
    const source = this.#source;
    const capacity = hostCapacity();
    const rootSpace = options.tellStorage
      ? await filesystemSpace(options.rootDirectory).catch(() => undefined)
      : undefined;
    return {
      name: this.name,
      hostname: this.name,
      addresses: this.#lookForHostIps(),
      system: systemInfo(),
      capacity,
      rootSpace,
      runtime: this.#runtimeInfo,
      features: this.#features,
      images: (await source?.images().catch(() => [])) ?? [],
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
      serverPort: options.serverPort,
      runtimeErrors: source?.runtimeErrors() ?? [],
      networkErrors: source?.networkErrors() ?? [],
      pressure: (kind) => source?.pressure(kind) ?? false,
      deviceCapacity: options.deviceCapacity(),
      declaredFeatures: options.declaredFeatures,
      volumesInUse: options.volumesInUse(),
      now: formatTime(options.clock.now()),
    };
  }

  /** Creates the node, or takes over the one that is there: labels and annotations of ours are set, those of others stay. */
  async #register(client: Client): Promise<void> {
    this.#options.onStep?.('registering');
    let existing: NodeObject | undefined;
    try {
      existing = (await client.get(nodes, '', this.name)) as unknown as NodeObject;
    } catch (error) {
      if (!isNotFound(error) || !this.#options.registerNode) throw error;
    }
    if (existing === undefined) {
      const wanted = withStatus(this.#initialNode(), await this.#facts());
      try {
        const created = (await client.create(nodes, '', wanted as unknown as KubeObject)) as unknown as NodeObject;
        this.#options.logger.info({ node: this.name }, 'registered the node');
        this.#take(created);
        for (const reason of transitions(this.#initialNode(), created))
          this.#options.onTransition?.(reason, `Node ${this.name} status is now: ${reason}`);
      } catch (error) {
        if (!isAlreadyExists(error)) throw error;
        return this.#register(client);
      }
    } else {
      const wanted = this.#initialNode().metadata.labels ?? {};
      const found = existing.metadata.labels ?? {};
      const missing = Object.entries(wanted).filter(([key, value]) => found[key] !== value);
      const annotations = this.#annotationChanges(existing.metadata.annotations ?? {});
      if ((missing.length > 0 || annotations.length > 0) && this.#options.registerNode) {
        existing = (await client.patch(nodes, '', this.name, 'strategic', {
          metadata: {
            ...(missing.length === 0 ? {} : { labels: Object.fromEntries(missing) }),
            ...(annotations.length === 0 ? {} : { annotations: Object.fromEntries(annotations) }),
          },
        })) as unknown as NodeObject;
      }
      this.#take(existing);
    }
    this.#registered = true;
    this.#options.onStep?.('registered');
  }

  /** What the agent says of itself in annotations; null takes away what it says no more. */
  #annotationChanges(found: Readonly<Record<string, string>>): readonly (readonly [string, string | null])[] {
    const { annotations } = this.#options;
    const changed = Object.entries(annotations).filter(([key, value]) => found[key] !== value);
    const isStale = annotations[ATTACH_DETACH] === undefined && found[ATTACH_DETACH] !== undefined;
    return [...changed, ...(isStale ? [[ATTACH_DETACH, null] as const] : [])];
  }

  #take(node: NodeObject): void {
    this.#node = node;
    if (node.status?.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True') === true)
      this.#options.onStep?.('ready');
    const spec = node.spec as { podCIDR?: string; podCIDRs?: string[] } | undefined;
    const cidrs = spec?.podCIDRs ?? (spec?.podCIDR === undefined ? [] : [spec.podCIDR]);
    if (cidrs.length === 0 || jsonEqual(cidrs, this.#cidrs as string[])) return;
    this.#cidrs = cidrs;
    for (const listener of this.#cidrListeners) listener(cidrs);
  }

  async #updateStatus(client: Client): Promise<void> {
    const { clock, reportIntervalMs } = this.#options;
    const due = clock.now() - this.#sentAtMs >= reportIntervalMs;
    await this.#readRuntime();
    const facts = await this.#facts();
    if (!due && !this.#hasNews(this.#node, facts) && this.#cidrs.length > 0) return;
    let current: NodeObject;
    try {
      current = (await client.get(nodes, '', this.name)) as unknown as NodeObject;
    } catch (error) {
      // The node was deleted under us: it is registered anew.
      if (isNotFound(error)) this.#registered = false;
      throw error;
    }
    this.#take(current);
    if (!due && !this.#hasNews(current, facts)) return;
    const next = withStatus(current, facts);
    const patch = { metadata: { uid: current.metadata.uid }, status: statusPatch(current.status, next.status) };
    const answer = await client.patch(nodes, '', this.name, 'strategic', patch, { subresource: 'status' });
    const taken = answer as unknown as NodeObject;
    this.#take(taken);
    this.#untaken = statusChanges(taken.status, withStatus(taken, facts).status);
    this.#sentAtMs = clock.now();
    for (const reason of transitions(current, next))
      this.#options.onTransition?.(reason, `Node ${this.name} status is now: ${reason}`);
  }

  /** Something is to be told that the API server would take. */
  #hasNews(node: NodeObject, facts: NodeFacts): boolean {
    return !jsonEqual(statusChanges(node.status, withStatus(node, facts).status), this.#untaken);
  }

  async #keepLease(client: Client, signal: AbortSignal): Promise<void> {
    const { clock, leaseDurationSeconds, random, logger } = this.#options;
    const intervalMs = leaseDurationSeconds * 1000 * 0.25;
    let lease: KubeObject | undefined;
    let failures = 0;
    while (!signal.aborted) {
      let delayMs = intervalMs * (1 + 0.04 * random());
      if (this.#registered) {
        try {
          lease = await this.#renew(client, lease);
          failures = 0;
        } catch (error) {
          lease = undefined;
          failures += 1;
          delayMs = Math.min(delayMs, backoffDelay(failures, LEASE_RETRY));
          if (failures === 5 && !signal.aborted)
            logger.warn(
              { err: error instanceof Error ? error.message : error },
              'the lease of the node could not be renewed; trying again',
            );
        }
      } else {
        delayMs = 100;
      }
      await clock.sleep(delayMs, signal).catch(() => undefined);
    }
  }

  async #renew(client: Client, known: KubeObject | undefined): Promise<KubeObject> {
    const { clock, leaseDurationSeconds } = this.#options;
    const spec = { holderIdentity: this.name, leaseDurationSeconds, renewTime: formatMicroTime(clock.now()) };
    if (known !== undefined) {
      try {
        return await client.update(leases, { ...known, spec });
      } catch (error) {
        if (!isConflict(error) && !isNotFound(error)) throw error;
      }
    }
    try {
      const current = await client.get(leases, LEASE_NAMESPACE, this.name);
      return await client.update(leases, { ...current, spec });
    } catch (error) {
      if (!isNotFound(error)) throw error;
    }
    const uid = this.#node.metadata.uid;
    return client.create(leases, LEASE_NAMESPACE, {
      apiVersion: 'coordination.k8s.io/v1',
      kind: 'Lease',
      metadata: {
        name: this.name,
        namespace: LEASE_NAMESPACE,
        ...(uid === undefined ? {} : { ownerReferences: [{ apiVersion: 'v1', kind: 'Node', name: this.name, uid }] }),
      },
      spec,
    });
  }
}

const TRANSITIONS: Readonly<Record<string, readonly [whenTrue: string, otherwise: string]>> = {
  MemoryPressure: ['NodeHasInsufficientMemory', 'NodeHasSufficientMemory'],
  DiskPressure: ['NodeHasDiskPressure', 'NodeHasNoDiskPressure'],
  PIDPressure: ['NodeHasInsufficientPID', 'NodeHasSufficientPID'],
  Ready: ['NodeReady', 'NodeNotReady'],
};

/** The conditions that changed, as the reasons of events. Pure. */
export function transitions(before: NodeObject, after: NodeObject): readonly string[] {
  return (after.status?.conditions ?? []).flatMap(({ type, status }) => {
    const was = before.status?.conditions?.find((condition) => condition.type === type)?.status;
    const reasons = TRANSITIONS[type];
    if (reasons === undefined || was === status) return [];
    return [status === 'True' ? reasons[0] : reasons[1]];
  });
}

/** At most one address of each family. `::` or `0.0.0.0` alone says which family comes first. Pure. */
export function chooseAddresses(wanted: readonly string[], found: () => readonly string[]): readonly string[] {
  const isSix = (address: string): boolean => address.includes(':');
  const [only] = wanted;
  const preference = wanted.length === 1 && (only === '::' || only === '0.0.0.0') ? only : undefined;
  const given = preference === undefined ? wanted : [];
  // An address that was given stands alone: the other family is told only where it is asked for.
  if (given.length > 0) {
    const [first = ''] = given;
    const other = given.find((address) => isSix(address) !== isSix(first));
    return [first, ...(other === undefined ? [] : [other])];
  }
  const all = found();
  const ordered =
    preference === undefined
      ? all
      : all.toSorted((a, b) => Number(isSix(a) !== isSix(preference)) - Number(isSix(b) !== isSix(preference)));
  const [first] = ordered;
  const other = preference === undefined ? undefined : ordered.find((address) => isSix(address) !== isSix(first ?? ''));
  return [...(first === undefined ? [] : [first]), ...(other === undefined ? [] : [other])];
}
