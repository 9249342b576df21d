/** Implements daemon sets: keeps a pod on each eligible node. `daemon-set-core.ts` decides. */
import { fromLabelSelector } from '../../../api/meta/selector.ts';
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import { referenceTo } from '../../../api/client/event-recorder.ts';
import type { Informer } from '../../../api/client/informer.ts';
import type { ControllerRevision, DaemonSet, Node, Pod } from '../../../api/kinds/kinds.ts';
import { controllerRevisions, daemonSets, nodes, pods } from '../../../api/client/resources.ts';
import { nameHash, REVISION_HASH, syncRevisions, truncateRevisions } from '../controller-revisions.ts';
import { ReconcileLoop, splitKey, type ControllerEnvironment, type RunController } from '../controller.ts';
import { claim, indexByController } from '../owner-references.ts';
import { PendingWrites } from '../pending-writes.ts';
import { enqueueOwner } from '../pod-owners.ts';
import { inGrowingBatches, isNamespaceTerminating, PodControl, podFromTemplate } from '../pod-control.ts';
import { isPodFinished, isPodTerminating } from '../pod-state.ts';
import {
  boundToNode,
  computeDaemonStatus,
  nodeOf,
  planDaemons,
  shouldRun,
  type DaemonInput,
  type DaemonPlan,
} from './daemon-set-core.ts';
import { FailureBackOff } from './failure-back-off.ts';
import { planUpdate } from './rolling-update.ts';

/** The maximum number of pods that one reconciliation creates, and that it deletes, as in kube-controller-manager. */
const MAX_AT_ONCE = 250;

/** Reconciles `concurrentDaemonSetSyncs` sets at a time. */
export const runDaemonSets: RunController = (environment, signal) => new DaemonSetController(environment).run(signal);

class DaemonSetController {
  readonly #environment: ControllerEnvironment;
  readonly #loop: ReconcileLoop;
  readonly #sets: Informer<DaemonSet>;
  readonly #pods: Informer<Pod>;
  readonly #nodes: Informer<Node>;
  readonly #revisions: Informer<ControllerRevision>;
  readonly #pending: PendingWrites<Pod>;
  readonly #podControl: PodControl<DaemonSet>;
  readonly #backOff: FailureBackOff;

