/**
 * The scheduler: takes pods from the queue one by one, decides in one turn of the event loop on what it believes of the
 * cluster, assumes the result, and binds in the background. What fits nowhere is told why and waits for a change.
 * Started by the control plane's `main.ts`.
 */
import { isConflict, isNotFound } from '../../api/meta/status-error.ts';
import type { Logger } from '../../api/component/logger.ts';
import type { Client } from '../../api/machinery/client.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { referenceTo, type EventRecorder } from '../../api/machinery/event-recorder.ts';
import { EventSeriesRecorder } from '../../api/machinery/event-series-recorder.ts';
import type { Informers } from '../../api/machinery/informer.ts';
import { pods } from '../../api/machinery/resources.ts';
import { typedClient } from '../../api/machinery/typed-client.ts';
import { ClusterState, type NodeInfo, type PodInfo } from './cluster-state.ts';
import { SCHEDULER_NAME, watchCluster, type ClusterWatch } from './cluster-watch.ts';
import { fitOf, unavailableText, type Fit } from './fit.ts';
import { podWrites, type PodWrites } from './pod-writes.ts';
import { preempt, type Preemption } from './preemption.ts';
import { SchedulingQueue } from './scheduling-queue.ts';
import { bestNode } from './scores.ts';
import { claimsOf, decide, type VolumeDecision } from './volumes.ts';

export interface SchedulerOptions {
  readonly client: Client;
  readonly informers: Informers;
  readonly clock: Clock;
  readonly logger: Logger;
  /** 0 to below 1; chooses among equally good nodes. */
  readonly random: () => number;
  readonly recorder?: EventRecorder;
}

export interface Scheduler {
  /** Resolves when what was under way has ended. */
  stop(): Promise<void>;
}

