/** Implements stateful sets, whose pods have stable names and volumes. `stateful-set-core.ts` decides. */
import { fromLabelSelector } from '../../../api/meta/selector.ts';
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import { isAlreadyExists, isNotFound } from '../../../api/meta/status-error.ts';
import { referenceTo } from '../../../api/client/event-recorder.ts';
import type { Informer } from '../../../api/client/informer.ts';
import type { ControllerRevision, PersistentVolumeClaim, Pod, StatefulSet } from '../../../api/kinds/kinds.ts';
import { controllerRevisions, persistentVolumeClaims, pods, statefulSets } from '../../../api/client/resources.ts';
import { syncRevisions, templateOf, truncateRevisions, REVISION_HASH } from '../controller-revisions.ts';
import { ReconcileLoop, splitKey, type ControllerEnvironment, type RunController } from '../controller.ts';
import { claim, indexByController } from '../owner-references.ts';
import { PendingWrites } from '../pending-writes.ts';
import { enqueueOwner } from '../pod-owners.ts';
import { podFromTemplate } from '../pod-control.ts';
import { isPodReady, podCondition } from '../pod-state.ts';
import {
  claimsOf,
  computeStatus,
  ordinalOf,
  planActions,
  POD_NAME_LABEL,
  withIdentity,
  type Action,
  type PlanInput,
} from './stateful-set-core.ts';
import { wantedOwners } from './claim-retention.ts';

/** How long after a pod becomes available its set is reconciled. */
const AVAILABILITY_SLACK_MS = 50;

/** Reconciles `concurrentStatefulSetSyncs` sets at a time. */
export const runStatefulSets: RunController = (environment, signal) =>
  new StatefulSetController(environment).run(signal);

class StatefulSetController {
  readonly #environment: ControllerEnvironment;
  readonly #loop: ReconcileLoop;
  readonly #sets: Informer<StatefulSet>;
  readonly #pods: Informer<Pod>;
  readonly #claims: Informer<PersistentVolumeClaim>;
  readonly #revisions: Informer<ControllerRevision>;
  readonly #pending: PendingWrites<Pod>;