  constructor(environment: ControllerEnvironment) {
    this.#environment = environment;
    this.#loop = new ReconcileLoop(environment, {
      workers: environment.options.concurrentDaemonSetSyncs,
      baseDelayMs: 1000,
      maxDelayMs: 900_000,
      reconcile: (key) => this.#reconcile(key),
    });
    this.#sets = environment.informers.for(daemonSets);
    this.#pods = environment.informers.for(pods);
    this.#nodes = environment.informers.for(nodes);
    this.#revisions = environment.informers.for(controllerRevisions);
    this.#pending = new PendingWrites(this.#pods, environment.clock);
    this.#podControl = new PodControl(environment, daemonSets);
    this.#backOff = new FailureBackOff(environment.clock);
    indexByController(this.#pods);
    indexByController(this.#revisions);
  }

  run(signal: AbortSignal): Promise<void> {
    this.#loop.follow(this.#sets);
    const podChanged = enqueueOwner(this.#loop, this.#sets, daemonSets);
    this.#pods.addHandler({ add: podChanged, update: (_, pod) => podChanged(pod), delete: podChanged });
    const enqueueAll = (): void => this.#sets.list().forEach(this.#loop.enqueue);
    this.#nodes.addHandler({
      add: enqueueAll,
      // Heartbeats of nodes do not affect daemon sets.
      update: (previous, node) => {
        if (semanticEqual([previous.metadata.labels, previous.spec], [node.metadata.labels, node.spec])) return;
        for (const set of this.#sets.list())
          if (!semanticEqual(shouldRun(set, previous), shouldRun(set, node))) this.#loop.enqueue(set);
      },
      delete: enqueueAll,
    });
    return this.#loop.run(signal, this.#sets, this.#pods, this.#nodes, this.#revisions);
  }

  async #reconcile(key: string): Promise<void> {
    const { namespace, name } = splitKey(key);
    const set = this.#sets.get(namespace, name);
    if (set === undefined) return this.#pending.forget(key);
    const { client, clock, recorder } = this.#environment;
    const selector = fromLabelSelector(set.spec?.selector);
    if (selector.isEmpty) {
      recorder.event(
        referenceTo(set, daemonSets),
        'Warning',
        'SelectingAll',
        'This daemon set is selecting all pods. A non-empty selector is required.',
      );
      return;
    }
    if (set.metadata.deletionTimestamp !== undefined) return;
    const { all, update } = await syncRevisions({
      client,
      informer: this.#revisions,
      owner: set,
      ownerResource: daemonSets,
      selector,
      template: set.spec?.template ?? {},
      collisionCount: set.status?.collisionCount ?? 0,
    });
    const claimed = await claim({
      client,
      owner: set,
      ownerResource: daemonSets,
      resource: pods,
      informer: this.#pods,
      selector,
      onWritten: (pod) => this.#pending.wrote(key, pod),
    });
    // A finished pod that only waits for its finalizers counts for nothing.
    const counted = claimed.filter((pod) => !isPodFinished(pod) || !isPodTerminating(pod));
    const byNode = Map.groupBy(counted, nodeOf);
    const input = { set, nodes: this.#nodes.list(), byNode, hash: nameHash(update), nowMs: clock.now() };
    let failure: unknown;
    if (this.#pending.settled(key)) failure = await this.#manage(key, input);
    const status = computeDaemonStatus(input);
    if (!semanticEqual(status, set.status))
      await client.update(daemonSets, { ...set, status }, { subresource: 'status' });
    const used = new Set([
      update.metadata.name ?? '',
      ...claimed.map((pod) => pod.metadata.labels?.[REVISION_HASH] ?? ''),
    ]);
    await truncateRevisions(client, all, used, set.spec?.revisionHistoryLimit ?? 10);
    const minReady = set.spec?.minReadySeconds ?? 0;
    if (minReady > 0 && (status.numberReady ?? 0) !== (status.numberAvailable ?? 0))
      this.#loop.queue.addAfter(key, minReady * 1000);
    if (failure !== undefined && !isNamespaceTerminating(failure)) throw failure;
  }

  async #manage(key: string, input: DaemonInput): Promise<unknown> {
    const { set, hash } = input;
    const failuresOf = (node: string): string => `${set.metadata.uid}/${set.status?.observedGeneration ?? 0}/${node}`;
    const plan = planDaemons(input, (node) => {
      const remainingMs = this.#backOff.remainingMs(failuresOf(node));
      if (remainingMs > 0) this.#loop.queue.addAfter(key, remainingMs);
      return remainingMs > 0;
    });
    for (const pod of plan.failed) this.#backOff.recordFailure(failuresOf(nodeOf(pod)));
    this.#reportFinished(set, plan);
    let create = plan.create;
    let remove = plan.remove;
    // An update waits until every node has the pods that it should have.
    if (create.length === 0 && remove.length === 0) {
      const next = planUpdate(input);
      create = next.surge;
      remove = next.remove;
    }
    const removed = await Promise.allSettled(
      remove.slice(0, MAX_AT_ONCE).map(async (pod) => {
        await this.#podControl.delete(set, pod);
        this.#pending.deleted(key, pod);
      }),
    );
    const targets = create.slice(0, MAX_AT_ONCE);
    const { error } = await inGrowingBatches(targets.length, async (at) => {
      const pod = boundToNode(set, podFromTemplate(set.spec?.template ?? {}, set, daemonSets), targets[at] ?? '');
      pod.metadata.labels = { ...pod.metadata.labels, [REVISION_HASH]: hash };
      const generation = set.metadata.annotations?.['deprecated.daemonset.template.generation'];
      if (generation !== undefined) pod.metadata.labels['pod-template-generation'] = generation;
      this.#pending.wrote(key, await this.#podControl.create(set, pod));
    });
    return error ?? (removed.find((result) => result.status === 'rejected')?.reason as unknown);
  }

  #reportFinished(set: DaemonSet, { failed, succeeded }: DaemonPlan): void {
    const { recorder } = this.#environment;
    const reference = referenceTo(set, daemonSets);
    const podAndNode = (pod: Pod): string => `${pod.metadata.namespace}/${pod.metadata.name} on node ${nodeOf(pod)}`;
    for (const pod of failed) {
      const message = `Found failed daemon pod ${podAndNode(pod)}, will try to kill it`;
      recorder.event(reference, 'Warning', 'FailedDaemonPod', message);
    }
    for (const pod of succeeded) {
      const message = `Found succeeded daemon pod ${podAndNode(pod)}, will try to delete it`;
      recorder.event(reference, 'Normal', 'SucceededDaemonPod', message);
    }
  }
}
