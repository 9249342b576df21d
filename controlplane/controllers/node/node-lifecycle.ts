/** Detects nodes that stop reporting, updates their conditions and their pods' conditions, and taints them. */
import { ownMember } from '../../../api/meta/own-member.ts';
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import { isNotFound } from '../../../api/meta/status-error.ts';
import { formatTime } from '../../../api/machinery/clock.ts';
import { referenceTo } from '../../../api/client/event-recorder.ts';
import type { Informer } from '../../../api/client/informer.ts';
import type { Lease, Node, Pod } from '../../../api/kinds/kinds.ts';
import { leases, nodes, pods } from '../../../api/client/resources.ts';
import { RateLimiter } from '../../../api/machinery/rate-limiter.ts';
import { ReconcileLoop, type ControllerEnvironment, type RunController } from '../controller.ts';
import { podCondition } from '../pod-state.ts';
import { conditionsOfSilent, nodeCondition, wantedTaints, ZoneHealth, zoneOf, type ZoneState } from './node-health.ts';
import {
  ARCH_LABEL,
  BETA_ARCH_LABEL,
  BETA_OS_LABEL,
  OS_LABEL,
  NOT_READY_TAINT,
  UNREACHABLE_TAINT,
} from '../../../api/meta/well-known-labels.ts';
import { NODE_LEASE_NAMESPACE } from '../../../api/meta/system-namespaces.ts';

/** The beta labels that nodes still have, each with the stable label whose value it gets. */
const BETA_LABELS = [
  [BETA_OS_LABEL, OS_LABEL],
  [BETA_ARCH_LABEL, ARCH_LABEL],
] as const;
const BY_NODE = 'node-name';

/** Adds the index that `podsOn` reads; must be called before the informer starts. */
export function indexByNode(informer: Informer<Pod>): void {
  informer.addIndex(BY_NODE, (pod) => ((pod.spec?.nodeName ?? '') === '' ? [] : [pod.spec?.nodeName ?? '']));
}

/** Returns all pods that are bound to the node, finished ones included. */
export function podsOn(informer: Informer<Pod>, node: string): Pod[] {
  return informer.byIndex(BY_NODE, node);
}

/** Writes the taints and conditions of nodes. The controller of `taint-eviction.ts` deletes the pods. */
export const runNodeLifecycle: RunController = (environment, signal) => new NodeLifecycle(environment).run(signal);

class NodeLifecycle {
  readonly #environment: ControllerEnvironment;
  readonly #loop: ReconcileLoop;
  readonly #nodes: Informer<Node>;
  readonly #leases: Informer<Lease>;
  readonly #pods: Informer<Pod>;
  /** The time of the node's last heartbeat by the clock of this host, because clocks of nodes are not trusted. */
  readonly #heartbeats = new Map<string, { readonly heartbeat: string; readonly atMs: number }>();
  readonly #zones: ZoneHealth;
  readonly #limiters = new Map<string, { readonly state: ZoneState; readonly limiter: RateLimiter | undefined }>();

