/**
 * Implements deployments: decides which events enqueue which deployment, and which replica sets belong to it.
 * `deployment-sync.ts` reconciles them.
 */
import { fromLabelSelector, type Selector } from '../../../api/meta/selector.ts';
import { referenceTo } from '../../../api/client/event-recorder.ts';
import type { EventType } from '../../../api/client/event-report.ts';
import type { Informer } from '../../../api/client/informer.ts';
import type { Deployment, Pod, ReplicaSet } from '../../../api/kinds/kinds.ts';
import { deployments, pods, replicaSets } from '../../../api/client/resources.ts';
import { ReconcileLoop, splitKey, type ControllerEnvironment, type RunController } from '../controller.ts';
import { claim, controllerOf, indexByController, ownerKey } from '../owner-references.ts';
import { isRollingUpdate } from './replica-sets.ts';
import { DeploymentSync } from './deployment-sync.ts';

/** Reconciles `concurrentDeploymentSyncs` deployments at a time. */
export const runDeployments: RunController = (environment, signal) => new DeploymentController(environment).run(signal);

class DeploymentController {
  readonly #environment: ControllerEnvironment;
  readonly #loop: ReconcileLoop;
  readonly #deployments: Informer<Deployment>;
  readonly #sets: Informer<ReplicaSet>;
  readonly #pods: Informer<Pod>;

  constructor(environment: ControllerEnvironment) {
    this.#environment = environment;
    this.#loop = new ReconcileLoop(environment, {
      workers: environment.options.concurrentDeploymentSyncs,
      reconcile: (key) => this.#reconcile(key),
    });
    this.#deployments = environment.informers.for(deployments);
    this.#sets = environment.informers.for(replicaSets);
    this.#pods = environment.informers.for(pods);
    indexByController(this.#sets);
    indexByController(this.#pods);
  }

  run(signal: AbortSignal): Promise<void> {
    this.#loop.follow(this.#deployments);
    this.#sets.addHandler({
      add: (set) => this.#setChanged(set),
      update: (previous, set) => {
        const before = ownerKey(previous, deployments);
        if (before !== undefined && before !== ownerKey(set, deployments)) this.#loop.queue.add(before);
        this.#setChanged(set);
      },
      delete: (set) => this.#setChanged(set),
    });
    // The strategy Recreate continues once the last old pod is deleted.
    this.#pods.addHandler({ delete: (pod) => this.#podGone(pod) });
    return this.#loop.run(signal, this.#deployments, this.#sets, this.#pods);
  }

  #setChanged(set: ReplicaSet): void {
    const key = ownerKey(set, deployments);
    if (key !== undefined) this.#loop.queue.add(key);
    else if (controllerOf(set) === undefined) {
      for (const deployment of this.#deployments.list(set.metadata.namespace ?? '')) {
        if (selectorOf(deployment).matches(set.metadata.labels)) this.#loop.enqueue(deployment);
      }
    }
  }

  #podGone(pod: Pod): void {
    const setKey = ownerKey(pod, replicaSets);
    if (setKey === undefined) return;
    const { namespace, name } = splitKey(setKey);
    const set = this.#sets.get(namespace, name);
    const key = set === undefined ? undefined : ownerKey(set, deployments);
    const owner = key === undefined ? undefined : this.#deployments.get(namespace, splitKey(key).name);
    if (owner !== undefined && !isRollingUpdate(owner)) this.#loop.enqueue(owner);
  }

  async #reconcile(key: string): Promise<void> {
    const { namespace, name } = splitKey(key);
    const deployment = this.#deployments.get(namespace, name);
    if (deployment === undefined) return;
    const selector = deployment.spec?.selector;
    if (Object.keys(selector?.matchLabels ?? {}).length === 0 && (selector?.matchExpressions ?? []).length === 0) {
      this.#event(
        deployment,
        'Warning',
        'SelectingAll',
        'This deployment is selecting all pods. A non-empty selector is required.',
      );
      return;
    }
    const all = await claim({
      client: this.#environment.client,
      owner: deployment,
      ownerResource: deployments,
      resource: replicaSets,
      informer: this.#sets,
      selector: selectorOf(deployment),
    });
    const sync = new DeploymentSync(this.#environment, deployment, all, this.#pods);
    await sync.step();
    const delayMs = sync.recheckMs;
    if (delayMs !== undefined) this.#loop.queue.addAfter(key, delayMs);
  }

  #event(deployment: Deployment, type: EventType, reason: string, message: string): void {
    this.#environment.recorder.event(referenceTo(deployment, deployments), type, reason, message);
  }
}

function selectorOf(deployment: Deployment): Selector {
  return fromLabelSelector(deployment.spec?.selector);
}
