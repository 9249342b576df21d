/**
 * Schedules pods: takes them from the queue one by one, selects a node in its view of the cluster, assumes the result, and
 * binds in the background. It works in time slices, so that requests get the event loop during an expensive decision. A pod
 * that fits no node gets an event and a condition with the reasons, and waits for a change.
 */
import { errorMessage } from '../../api/meta/error-message.ts';
import { isConflict, isNotFound } from '../../api/meta/status-error.ts';
import type { Logger } from '../../api/component/logger.ts';
import type { MetricsRegistry } from '../../api/component/metrics.ts';
import { background } from '../../api/machinery/background.ts';
import type { Client } from '../../api/client/client.ts';
import { type Clock, pause } from '../../api/machinery/clock.ts';
import { referenceTo } from '../../api/client/event-recorder.ts';
import type { EventRecorder } from '../../api/client/event-report.ts';
import { EventSeriesRecorder } from '../../api/client/event-series-recorder.ts';
import type { Informers } from '../../api/client/informer.ts';
import type { ResourceClaim } from '../../api/kinds/kinds.ts';
import { pods } from '../../api/client/resources.ts';
import { TimeSlice } from '../../api/machinery/time-slice.ts';
import { typedClient } from '../../api/client/typed-client.ts';
import { ClusterState } from './cluster-state.ts';
import { SCHEDULER_NAME, watchCluster, type ClusterWatch } from './cluster-watch.ts';
import { podOfExtendedClaim } from '../../api/kinds/device-claims.ts';
import { claimInTheWay, claimsOfPod, reserveOn, type ReservedClaim } from './devices/pod-devices.ts';
import { Evictions } from './evictions.ts';
import { fitOf, unavailableText, type Fit } from './fit.ts';
import type { NodeInfo } from './node-info.ts';
import { nameOf, type PodInfo } from './pod-info.ts';
import { podWrites, type PodWrites } from './pod-writes.ts';
import { FilterError } from './plugin.ts';
import { preempt } from './preemption.ts';
import { SchedulingQueue } from './scheduling-queue.ts';
import { schedulerMetrics, type SchedulerMetrics } from './scheduler-metrics.ts';
import { bestNode } from './scores.ts';
import { claimsOf, decide, type VolumeDecision } from './volumes.ts';
import { SELECTED_NODE_ANNOTATION } from '../../api/meta/well-known-labels.ts';

interface SchedulerOptions {
  readonly client: Client;
  readonly informers: Informers;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Returns a number from 0 to below 1. It selects one of several equally good nodes. */
  readonly random: () => number;
  readonly recorder?: EventRecorder;
  readonly metrics?: MetricsRegistry;
}

/** A running scheduler. */
export interface Scheduler {
  /** Stops the decisions, and resolves when all running writes have ended. */
  stop(): Promise<void>;
}

/** The maximum number of concurrent bindings. */
const BINDINGS = 64;
/** The filter of the devices. Its post-filter part runs before preemption in kube-scheduler. */
const DEVICES = 'DynamicResources';
/** The post-filter part's error for a pod that an earlier filter refused as a whole. Nothing is preempted then. */
const NO_STATE = 'not found';
/** The other messages of the post-filter part. */
const NO_DEVICES = 'no new claims to deallocate';
const DEVICES_KEPT = 'still not schedulable';
const DEVICES_FREED = 'deallocation of ResourceClaim completed';
const CLAIM_DELETED = 'deletion of ResourceClaim completed';
/** How long the start waits for devices and claims. */
const DEVICES_WAIT_MS = 5_000;

/** Starts the scheduler, which runs until `stop`. */
export function startScheduler(options: SchedulerOptions): Scheduler {
  const scheduler = new RunningScheduler(options);
  scheduler.start();
  return scheduler;
}

class RunningScheduler implements Scheduler {
  readonly #options: SchedulerOptions;
  readonly #logger: Logger;
  readonly #recorder: EventRecorder;
  readonly #writes: PodWrites;
  readonly #state = new ClusterState();
  readonly #queue: SchedulingQueue;
  readonly #watch: ClusterWatch;
  readonly #abort = new AbortController();
  readonly #underWay = new Set<Promise<void>>();
  readonly #evictions: Evictions;
  readonly #slice: TimeSlice;
  readonly #metrics: SchedulerMetrics | undefined;
  /** The time at which the present decision began. */
  #decidingSinceMs = 0;
  #bindings = 0;
  #ready = false;
  #running = false;
  /** The index of the node with which the next decision begins. */
  #firstNode = 0;

