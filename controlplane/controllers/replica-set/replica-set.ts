/** Implements replica sets and replication controllers: keeps the desired number of active pods. */
import type { KubeObject } from '../../../api/meta/object.ts';
import { fromLabelSelector, selectorOfLabels, type Selector } from '../../../api/meta/selector.ts';
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import { isNotFound } from '../../../api/meta/status-error.ts';
import { formatTime } from '../../../api/machinery/clock.ts';
import type { Pod, ReplicaSet, ReplicationController } from '../../../api/kinds/kinds.ts';
import { pods, replicaSets, replicationControllers, type ResourceOf } from '../../../api/client/resources.ts';
import type { Informer } from '../../../api/client/informer.ts';
import { keyOf, ReconcileLoop, splitKey, type ControllerEnvironment, type RunController } from '../controller.ts';
import { claim, controllerOf, indexByController, ownedBy, ownerKey, withSameController } from '../owner-references.ts';
import { PendingWrites } from '../pending-writes.ts';
import {
  inGrowingBatches,
  isNamespaceTerminating,
  PodControl,
  podFromTemplate,
  type PodTemplate,
} from '../pod-control.ts';
import { isPodReady } from '../pod-state.ts';
import {
  computeReplicaPlan,
  computeReplicaStatus,
  nextAvailabilityMs,
  type ReplicaStatus,
} from './replica-set-core.ts';

/** The differences between replica sets and replication controllers. */
interface Flavor<Owner extends KubeObject> {
  readonly resource: ResourceOf<Owner>;
  readonly selector: (owner: Owner) => Selector;
  readonly replicas: (owner: Owner) => number;
  readonly minReadySeconds: (owner: Owner) => number;
  readonly template: (owner: Owner) => PodTemplate;
  readonly status: (owner: Owner) => ReplicaStatus | undefined;
  readonly withTerminating: boolean;
}

const replicaSetFlavor: Flavor<ReplicaSet> = {
  resource: replicaSets,
  selector: (set) => fromLabelSelector(set.spec?.selector),
  replicas: (set) => set.spec?.replicas ?? 1,
  minReadySeconds: (set) => set.spec?.minReadySeconds ?? 0,
  template: (set) => set.spec?.template ?? {},
  status: (set) => set.status,
  withTerminating: true,
};

const replicationControllerFlavor: Flavor<ReplicationController> = {
  resource: replicationControllers,
  selector: (set) => selectorOfLabels(set.spec?.selector ?? {}),
  replicas: (set) => set.spec?.replicas ?? 1,
  minReadySeconds: (set) => set.spec?.minReadySeconds ?? 0,
  template: (set) => set.spec?.template ?? {},
  status: (set) => set.status,
  withTerminating: false,
};

/** Reconciles `concurrentReplicaSetSyncs` sets at a time. */
export const runReplicaSets: RunController = (environment, signal) =>
  new ReplicaController(environment, replicaSetFlavor, environment.options.concurrentReplicaSetSyncs).run(signal);

/** Runs the same loop for replication controllers, with a queue of its own and as many workers as that of replica sets. */
export const runReplicationControllers: RunController = (environment, signal) =>
  new ReplicaController(environment, replicationControllerFlavor, environment.options.concurrentReplicaSetSyncs).run(
    signal,
  );

/** The number of pods of a set for which its changes are collected for one more millisecond: 150 ms for 3,000 pods. */
const PODS_PER_GATHERING_MS = 20;
/** How long after a pod becomes available its set is reconciled, as in kube-controller-manager. */
const AVAILABILITY_SLACK_MS = 1000;
/** The same delay where the status of the set has shown that a pod is not available yet. */
const SHORT_SLACK_MS = 50;

class ReplicaController<Owner extends KubeObject> {
  readonly #environment: ControllerEnvironment;
  readonly #flavor: Flavor<Owner>;
  readonly #loop: ReconcileLoop;
  readonly #owners: Informer<Owner>;
  readonly #pods: Informer<Pod>;
  readonly #pending: PendingWrites<Pod>;
  readonly #podControl: PodControl<Owner>;
  /**
   * The time for which changes of pods are collected before their set is reconciled: the cost of a reconciliation grows with
   * the number of pods.
   */
  readonly #gatheringMs = new Map<string, number>();

