/**
 * Reconciles one deployment once: creates a replica set for the current template, scales old ones down as the strategy allows,
 * and writes the progress of the rollout to the status.
 */
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import { isAlreadyExists, isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import { referenceTo } from '../../../api/client/event-recorder.ts';
import type { EventType } from '../../../api/client/event-report.ts';
import type { Informer } from '../../../api/client/informer.ts';
import type { Deployment, Pod, ReplicaSet } from '../../../api/kinds/kinds.ts';
import { deployments, replicaSets } from '../../../api/client/resources.ts';
import type { ControllerEnvironment } from '../controller.ts';
import { controllerOf, controllerReference, ownedBy } from '../owner-references.ts';
import { isNamespaceTerminating } from '../pod-control.ts';
import { isPodFinished } from '../pod-state.ts';
import { safeHash } from '../safe-hash.ts';
import {
  computeStatus,
  conditionOf,
  hasDeadline,
  hasTimedOut,
  isComplete,
  newCondition,
  withCondition,
  withProgress,
  type DeploymentCondition,
  type DeploymentStatus,
} from './conditions.ts';
import {
  equalIgnoringHash,
  findNewReplicaSet,
  isRollingUpdate,
  maxRevision,
  newSetAnnotations,
  newSetSize,
  REVISION,
  sizeAnnotations,
  sizeOf,
  TEMPLATE_HASH,
} from './replica-sets.ts';
import { isScalingEvent, outdated, resizeNew, resizeOld, scaleAll, type Resize } from './rollout.ts';

/** How long after the deadline of a rollout the deployment is reconciled again. It is also the shortest delay. */
const RECHECK_MS = 1000;

/** A single reconciliation of a deployment. */
export class DeploymentSync {
  readonly #environment: ControllerEnvironment;
  /** The deployment, whose status has the conditions of this reconciliation. */
  #deployment: Deployment;
  #all: ReplicaSet[];
  readonly #pods: Informer<Pod>;
  #newSet: ReplicaSet | undefined;
  /** The time after which the deployment is to be reconciled again; `undefined` if events suffice. */
  recheckMs: number | undefined;

  constructor(
    environment: ControllerEnvironment,
    deployment: Deployment,
    all: readonly ReplicaSet[],
    podInformer: Informer<Pod>,
  ) {
    this.#environment = environment;
    this.#deployment = deployment;
    this.#all = [...all];
    this.#pods = podInformer;
    this.#newSet = findNewReplicaSet(deployment, all);
  }

  get #old(): ReplicaSet[] {
    return this.#all.filter((set) => set !== this.#newSet);
  }

  /** Takes one step towards the template, and writes the status. */
  async step(): Promise<void> {
    const deployment = this.#deployment;
    if (deployment.metadata.deletionTimestamp !== undefined) {
      await this.#refreshNewSet();
      return this.#writePlainStatus();
    }
    await this.#recordPause();
    if (deployment.spec?.paused === true || isScalingEvent(deployment, this.#all)) {
      await this.#refreshNewSet();
      await this.#apply(scaleAll(this.#deployment, this.#newSet, this.#old));
      if (deployment.spec?.paused === true) await this.#removeOutdated();
      return this.#writePlainStatus();
    }
    await (isRollingUpdate(deployment) ? this.#roll() : this.#recreate());
    await this.#writeStatus();
  }

  async #roll(): Promise<void> {
    const newSet = (await this.#refreshNewSet()) ?? (await this.#createNewSet());
    const grow = resizeNew(this.#deployment, newSet, this.#all);
    if (grow !== undefined) return this.#apply([grow]);
    const shrink = resizeOld(this.#deployment, newSet, this.#old);
    if (shrink.length > 0) return this.#apply(shrink);
    if (isComplete(this.#deployment, this.#deployment.status ?? {})) await this.#removeOutdated();
  }

  async #recreate(): Promise<void> {
    await this.#refreshNewSet();
    const shrink = this.#old.filter((set) => sizeOf(set) > 0).map((set) => ({ set, replicas: 0 }));
    if (shrink.length > 0) return this.#apply(shrink);
    if (this.#old.some((set) => ownedBy(this.#pods, set).some((pod) => !isPodFinished(pod)))) return;
    const newSet = (await this.#refreshNewSet()) ?? (await this.#createNewSet());
    const wanted = this.#deployment.spec?.replicas ?? 1;
    if (sizeOf(newSet) !== wanted) return this.#apply([{ set: newSet, replicas: wanted }]);
    if (isComplete(this.#deployment, this.#deployment.status ?? {})) await this.#removeOutdated();
  }

  async #recordPause(): Promise<void> {
    if (!hasDeadline(this.#deployment)) return;
    const current = conditionOf(this.#deployment.status, 'Progressing');
    if (current?.reason === 'ProgressDeadlineExceeded') return;
    const paused = current?.reason === 'DeploymentPaused';
    if (this.#deployment.spec?.paused === true && !paused) {
      await this.#addCondition('Unknown', 'DeploymentPaused', 'Deployment is paused');
    } else if (this.#deployment.spec?.paused !== true && paused) {
      await this.#addCondition('Unknown', 'DeploymentResumed', 'Deployment is resumed');
    }
  }

  get #newRevision(): bigint {
    return maxRevision(this.#old) + 1n;
  }

  /** Updates the replica set of the current template, if there is one, and sets the revision of the deployment. */
  async #refreshNewSet(): Promise<ReplicaSet | undefined> {
    if (this.#newSet !== undefined) await this.#updateNewSet(this.#newSet, this.#newRevision);
    return this.#newSet;
  }

  /** Creates the replica set of the current template, and sets the revision of the deployment. */
  async #createNewSet(): Promise<ReplicaSet> {
    const revision = this.#newRevision;
    const deployment = this.#deployment;
    const set = this.#buildNewSet(revision);
    let created: ReplicaSet;
    try {
      created = await this.#environment.client.create(replicaSets, deployment.metadata.namespace ?? '', set);
    } catch (error) {
      const existing = isAlreadyExists(error) ? await this.#existing(set) : undefined;
      if (existing === undefined) {
        await this.#creationFailed(set, error);
        throw error;
      }
      created = existing;
    }
    this.#newSet = created;
    this.#all.push(created);
    if (sizeOf(created) > 0) {
      this.#event(
        'Normal',
        'ScalingReplicaSet',
        `Scaled up replica set ${created.metadata.name} from 0 to ${sizeOf(created)}`,
      );
    }
    await this.#setRevision(created.metadata.annotations?.[REVISION] ?? String(revision));
    if (hasDeadline(deployment)) {
      this.#addLocally('True', 'NewReplicaSetCreated', `Created new replica set "${created.metadata.name}"`);
    }
    return created;
  }

  #buildNewSet(revision: bigint): ReplicaSet {
    const deployment = this.#deployment;
    const template = structuredClone(deployment.spec?.template ?? {});
    const hash = safeHash(template, deployment.status?.collisionCount ?? 0);
    template.metadata = { ...template.metadata, labels: { ...template.metadata?.labels, [TEMPLATE_HASH]: hash } };
    const selector = structuredClone(deployment.spec?.selector ?? {});
    selector.matchLabels = { ...selector.matchLabels, [TEMPLATE_HASH]: hash };
    const minReadySeconds = deployment.spec?.minReadySeconds;
    return {
      apiVersion: 'apps/v1',
      kind: 'ReplicaSet',
      metadata: {
        name: `${deployment.metadata.name}-${hash}`,
        namespace: deployment.metadata.namespace ?? '',
        labels: { ...template.metadata.labels },
        annotations: { ...newSetAnnotations(deployment, {}, revision), ...sizeAnnotations(deployment) },
        ownerReferences: [controllerReference(deployment, deployments)],
      },
      spec: {
        replicas: newSetSize(deployment, this.#all, 0),
        ...(minReadySeconds === undefined ? {} : { minReadySeconds }),
        selector,
        template,
      },
    };
  }

  /**
   * Resolves to the existing replica set of this name if an unfinished reconciliation created it. Otherwise the hashes of two
   * templates collide: it raises the collision count of the deployment and resolves to `undefined`.
   */
  async #existing(set: ReplicaSet): Promise<ReplicaSet | undefined> {
    const deployment = this.#deployment;
    const found = await this.#environment.client.get(
      replicaSets,
      set.metadata.namespace ?? '',
      set.metadata.name ?? '',
    );
    if (
      controllerOf(found)?.uid === deployment.metadata.uid &&
      equalIgnoringHash(found.spec?.template, set.spec?.template)
    )
      return found;
    const collisionCount = (deployment.status?.collisionCount ?? 0) + 1;
    await this.#environment.client.update(
      deployments,
      { ...deployment, status: { ...deployment.status, collisionCount } },
      { subresource: 'status' },
    );
    return undefined;
  }

  async #creationFailed(set: ReplicaSet, error: unknown): Promise<void> {
    if (isNamespaceTerminating(error) || isAlreadyExists(error)) return;
    const message = `Failed to create new replica set "${set.metadata.name}": ${(error as Error).message}`;
    if (hasDeadline(this.#deployment)) await this.#addCondition('False', 'ReplicaSetCreateError', message);
    this.#event('Warning', 'ReplicaSetCreateError', message);
  }

  async #updateNewSet(set: ReplicaSet, revision: bigint): Promise<void> {
    const before = set.metadata.annotations ?? {};
    const annotations = newSetAnnotations(this.#deployment, before, revision);
    const minReadySeconds = this.#deployment.spec?.minReadySeconds ?? 0;
    let current = set;
    if (annotations !== before || (set.spec?.minReadySeconds ?? 0) !== minReadySeconds) {
      const next = structuredClone(set);
      next.metadata.annotations = { ...annotations };
      if (next.spec !== undefined) next.spec.minReadySeconds = minReadySeconds;
      current = await this.#environment.client.update(replicaSets, next);
      this.#replace(set, current);
      this.#newSet = current;
    }
    await this.#setRevision(current.metadata.annotations?.[REVISION] ?? '');
    if (hasDeadline(this.#deployment) && conditionOf(this.#deployment.status, 'Progressing') === undefined) {
      this.#addLocally('True', 'FoundNewReplicaSet', `Found new replica set "${set.metadata.name}"`);
    }
  }

  async #setRevision(revision: string): Promise<void> {
    if (revision === '' || this.#deployment.metadata.annotations?.[REVISION] === revision) return;
    const next = structuredClone(this.#deployment);
    next.metadata.annotations = { ...next.metadata.annotations, [REVISION]: revision };
    // Writes through `/status`, so that changed annotations do not increment the generation.
    const { status } = this.#deployment;
    const written = await this.#environment.client.update(deployments, next, { subresource: 'status' });
    this.#deployment = status === undefined ? written : { ...written, status };
  }

  async #apply(resizes: readonly Resize[]): Promise<void> {
    for (const { set, replicas } of resizes) {
      const annotations = { ...set.metadata.annotations, ...sizeAnnotations(this.#deployment) };
      if (sizeOf(set) === replicas && semanticEqual(annotations, set.metadata.annotations)) continue;
      const next = structuredClone(set);
      next.metadata.annotations = annotations;
      if (next.spec !== undefined) next.spec.replicas = replicas;
      const written = await this.#environment.client.update(replicaSets, next);
      if (sizeOf(set) !== replicas) {
        const direction = sizeOf(set) < replicas ? 'up' : 'down';
        this.#event(
          'Normal',
          'ScalingReplicaSet',
          `Scaled ${direction} replica set ${set.metadata.name} from ${sizeOf(set)} to ${replicas}`,
        );
      }
      this.#replace(set, written);
      if (set === this.#newSet) this.#newSet = written;
    }
  }

  async #removeOutdated(): Promise<void> {
    for (const set of outdated(this.#deployment, this.#old)) {
      await tolerate(
        this.#environment.client.delete(replicaSets, set.metadata.namespace ?? '', set.metadata.name ?? ''),
        isNotFound,
      );
    }
  }

  #replace(old: ReplicaSet, current: ReplicaSet): void {
    this.#all = this.#all.map((set) => (set === old ? current : set));
  }

  #condition(status: string, reason: string, message: string): DeploymentCondition {
    return newCondition({ type: 'Progressing', status, reason, message }, this.#environment.clock.now());
  }

  /** Sets the condition in memory. The next write of the status includes it. */
  #addLocally(status: string, reason: string, message: string): void {
    const conditions = withCondition(
      this.#deployment.status?.conditions ?? [],
      this.#condition(status, reason, message),
    );
    this.#deployment = { ...this.#deployment, status: { ...this.#deployment.status, conditions } };
    this.#dirty = true;
  }

  /** Whether the status in memory has a condition that is not written yet. */
  #dirty = false;

  async #addCondition(status: string, reason: string, message: string): Promise<void> {
    const conditions = withCondition(
      this.#deployment.status?.conditions ?? [],
      this.#condition(status, reason, message),
    );
    const next = { ...this.#deployment, status: { ...this.#deployment.status, conditions } };
    this.#deployment = await this.#environment.client.update(deployments, next, { subresource: 'status' });
  }

  async #writePlainStatus(): Promise<void> {
    const sets = { all: this.#all, newSet: this.#newSet };
    await this.#write(computeStatus(this.#deployment, sets, this.#environment.clock.now()));
  }

  async #writeStatus(): Promise<void> {
    const now = this.#environment.clock.now();
    const sets = { all: this.#all, newSet: this.#newSet };
    const computed = computeStatus(this.#deployment, sets, now);
    const status = withProgress(this.#deployment, computed, sets, now);
    const written = await this.#write(status);
    if (!written) this.#planRecheck(status);
  }

  async #write(status: DeploymentStatus): Promise<boolean> {
    if (!this.#dirty && semanticEqual(status, this.#deployment.status)) return false;
    await this.#environment.client.update(deployments, { ...this.#deployment, status }, { subresource: 'status' });
    return true;
  }

  /**
   * Plans the next reconciliation of a rollout without progress for its deadline, because no event reports that the deadline
   * has passed.
   */
  #planRecheck(status: DeploymentStatus): void {
    const current = conditionOf(status, 'Progressing');
    if (!hasDeadline(this.#deployment) || current === undefined || isComplete(this.#deployment, status)) return;
    if (hasTimedOut(this.#deployment, status, this.#environment.clock.now())) return;
    const deadline =
      Date.parse(current.lastUpdateTime ?? '') + (this.#deployment.spec?.progressDeadlineSeconds ?? 0) * 1000;
    this.recheckMs = Math.max(RECHECK_MS, deadline - this.#environment.clock.now() + RECHECK_MS);
  }

  #event(type: EventType, reason: string, message: string): void {
    this.#environment.recorder.event(referenceTo(this.#deployment, deployments), type, reason, message);
  }
}