  constructor(environment: ControllerEnvironment) {
    this.#environment = environment;
    this.#zones = new ZoneHealth(environment.options.unhealthyZoneThreshold);
    this.#loop = new ReconcileLoop(environment, {
      workers: 8,
      maxDelayMs: 10_000,
      reconcile: (name) => this.#reconcile(name),
    });
    this.#nodes = environment.informers.for(nodes);
    this.#leases = environment.informers.for(leases, { namespace: NODE_LEASE_NAMESPACE });
    this.#pods = environment.informers.for(pods);
    indexByNode(this.#pods);
  }

  run(signal: AbortSignal): Promise<void> {
    this.#nodes.addHandler({
      add: (node) => {
        this.#recordEvent(node, 'RegisteredNode', `Registered Node ${node.metadata.name} in Controller`);
        this.#nodeChanged(node);
      },
      update: (_, node) => this.#nodeChanged(node),
      delete: (node) => {
        const { name = '' } = node.metadata;
        this.#recordEvent(node, 'RemovingNode', `Removing Node ${name} from Controller`);
        this.#heartbeats.delete(name);
        if (this.#zones.forget(name)) this.#zonesChanged();
      },
    });
    const renewed = (lease: Lease): void => this.#observeHeartbeat(lease.metadata.name ?? '');
    this.#leases.addHandler({ add: renewed, update: (_, lease) => renewed(lease) });
    return this.#loop.run(signal, this.#nodes, this.#leases, this.#pods);
  }

  #recordEvent(node: Node, reason: string, text: string): void {
    const { name = '', uid = '' } = node.metadata;
    // kube-controller-manager names no version of the node.
    const reference = { apiVersion: 'v1', kind: 'Node', name, uid };
    this.#environment.recorder.event(reference, 'Normal', reason, `Node ${name} event: ${text}`);
  }

  #nodeChanged(node: Node): void {
    if (this.#zones.observe(node)) this.#zonesChanged();
    this.#observeHeartbeat(node.metadata.name ?? '');
    this.#loop.enqueue(node);
  }

  /** Remembers when the heartbeat of the node, its Ready condition or its Lease, has changed last. */
  #observeHeartbeat(name: string): void {
    const readyTime = nodeCondition(this.#nodes.get('', name) ?? emptyNode, 'Ready')?.lastHeartbeatTime ?? '';
    const heartbeat = `${readyTime} ${this.#leases.get(NODE_LEASE_NAMESPACE, name)?.spec?.renewTime ?? ''}`;
    if (this.#heartbeats.get(name)?.heartbeat !== heartbeat)
      this.#heartbeats.set(name, { heartbeat, atMs: this.#environment.clock.monotonic() });
  }

  /** Reconciles all nodes that are not ready, because the state of the zones decides which taints they get. */
  #zonesChanged(): void {
    for (const name of this.#zones.notReady()) this.#loop.queue.add(name);
  }

  async #reconcile(name: string): Promise<void> {
    const { clock, options } = this.#environment;
    let node = this.#nodes.get('', name);
    if (node === undefined) return;
    const ready = nodeCondition(node, 'Ready');
    const grace = ready === undefined ? options.nodeStartupGracePeriodMs : options.nodeMonitorGracePeriodMs;
    const silentMs = clock.monotonic() - (this.#heartbeats.get(name)?.atMs ?? clock.monotonic());
    if (silentMs > grace) node = await this.#declareSilent(node);
    else if (ready?.status !== 'Unknown') this.#loop.queue.addAfter(name, grace - silentMs + 1);
    node = await this.#label(node);
    await this.#taint(node);
    if (nodeCondition(node, 'Ready')?.status !== 'True') await this.#markPodsNotReady(name);
  }

  async #declareSilent(node: Node): Promise<Node> {
    const { client, clock, recorder } = this.#environment;
    const conditions = conditionsOfSilent(node, clock.now());
    if (conditions === undefined) return node;
    const wasReady = nodeCondition(node, 'Ready')?.status === 'True';
    const written = await client.update(
      nodes,
      { ...node, status: { ...node.status, conditions } },
      { subresource: 'status' },
    );
    if (wasReady) {
      recorder.event(
        referenceTo(node, nodes),
        'Normal',
        'NodeNotReady',
        `Node ${node.metadata.name} status is now: NodeNotReady`,
      );
    }
    return written;
  }

  async #label(node: Node): Promise<Node> {
    const { labels = {}, name = '' } = node.metadata;
    const wanted = Object.fromEntries(
      BETA_LABELS.flatMap(([beta, stable]) => {
        const value = ownMember(labels, stable);
        return value === undefined || value === ownMember(labels, beta) ? [] : [[beta, value]];
      }),
    );
    if (Object.keys(wanted).length === 0) return node;
    return this.#environment.client.patch(nodes, '', name, { type: 'merge', body: { metadata: { labels: wanted } } });
  }

  async #taint(node: Node): Promise<void> {
    const { client, clock } = this.#environment;
    const nowMs = clock.now();
    const mayEvict = this.#mayEvict(node);
    const taints = wantedTaints(node, { mayEvict: mayEvict === 'yes', nowMs });
    if (mayEvict === 'later') this.#loop.queue.addAfter(node.metadata.name ?? '', 1000);
    if (semanticEqual(taints, node.spec?.taints ?? [])) return;
    const { name = '', resourceVersion } = node.metadata;
    await client.patch(nodes, '', name, {
      type: 'merge',
      body: {
        metadata: { resourceVersion },
        spec: { taints: taints.length === 0 ? null : taints },
      },
    });
  }

  /** Returns whether the node may get or keep a taint that evicts its pods, or gets it later because evictions are limited. */
  #mayEvict(node: Node): 'yes' | 'no' | 'later' {
    const status = nodeCondition(node, 'Ready')?.status;
    if (status === 'True') return 'no';
    // If no node of any zone is ready, the control plane itself is probably cut off.
    if (this.#zones.isDark) return 'no';
    const isEvicting = node.spec?.taints?.some(
      ({ key, effect }) => effect === 'NoExecute' && (key === NOT_READY_TAINT || key === UNREACHABLE_TAINT),
    );
    if (isEvicting === true) return 'yes';
    const zone = zoneOf(node);
    const limiter = this.#limiterOf(zone, this.#zones.state(zone), this.#zones.size(zone));
    return limiter?.tryAccept() === true ? 'yes' : 'later';
  }

  /** Returns the limiter of evictions in a zone, and `undefined` if no pods are evicted there now. */
  #limiterOf(zone: string, state: ZoneState, size: number): RateLimiter | undefined {
    const existing = this.#limiters.get(zone);
    if (existing?.state === state) return existing.limiter;
    const { clock, options } = this.#environment;
    const isLarge = size > options.largeClusterSizeThreshold;
    const qps =
      state === 'PartialDisruption' ? (isLarge ? options.secondaryNodeEvictionRate : 0) : options.nodeEvictionRate;
    const limiter = qps === 0 ? undefined : new RateLimiter({ clock, qps, burst: 1 });
    this.#limiters.set(zone, { state, limiter });
    return limiter;
  }

  async #markPodsNotReady(node: string): Promise<void> {
    const { client, clock, recorder } = this.#environment;
    for (const pod of podsOn(this.#pods, node)) {
      if (podCondition(pod, 'Ready')?.status !== 'True') continue;
      const { namespace = '', name = '' } = pod.metadata;
      const condition = { type: 'Ready', status: 'False', lastTransitionTime: formatTime(clock.now()) };
      try {
        await client.patch(pods, namespace, name, {
          type: 'strategic',
          body: { metadata: { uid: pod.metadata.uid }, status: { conditions: [condition] } },
          subresource: 'status',
        });
        recorder.event(referenceTo(pod, pods), 'Warning', 'NodeNotReady', 'Node is not ready');
      } catch (error) {
        if (!isNotFound(error)) throw error;
      }
    }
  }
}

const emptyNode: Node = { metadata: {} };