  constructor(environment: ControllerEnvironment, flavor: Flavor<Owner>, workers: number) {
    this.#environment = environment;
    this.#flavor = flavor;
    this.#loop = new ReconcileLoop(environment, { workers, reconcile: (key) => this.#reconcile(key) });
    this.#owners = environment.informers.for(flavor.resource);
    this.#pods = environment.informers.for(pods);
    this.#pending = new PendingWrites(this.#pods, environment.clock);
    this.#podControl = new PodControl(environment, flavor.resource);
    indexByController(this.#pods);
    indexByController(this.#owners);
  }

  run(signal: AbortSignal): Promise<void> {
    this.#loop.follow(this.#owners);
    this.#pods.addHandler({
      add: (pod) => this.#podChanged(pod),
      update: (previous, pod) => {
        const before = ownerKey(previous, this.#flavor.resource);
        if (before !== undefined && before !== ownerKey(pod, this.#flavor.resource)) this.#loop.queue.add(before);
        this.#podChanged(pod);
        this.#expectAvailability(previous, pod);
      },
      delete: (pod) => this.#podChanged(pod),
    });
    return this.#loop.run(signal, this.#owners, this.#pods);
  }

  #podChanged(pod: Pod): void {
    const key = ownerKey(pod, this.#flavor.resource);
    if (key !== undefined) this.#loop.queue.addAfter(key, this.#gatheringMs.get(key) ?? 0);
    else if (controllerOf(pod) === undefined && pod.metadata.deletionTimestamp === undefined)
      this.#enqueueAdopters(pod);
  }

  /** Enqueues the sets that may adopt a pod without a controller. */
  #enqueueAdopters(pod: Pod): void {
    for (const owner of this.#owners.list(pod.metadata.namespace ?? '')) {
      const selector = this.#flavor.selector(owner);
      if (!selector.isEmpty && selector.matches(pod.metadata.labels)) this.#loop.enqueue(owner);
    }
  }

  /** Plans a reconciliation for the time at which a pod that became ready becomes available. */
  #expectAvailability(previous: Pod, pod: Pod): void {
    if (isPodReady(previous) || !isPodReady(pod)) return;
    const key = ownerKey(pod, this.#flavor.resource);
    if (key === undefined) return;
    const { namespace, name } = splitKey(key);
    const owner = this.#owners.get(namespace, name);
    const seconds = owner === undefined ? 0 : this.#flavor.minReadySeconds(owner);
    if (seconds > 0) this.#loop.queue.addAfter(key, seconds * 1000 + AVAILABILITY_SLACK_MS);
  }

  async #reconcile(key: string): Promise<void> {
    const { namespace, name } = splitKey(key);
    const owner = this.#owners.get(namespace, name);
    if (owner === undefined) {
      this.#gatheringMs.delete(key);
      return this.#pending.forget(key);
    }
    const { clock, client } = this.#environment;
    const selector = this.#flavor.selector(owner);
    const settled = this.#pending.settled(key);
    const claimedPods = await claim({
      client,
      owner,
      ownerResource: this.#flavor.resource,
      resource: pods,
      informer: this.#pods,
      selector,
      matches: (pod) => pod.status?.phase !== 'Succeeded' && pod.status?.phase !== 'Failed',
      onWritten: (pod) => this.#pending.wrote(key, pod),
    });
    this.#gatheringMs.set(key, claimedPods.length / PODS_PER_GATHERING_MS);
    let failure: { error: unknown; reason: 'FailedCreate' | 'FailedDelete' } | undefined;
    if (settled && owner.metadata.deletionTimestamp === undefined)
      failure = await this.#manage(key, owner, claimedPods);
    const status = computeReplicaStatus({
      previous: this.#flavor.status(owner),
      generation: owner.metadata.generation ?? 0,
      minReadySeconds: this.#flavor.minReadySeconds(owner),
      templateLabels: this.#flavor.template(owner).metadata?.labels ?? {},
      pods: claimedPods,
      failure:
        failure === undefined ? undefined : { reason: failure.reason, message: (failure.error as Error).message },
      now: formatTime(clock.now()),
      nowMs: clock.now(),
      withTerminating: this.#flavor.withTerminating,
    });
    if (!semanticEqual(status, this.#flavor.status(owner))) await this.#writeStatus(owner, status);
    const next = nextAvailabilityMs(claimedPods, this.#flavor.minReadySeconds(owner), clock.now());
    if (next !== undefined) this.#loop.queue.addAfter(key, next + SHORT_SLACK_MS);
    if (failure !== undefined) throw failure.error;
  }

  async #manage(
    key: string,
    owner: Owner,
    claimedPods: readonly Pod[],
  ): Promise<{ error: unknown; reason: 'FailedCreate' | 'FailedDelete' } | undefined> {
    const plan = computeReplicaPlan({
      replicas: this.#flavor.replicas(owner),
      pods: claimedPods,
      related: this.#related(owner),
      nowMs: this.#environment.clock.now(),
    });
    if (plan.create > 0) {
      const template = this.#flavor.template(owner);
      const { error } = await inGrowingBatches(plan.create, async () => {
        const pod = podFromTemplate(template, owner, this.#flavor.resource);
        this.#pending.wrote(key, await this.#podControl.create(owner, pod));
      });
      if (error !== undefined && !isNamespaceTerminating(error)) return { error, reason: 'FailedCreate' };
    }
    const results = await Promise.allSettled(
      plan.remove.map(async (pod) => {
        await this.#podControl.delete(owner, pod);
        this.#pending.deleted(key, pod);
      }),
    );
    const failed = results.find((result) => result.status === 'rejected');
    return failed === undefined ? undefined : { error: failed.reason, reason: 'FailedDelete' };
  }

  /** Returns the pods of all sets that have the same controller as this one, such as the old and new sets of a deployment. */
  #related(owner: Owner): Pod[] {
    const sets = withSameController(this.#owners, owner) ?? [owner];
    return sets.flatMap((set) => ownedBy(this.#pods, set));
  }

  async #writeStatus(owner: Owner, status: ReplicaStatus): Promise<void> {
    try {
      await this.#environment.client.update(this.#flavor.resource, { ...owner, status }, { subresource: 'status' });
    } catch (error) {
      if (!isNotFound(error)) throw error;
      this.#environment.logger.debug(
        { key: keyOf(owner) },
        'The replica set was deleted, so its status is not written',
      );
    }
  }
}