  constructor(environment: ControllerEnvironment) {
    this.#environment = environment;
    this.#loop = new ReconcileLoop(environment, {
      workers: environment.options.concurrentStatefulSetSyncs,
      reconcile: (key) => this.#reconcile(key),
    });
    this.#sets = environment.informers.for(statefulSets);
    this.#pods = environment.informers.for(pods);
    this.#claims = environment.informers.for(persistentVolumeClaims);
    this.#revisions = environment.informers.for(controllerRevisions);
    this.#pending = new PendingWrites(this.#pods, environment.clock);
    indexByController(this.#pods);
    indexByController(this.#revisions);
  }

  run(signal: AbortSignal): Promise<void> {
    this.#loop.follow(this.#sets);
    const podChanged = enqueueOwner(this.#loop, this.#sets, statefulSets);
    this.#pods.addHandler({ add: podChanged, update: (_, pod) => podChanged(pod), delete: podChanged });
    return this.#loop.run(signal, this.#sets, this.#pods, this.#claims, this.#revisions);
  }

  async #reconcile(key: string): Promise<void> {
    const { namespace, name } = splitKey(key);
    const set = this.#sets.get(namespace, name);
    if (set === undefined) return this.#pending.forget(key);
    const { client, clock } = this.#environment;
    const selector = fromLabelSelector(set.spec?.selector);
    const members = await claim({
      client,
      owner: set,
      ownerResource: statefulSets,
      resource: pods,
      informer: this.#pods,
      selector,
      matches: (pod) => ordinalOf(set, pod) !== undefined,
      onWritten: (pod) => this.#pending.wrote(key, pod),
    });
    const { all, update } = await syncRevisions({
      client,
      informer: this.#revisions,
      owner: set,
      ownerResource: statefulSets,
      selector,
      template: set.spec?.template ?? {},
      collisionCount: set.status?.collisionCount ?? 0,
    });
    const current = all.find((revision) => revision.metadata.name === set.status?.currentRevision) ?? update;
    const input: PlanInput = {
      set,
      pods: members,
      currentRevision: current.metadata.name ?? '',
      updateRevision: update.metadata.name ?? '',
      nowMs: clock.now(),
    };
    let failure: unknown;
    if (set.metadata.deletionTimestamp === undefined) await this.#setClaimOwners(set, members);
    if (set.metadata.deletionTimestamp === undefined && this.#pending.settled(key)) {
      for (const action of planActions(input)) {
        try {
          await this.#execute(
            key,
            set,
            action,
            action.kind === 'create' && action.revision === 'current' ? current : update,
          );
        } catch (error) {
          failure ??= error;
        }
      }
    }
    const status = computeStatus(input, { current: current.metadata.name ?? '', update: update.metadata.name ?? '' });
    if (!semanticEqual(status, set.status))
      await client.update(statefulSets, { ...set, status }, { subresource: 'status' });
    const used = new Set([
      status.currentRevision ?? '',
      status.updateRevision ?? '',
      ...members.map((pod) => pod.metadata.labels?.[REVISION_HASH] ?? ''),
    ]);
    await truncateRevisions(client, all, used, set.spec?.revisionHistoryLimit ?? 10);
    this.#waitForAvailability(key, set, members);
    if (failure !== undefined) throw failure;
  }

  /**
   * Sets the owners of claims by the retention policy of the set. This happens before a pod is deleted, because the garbage
   * collector then deletes or keeps its claims.
   */
  async #setClaimOwners(set: StatefulSet, members: readonly Pod[]): Promise<void> {
    const namespace = set.metadata.namespace ?? '';
    for (const pod of members) {
      const ordinal = ordinalOf(set, pod);
      if (ordinal === undefined) continue;
      for (const { metadata } of claimsOf(set, ordinal)) {
        const existing = this.#claims.get(namespace, metadata.name ?? '');
        if (existing === undefined || existing.metadata.deletionTimestamp !== undefined) continue;
        const ownerReferences = wantedOwners(set, { pod, ordinal }, existing);
        if (ownerReferences === undefined) continue;
        await this.#environment.client.update(persistentVolumeClaims, {
          ...existing,
          metadata: { ...existing.metadata, ownerReferences },
        });
      }
    }
  }

  #waitForAvailability(key: string, set: StatefulSet, members: readonly Pod[]): void {
    const seconds = set.spec?.minReadySeconds ?? 0;
    if (seconds === 0) return;
    const nowMs = this.#environment.clock.now();
    for (const pod of members) {
      const since = Date.parse(podCondition(pod, 'Ready')?.lastTransitionTime ?? '');
      if (isPodReady(pod) && since + seconds * 1000 > nowMs)
        this.#loop.queue.addAfter(key, since + seconds * 1000 - nowMs + AVAILABILITY_SLACK_MS);
    }
  }

  async #execute(key: string, set: StatefulSet, action: Action, revision: ControllerRevision): Promise<void> {
    const { client, recorder } = this.#environment;
    const reference = referenceTo(set, statefulSets);
    const namespace = set.metadata.namespace ?? '';
    if (action.kind === 'claims') return this.#ensureClaims(set, action.ordinal);
    if (action.kind === 'identify') return this.#identify(key, set, action.pod);
    if (action.kind === 'delete') {
      const { name = '', uid } = action.pod.metadata;
      try {
        await client.delete(pods, namespace, name, uid === undefined ? {} : { preconditions: { uid } });
        this.#pending.deleted(key, action.pod);
        recorder.event(
          reference,
          'Normal',
          'SuccessfulDelete',
          `Delete Pod ${name} in StatefulSet ${set.metadata.name} successful`,
        );
      } catch (error) {
        if (isNotFound(error)) return;
        recorder.event(
          reference,
          'Warning',
          'FailedDelete',
          `Delete Pod ${name} in StatefulSet ${set.metadata.name} failed error: ${(error as Error).message}`,
        );
        throw error;
      }
      return;
    }
    await this.#ensureClaims(set, action.ordinal);
    const pod = withIdentity(
      set,
      podFromTemplate(templateOf(revision), set, statefulSets),
      action.ordinal,
      // The name of the revision; pods of daemon sets have only its hash here.
      revision.metadata.name ?? '',
    );
    try {
      this.#pending.wrote(key, await client.create(pods, namespace, pod));
      recorder.event(
        reference,
        'Normal',
        'SuccessfulCreate',
        `Create Pod ${pod.metadata.name} in StatefulSet ${set.metadata.name} successful`,
      );
    } catch (error) {
      if (isAlreadyExists(error)) throw error;
      recorder.event(
        reference,
        'Warning',
        'FailedCreate',
        `Create Pod ${pod.metadata.name} in StatefulSet ${set.metadata.name} failed error: ${(error as Error).message}`,
      );
      throw error;
    }
  }

  async #identify(key: string, set: StatefulSet, { metadata: { name = '', uid } }: Pod): Promise<void> {
    const { client, recorder } = this.#environment;
    const reference = referenceTo(set, statefulSets);
    const patch = { metadata: { uid, labels: { [POD_NAME_LABEL]: name } } };
    const action = `Update Pod ${name} in StatefulSet ${set.metadata.name}`;
    try {
      const pod = await client.patch(pods, set.metadata.namespace ?? '', name, { type: 'strategic', body: patch });
      this.#pending.wrote(key, pod);
      recorder.event(reference, 'Normal', 'SuccessfulUpdate', `${action} successful`);
    } catch (error) {
      if (isNotFound(error)) return;
      recorder.event(reference, 'Warning', 'FailedUpdate', `${action} failed error: ${(error as Error).message}`);
      throw error;
    }
  }

  async #ensureClaims(set: StatefulSet, ordinal: number): Promise<void> {
    const { client, recorder } = this.#environment;
    const reference = referenceTo(set, statefulSets);
    const namespace = set.metadata.namespace ?? '';
    const pod = `${set.metadata.name}-${ordinal}`;
    for (const wanted of claimsOf(set, ordinal)) {
      const name = wanted.metadata.name ?? '';
      const existing = this.#claims.get(namespace, name);
      if (existing?.metadata.deletionTimestamp !== undefined) throw new Error(`pvc ${name} is being deleted`);
      if (existing !== undefined) continue;
      try {
        await client.create(persistentVolumeClaims, namespace, wanted);
        recorder.event(
          reference,
          'Normal',
          'SuccessfulCreate',
          `Create Claim ${name} Pod ${pod} in StatefulSet ${set.metadata.name} success`,
        );
      } catch (error) {
        if (isAlreadyExists(error)) continue;
        recorder.event(
          reference,
          'Warning',
          'FailedCreate',
          `Create Claim ${name} for Pod ${pod} in StatefulSet ${set.metadata.name} failed error: ${(error as Error).message}`,
        );
        throw error;
      }
    }
  }
}