  constructor(options: SchedulerOptions) {
    const { client, informers, clock, logger } = options;
    this.#options = options;
    this.#logger = logger;
    this.#slice = new TimeSlice(clock);
    this.#recorder = options.recorder ?? new EventSeriesRecorder({ client, clock, logger, component: SCHEDULER_NAME });
    this.#writes = podWrites(typedClient(client), clock);
    this.#queue = new SchedulingQueue(clock, () => this.#wake());
    this.#evictions = new Evictions({
      logger,
      recorder: this.#recorder,
      writes: this.#writes,
      onFailure: (pod) => this.#queue.failed(pod.uid),
      onWritten: (pod) => this.#watch.change(() => this.#queue.changedFor(pod.uid)),
    });
    this.#watch = watchCluster(informers, this.#state, this.#queue, logger);
    this.#metrics =
      options.metrics === undefined
        ? undefined
        : schedulerMetrics(options.metrics, { queue: () => this.#queue.counts(), cache: () => this.#state.sizes() });
  }

  start(): void {
    const begin = async (): Promise<void> => {
      const { signal } = this.#abort;
      await this.#watch.synced(signal);
      const devices = this.#watch.devices.synced(signal).then(() => this.#queue.changed('devices'));
      this.#track(devices);
      // On a server without this API group the devices are never known, so the wait is limited.
      await Promise.race([devices, pause(this.#options.clock, DEVICES_WAIT_MS, signal)]);
      this.#ready = true;
      this.#wake();
    };
    begin().catch((error: unknown) => {
      if (!this.#abort.signal.aborted) this.#logger.error({ err: error }, 'The scheduler could not start');
    });
  }

  async stop(): Promise<void> {
    this.#abort.abort(new Error('the scheduler was stopped'));
    this.#watch.stop();
    this.#queue.close();
    await Promise.all(this.#underWay);
    this.#metrics?.close();
  }

  #wake(): void {
    if (this.#running || !this.#ready || this.#abort.signal.aborted) return;
    this.#running = true;
    this.#track(this.#run());
  }

  async #run(): Promise<void> {
    try {
      // Changes that arrive together are in the state before the first decision.
      await this.#slice.pause();
      // A finished binding wakes the loop again.
      while (this.#bindings < BINDINGS && !this.#abort.signal.aborted) {
        const pod = this.#queue.pop();
        if (pod === undefined) break;
        await this.#watch.hold(() => this.#decide(pod));
        if (this.#slice.isSpent) await this.#slice.pause();
      }
    } finally {
      this.#running = false;
    }
  }

  async #decide(pod: PodInfo): Promise<void> {
    this.#decidingSinceMs = this.#options.clock.monotonic();
    try {
      await this.#schedule(pod);
    } catch (error) {
      this.#metrics?.attempt('error', this.#secondsSince(this.#decidingSinceMs));
      if (error instanceof FilterError) {
        this.#attemptFailed(pod, error.message);
        return;
      }
      this.#logger.error({ err: error, pod: nameOf(pod) }, 'A pod could not be scheduled');
      this.#queue.failed(pod.uid);
    }
  }

  #secondsSince(ms: number): number {
    return (this.#options.clock.monotonic() - ms) / 1000;
  }

  async #schedule(pod: PodInfo): Promise<void> {
    const { cluster } = this.#watch;
    const gate = this.#gateOf(pod);
    if (gate !== undefined) {
      this.#queue.gated(pod.uid, gate);
      return;
    }
    if (cluster.nodes.length === 0) {
      this.#reject(pod, new Set(['NodeName']), 'no nodes available to schedule pods', undefined);
      return;
    }
    const fit = await fitOf(pod, {
      cluster,
      nominated: (node) => this.#nominated(node, pod),
      slice: this.#slice,
      first: this.#firstNode,
      preferred: pod.pod.status?.nominatedNodeName ?? '',
    });
    this.#firstNode = (this.#firstNode + fit.examined) % cluster.nodes.length;
    if (fit.nodes.length === 0) await this.#noFit(pod, fit);
    else {
      const { random } = this.#options;
      const node = await bestNode(pod, fit.nodes, { cluster, random, slice: this.#slice });
      this.#metrics?.algorithm(this.#secondsSince(this.#decidingSinceMs));
      this.#assign(pod, node);
    }
  }

  /** Returns the name of the filter that holds the pod back, so that it is not tried yet, or `undefined` if none does. */
  #gateOf(pod: PodInfo): string | undefined {
    if (this.#evictions.holdsBack(pod)) return 'DefaultPreemption';
    return typeof claimsOfPod(pod, this.#watch.cluster) === 'string' ? DEVICES : undefined;
  }

  #nominated(node: NodeInfo, pod: PodInfo): PodInfo[] {
    return this.#watch
      .nominatedTo(node.name)
      .filter((other) => other.uid !== pod.uid && other.priority >= pod.priority);
  }

  async #noFit(pod: PodInfo, fit: Fit): Promise<void> {
    const { cluster } = this.#watch;
    const reasons = fit.rejections.flatMap((rejection) => rejection.reasons);
    const text = unavailableText(cluster.nodes.length, reasons, fit.refusal);
    if (fit.trials === undefined && !fit.rejectedBy.has(DEVICES)) {
      this.#reject(pod, fit.rejectedBy, `${text} ${NO_STATE}`, undefined);
      return;
    }
    const inTheWay = fit.trials === undefined ? 'no-claims' : claimInTheWay(pod, cluster.nodes, cluster);
    if (typeof inTheWay === 'object') {
      const freed = podOfExtendedClaim(inTheWay) === undefined ? DEVICES_FREED : CLAIM_DELETED;
      this.#reject(pod, fit.rejectedBy, `${text} ${freed}`, undefined);
      this.#track(this.#writeStatus(pod, (writes) => writes.free(inTheWay)));
      return;
    }
    const preemption = await preempt(pod, fit, {
      cluster,
      budgets: this.#watch.budgets(),
      random: this.#options.random,
      slice: this.#slice,
    });
    this.#metrics?.preemption(typeof preemption === 'string' ? 0 : preemption.victims.length);
    if (typeof preemption === 'string') {
      const devices = inTheWay === 'no-claims' ? NO_DEVICES : DEVICES_KEPT;
      this.#reject(pod, fit.rejectedBy, `${text} ${devices}, preemption: ${preemption}`, undefined);
      return;
    }
    this.#withdrawNominations(pod, preemption.node);
    this.#watch.nominate(pod, preemption.node.name);
    this.#reject(pod, fit.rejectedBy, text, preemption.node.name);
    this.#track(this.#evictions.evict(pod, preemption));
  }

  /** Withdraws the nominations of pods of lower priority to this node. They lose the room there and are scheduled again. */
  #withdrawNominations(pod: PodInfo, node: NodeInfo): void {
    for (const other of this.#watch.nominatedTo(node.name)) {
      if (other.uid === pod.uid || other.priority >= pod.priority) continue;
      this.#watch.nominate(other, '');
      this.#track(this.#writeStatus(other, (writes) => writes.nominate(other.pod, '')));
      this.#queue.changedFor(other.uid);
    }
  }

  /**
   * Records that a pod fits nowhere. `nominated` is the node that will have room, and `undefined` keeps the present
   * nomination.
   */
  #reject(pod: PodInfo, rejectedBy: ReadonlySet<string>, message: string, nominated: string | undefined): void {
    this.#metrics?.attempt('unschedulable', this.#secondsSince(this.#decidingSinceMs));
    this.#queue.unschedulable(pod.uid, rejectedBy);
    this.#recorder.event(referenceTo(pod.pod, pods), 'Warning', 'FailedScheduling', message, { action: 'Scheduling' });
    this.#mark(pod, 'Unschedulable', message, nominated);
  }

  #mark(pod: PodInfo, reason: string, message: string, nominated: string | undefined): void {
    this.#track(this.#writeStatus(pod, (writes) => writes.markUnschedulable(pod.pod, { reason, message, nominated })));
  }

  async #writeStatus(pod: PodInfo, write: (writes: PodWrites) => Promise<void>): Promise<void> {
    try {
      await write(this.#writes);
    } catch (error) {
      if (isNotFound(error) || isConflict(error)) return;
      this.#logger.warn({ err: error, pod: nameOf(pod) }, 'The status of a pod could not be written');
    }
  }

  #assign(pod: PodInfo, node: NodeInfo): void {
    const decision = this.#volumeDecision(pod, node);
    if (decision !== undefined) {
      // The binding of its claims is a change that wakes the pod.
      this.#queue.unschedulable(pod.uid, new Set(['VolumeBinding']));
      this.#track(this.#bindVolumes(pod, decision, node));
      return;
    }
    const claims = reserveOn(pod, node, this.#watch.cluster);
    if (claims === undefined) {
      this.#queue.failed(pod.uid);
      return;
    }
    this.#watch.devices.assume(claims);
    this.#state.assume(pod, node.name);
    this.#bindings += 1;
    this.#track(this.#bind(pod, node, { claims, sinceMs: this.#decidingSinceMs }));
  }

  #volumeDecision(pod: PodInfo, node: NodeInfo): VolumeDecision | undefined {
    if (pod.claimNames.length === 0) return undefined;
    const claims = claimsOf(pod, this.#watch.cluster);
    if (typeof claims === 'string' || claims.waiting.length === 0) return undefined;
    return decide(claims.waiting, node, this.#watch.cluster);
  }

  async #bindVolumes(pod: PodInfo, { matches, provision }: VolumeDecision, node: NodeInfo): Promise<void> {
    const unwritten: VolumeDecision = {
      matches: matches.filter(({ volume }) => volume.spec?.claimRef?.uid === undefined),
      provision: provision.filter((claim) => claim.metadata.annotations?.[SELECTED_NODE_ANNOTATION] === undefined),
    };
    try {
      await this.#writes.nominate(pod.pod, node.name);
      await this.#writes.bindVolumes(unwritten, node.name);
    } catch (error) {
      this.#logger.warn({ err: error, pod: nameOf(pod) }, 'The volumes of a pod could not be bound');
      this.#queue.failed(pod.uid);
    }
  }

  async #bind(
    pod: PodInfo,
    node: NodeInfo,
    { claims, sinceMs }: { readonly claims: readonly ReservedClaim[]; readonly sinceMs: number },
  ): Promise<void> {
    const written = new Map<ReservedClaim, ResourceClaim>();
    // The informer may show the binding, and remove the pod from the queue, before the binding has ended here.
    const { attempts, seconds } = this.#queue.triesOf(pod.uid);
    const beginMs = this.#options.clock.monotonic();
    try {
      for (const claim of claims) {
        written.set(claim, await this.#writes.reserve(claim, pod.pod));
      }
      await this.#writes.bind(pod, node.name);
      this.#metrics?.attempt('scheduled', this.#secondsSince(sinceMs));
      this.#metrics?.scheduled({ attempts, seconds: seconds + this.#secondsSince(beginMs) });
      this.#queue.remove(pod.uid);
      const message = `Successfully assigned ${nameOf(pod)} to ${node.name}`;
      this.#recorder.event(referenceTo(pod.pod, pods), 'Normal', 'Scheduled', message, { action: 'Binding' });
    } catch (error) {
      this.#metrics?.attempt('error', this.#secondsSince(sinceMs));
      await this.#unreserve(
        pod,
        claims.map((reserved) => written.get(reserved) ?? reserved.claim),
      );
      this.#watch.change(() => {
        // A written allocation stays in the view until the informer shows it, unless its claim was deleted.
        this.#watch.devices.forget(claims.filter((claim) => !written.has(claim) || claim.mappings !== undefined));
        this.#state.forget(pod.uid);
        this.#queue.changed('pod-gone');
        if (isNotFound(error) && !this.#watch.exists(pod)) this.#queue.remove(pod.uid);
        else this.#bindingFailed(pod, error);
      });
    } finally {
      this.#bindings -= 1;
      this.#wake();
    }
  }

  /** Removes the reservations of the claims for the pod. */
  async #unreserve(pod: PodInfo, claims: readonly ResourceClaim[]): Promise<void> {
    for (const claim of claims) {
      try {
        await this.#writes.unreserve(claim, pod.pod);
      } catch (error) {
        this.#logger.warn({ err: error, pod: nameOf(pod) }, 'The reservation of a resource claim could not be removed');
      }
    }
  }

  #bindingFailed(pod: PodInfo, error: unknown): void {
    this.#logger.warn({ err: error, pod: nameOf(pod) }, 'A pod could not be bound');
    this.#attemptFailed(pod, `binding rejected: ${errorMessage(error)}`);
  }

  /** Records an attempt that ended with an error. */
  #attemptFailed(pod: PodInfo, message: string): void {
    this.#recorder.event(referenceTo(pod.pod, pods), 'Warning', 'FailedScheduling', message, { action: 'Scheduling' });
    this.#mark(pod, 'SchedulerError', message, undefined);
    this.#queue.failed(pod.uid);
  }

  #track(work: Promise<void>): void {
    this.#underWay.add(work);
    background(
      work.finally(() => this.#underWay.delete(work)),
      { logger: this.#logger, what: 'Work for a pod', signal: this.#abort.signal },
    );
  }
}