/** Bindings under way at most. */
const BINDINGS = 64;
/** Pods decided on before others get their turn of the event loop. */
const PODS_A_TURN = 8;
/** The reference's first post-filter has nothing to do with pods that claim no devices, and says so. */
const NO_DEVICES = 'no new claims to deallocate';

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
  #bindings = 0;
  #ready = false;
  #scheduled = false;

  constructor(options: SchedulerOptions) {
    const { client, informers, clock, logger } = options;
    this.#options = options;
    this.#logger = logger;
    this.#recorder = options.recorder ?? new EventSeriesRecorder({ client, clock, logger, component: SCHEDULER_NAME });
    this.#writes = podWrites(typedClient(client), clock);
    this.#queue = new SchedulingQueue(clock, () => this.#wake());
    this.#watch = watchCluster(informers, this.#state, this.#queue);
  }

  start(): void {
    const begin = async (): Promise<void> => {
      await this.#watch.synced(this.#abort.signal);
      this.#ready = true;
      this.#wake();
    };
    begin().catch((error: unknown) => {
      if (!this.#abort.signal.aborted) this.#logger.error({ error }, 'The scheduler could not start.');
    });
  }

  async stop(): Promise<void> {
    this.#abort.abort(new Error('the scheduler was stopped'));
    this.#watch.stop();
    this.#queue.close();
    await Promise.all(this.#underWay);
  }

  #wake(): void {
    if (this.#scheduled || !this.#ready || this.#abort.signal.aborted) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#turn();
    });
  }

  #turn(): void {
    for (let count = 0; count < PODS_A_TURN && this.#bindings < BINDINGS; count += 1) {
      const pod = this.#abort.signal.aborted ? undefined : this.#queue.pop();
      if (pod === undefined) return;
      this.#schedule(pod);
    }
    // A binding that ends wakes as well.
    if (this.#bindings < BINDINGS) this.#wake();
  }

  #schedule(pod: PodInfo): void {
    const { cluster } = this.#watch;
    if (cluster.nodes.length === 0) {
      this.#reject(pod, new Set(['NodeName']), 'no nodes available to schedule pods', undefined);
      return;
    }
    const fit = fitOf(pod, cluster, (node) => this.#nominated(node, pod));
    if (fit.nodes.length === 0) {
      this.#noFit(pod, fit);
      return;
    }
    const nominated = fit.nodes.find((node) => node.name === pod.pod.status?.nominatedNodeName);
    this.#assign(pod, nominated ?? bestNode(pod, fit.nodes, cluster, this.#options.random));
  }

  #nominated(node: NodeInfo, pod: PodInfo): PodInfo[] {
    return this.#watch
      .nominatedTo(node.name)
      .filter((other) => other.uid !== pod.uid && other.priority >= pod.priority);
  }

  #noFit(pod: PodInfo, fit: Fit): void {
    const { cluster } = this.#watch;
    const reasons = fit.rejections.flatMap((rejection) => rejection.reasons);
    const text = unavailableText(cluster.nodes.length, reasons, fit.refusal);
    const preemption = preempt(pod, fit, cluster, this.#watch.budgets());
    if (typeof preemption === 'string') {
      this.#reject(pod, fit.rejectedBy, `${text} ${NO_DEVICES}, preemption: ${preemption}`, undefined);
      return;
    }
    this.#watch.nominate(pod, preemption.node.name);
    this.#reject(pod, fit.rejectedBy, text, preemption.node.name);
    this.#track(this.#evictVictims(pod, preemption));
  }

  async #evictVictims(pod: PodInfo, { node, victims }: Preemption): Promise<void> {
    for (const victim of victims) {
      try {
        await this.#writes.evict(victim);
        const message = `Preempted by pod ${pod.uid} on node ${node.name}`;
        this.#recorder.event(referenceTo(victim.pod, pods), 'Normal', 'Preempted', message, {
          action: 'Preempting',
          related: referenceTo(pod.pod, pods),
        });
      } catch (error) {
        this.#logger.warn({ error, pod: nameOf(victim) }, 'A pod could not be preempted.');
        this.#queue.failed(pod.uid);
        return;
      }
    }
  }

  /** `nominated`: the node that will have room; `undefined` leaves a nomination as it is. */
  #reject(pod: PodInfo, rejectedBy: ReadonlySet<string>, message: string, nominated: string | undefined): void {
    this.#queue.unschedulable(pod.uid, rejectedBy);
    this.#recorder.event(referenceTo(pod.pod, pods), 'Warning', 'FailedScheduling', message, { action: 'Scheduling' });
    this.#mark(pod, 'Unschedulable', message, nominated);
  }

  #mark(pod: PodInfo, reason: string, message: string, nominated: string | undefined): void {
    const written = this.#writes.markUnschedulable(pod.pod, { reason, message, nominated }).catch((error: unknown) => {
      if (isNotFound(error) || isConflict(error)) return;
      this.#logger.warn({ error, pod: nameOf(pod) }, 'The condition of a pod could not be written.');
    });
    this.#track(written);
  }

  #assign(pod: PodInfo, node: NodeInfo): void {
    const decision = this.#volumeDecision(pod, node);
    if (decision !== undefined) {
      // The pod goes on when its claims are bound, which is a change that wakes it.
      this.#queue.unschedulable(pod.uid, new Set(['VolumeBinding']));
      this.#track(this.#bindVolumes(pod, decision, node));
      return;
    }
    this.#state.assume(pod, node.name);
    this.#bindings += 1;
    this.#track(this.#bind(pod, node));
  }

  #volumeDecision(pod: PodInfo, node: NodeInfo): VolumeDecision | undefined {
    if (pod.claimNames.length === 0) return undefined;
    const claims = claimsOf(pod, this.#watch.cluster);
    if (typeof claims === 'string' || claims.waiting.length === 0) return undefined;
    return decide(claims.waiting, node, this.#watch.cluster);
  }

  async #bindVolumes(pod: PodInfo, { matches, provision }: VolumeDecision, node: NodeInfo): Promise<void> {
    const open: VolumeDecision = {
      matches: matches.filter(({ volume }) => volume.spec?.claimRef?.uid === undefined),
      provision: provision.filter(
        (claim) => claim.metadata.annotations?.['volume.kubernetes.io/selected-node'] === undefined,
      ),
    };
    try {
      await this.#writes.bindVolumes(open, node.name);
    } catch (error) {
      this.#logger.warn({ error, pod: nameOf(pod) }, 'The volumes of a pod could not be bound.');
      this.#queue.failed(pod.uid);
    }
  }

  async #bind(pod: PodInfo, node: NodeInfo): Promise<void> {
    try {
      await this.#writes.bind(pod, node.name);
      this.#queue.remove(pod.uid);
      const message = `Successfully assigned ${nameOf(pod)} to ${node.name}`;
      this.#recorder.event(referenceTo(pod.pod, pods), 'Normal', 'Scheduled', message, { action: 'Binding' });
    } catch (error) {
      this.#state.forget(pod.uid);
      this.#queue.changed('pod-gone');
      if (isNotFound(error) && !this.#watch.exists(pod)) this.#queue.remove(pod.uid);
      else this.#bindingFailed(pod, error);
    } finally {
      this.#bindings -= 1;
      this.#wake();
    }
  }

  #bindingFailed(pod: PodInfo, error: unknown): void {
    const message = `binding rejected: ${error instanceof Error ? error.message : String(error)}`;
    this.#logger.warn({ error, pod: nameOf(pod) }, 'A pod could not be bound.');
    this.#recorder.event(referenceTo(pod.pod, pods), 'Warning', 'FailedScheduling', message, { action: 'Scheduling' });
    this.#mark(pod, 'SchedulerError', message, undefined);
    this.#queue.failed(pod.uid);
  }

  #track(work: Promise<void>): void {
    this.#underWay.add(work);
    void work.finally(() => this.#underWay.delete(work));
  }
}

function nameOf({ pod }: PodInfo): string {
  return `${pod.metadata.namespace ?? ''}/${pod.metadata.name ?? ''}`;
}
