/**
 * The sync loop: takes the changes of pods from the sources in order, admits new pods and passes each change to the pod's
 * worker.
 */
import type { Logger } from '../../api/component/logger.ts';
import { background } from '../../api/machinery/background.ts';
import { errorMessage } from '../../api/meta/error-message.ts';
import type { Pod } from '../base/model/pod.ts';
import type { MirrorPods } from '../sources/mirror-pods.ts';
import type { PodConfig, PodUpdate } from '../sources/pod-config.ts';
import type { StatusManager } from './status/status-manager.ts';
import { formatPod } from '../runtime/kuberuntime/pod-containers.ts';
import type { PodTable } from './pod-table.ts';
import type { Preemption } from './preemption.ts';
import type { Refusal } from '../base/model/refusal.ts';
import type { PodAdmission, Verdict } from './workers/pod-admission.ts';
import type { PodAllocations } from './workers/pod-allocation.ts';
import { isMirrorPod, isStaticPod } from '../base/model/pod-kinds.ts';
import type { PodManager } from './workers/pod-manager.ts';
import type { PodSync } from './workers/pod-sync.ts';
import { isEnded, type PodWorkers } from './workers/pod-workers.ts';

/** Allocates exclusive resources to a pod during its admission, before the node's other resources are checked. */
interface ResourceAdmission {
  /** Returns `undefined` if the pod requests no such resource. */
  admit(pod: Pod): Promise<Refusal | undefined> | undefined;
  /** Releases the resources of a pod that was rejected, or removed before it started. */
  release(podUid: string): void;
}

interface SyncLoopOptions {
  readonly logger: Logger;
  readonly table: PodTable;
  readonly desired: PodManager;
  readonly workers: PodWorkers;
  readonly statuses: Pick<StatusManager, 'reconcile'>;
  readonly sync: Pick<PodSync, 'reject'>;
  readonly mirrors: MirrorPods | undefined;
  readonly admission: PodAdmission;
  readonly allocations: PodAllocations;
  readonly resources: ResourceAdmission;
  readonly preemption: Preemption;
  /** Measures how long pods take to start, and counts rejected ones. */
  readonly startups: {
    observed(pod: Pod): void;
    rejected(podUid: string, reason: string): void;
    forget(podUid: string): void;
  };
}

/** Owns the order in which changes of pods take effect. */
export class SyncLoop {
  readonly #options: SyncLoopOptions;

  constructor(options: SyncLoopOptions) {
    this.#options = options;
  }

  /** Runs until the signal aborts. Containers keep running. */
  async run(podConfig: PodConfig, signal: AbortSignal): Promise<void> {
    await podConfig.run(signal, (update) => this.#onUpdate(update));
  }

  #onUpdate(update: PodUpdate): void {
    for (const pod of update.pods) {
      try {
        this.#apply(update.type, pod);
      } catch (error) {
        this.#options.logger.error({ err: error, pod: formatPod(pod) }, 'Cannot apply a change of a pod');
      }
    }
  }

  #apply(type: PodUpdate['type'], pod: Pod): void {
    const { desired, startups, statuses, table, workers } = this.#options;
    const { uid } = pod.metadata;
    if (type === 'remove') startups.forget(uid);
    else if (!isStaticPod(pod)) startups.observed(pod);
    const before = type === 'update' ? desired.byUid(uid) : undefined;
    if (before !== undefined) this.#options.allocations.requested(before, pod);
    if (type === 'remove') desired.remove(pod);
    else desired.set(pod);
    if (isMirrorPod(pod)) {
      this.#mirrorChanged(type, pod);
      return;
    }
    switch (type) {
      case 'add':
        // A manifest that was removed and added again has the same uid, and its pod may not have terminated yet.
        if (!isStaticPod(pod) || !workers.restartWhenFinished(uid)) this.admit(pod);
        break;
      case 'update':
      case 'delete':
        if (table.isAdmitting(uid)) table.updateAdmission(uid, pod);
        else workers.update(pod);
        break;
      case 'reconcile':
        statuses.reconcile(pod);
        // Only the status differs from that of the agent: other programs set the conditions of readiness gates in it.
        if ((pod.spec.readinessGates ?? []).length > 0) workers.update(pod);
        break;
      case 'remove':
        if (table.isAdmitting(uid)) table.updateAdmission(uid, undefined);
        this.#inBackground(this.#terminate(pod), pod, 'Terminating a removed pod');
        break;
    }
  }

  #mirrorChanged(type: PodUpdate['type'], mirror: Pod): void {
    const owner = this.#options.desired.podOfMirror(mirror);
    if (owner !== undefined) {
      if (type !== 'remove') this.#options.statuses.reconcile(owner, mirror);
      this.#options.workers.wake(owner.metadata.uid);
    } else if (type !== 'remove') this.#inBackground(this.deleteMirror(mirror), mirror, 'Deleting a mirror pod');
  }

  /**
   * Admits the pod and starts its worker, or rejects the pod. As in the kubelet, a pod that ran before the agent started is
   * rejected if the node would not take it now.
   */
  admit(pod: Pod): void {
    const { admission, resources, workers } = this.#options;
    if (isEnded(pod.status)) {
      workers.update(pod);
      return;
    }
    const refusal = admission.refusal(pod);
    if (refusal !== undefined) {
      this.#reject(pod, refusal);
      return;
    }
    // For a pod that ran before the agent started, the managers confirm the resources that it has.
    const allocation = pod.metadata.deletionTimestamp === undefined ? resources.admit(pod) : undefined;
    if (allocation === undefined) this.#decide(pod);
    else this.#inBackground(this.#decideWhenAllocated(pod, allocation), pod, 'Admitting a pod');
  }

  async #decideWhenAllocated(pod: Pod, allocation: Promise<Refusal | undefined>): Promise<void> {
    const { table } = this.#options;
    table.beginAdmission(pod);
    const refusal = await allocation.catch(unexpectedRefusal);
    const newest = table.underAdmission(pod.metadata.uid);
    if (newest === undefined) this.#endAdmission(pod);
    else if (refusal !== undefined) this.#reject(newest, refusal);
    else this.#decide(newest);
  }

  /** Decides whether the pod fits beside the other ones. */
  #decide(pod: Pod): void {
    const { admission, allocations, table } = this.#options;
    const verdict: Verdict = admission.admit(
      allocations.allocated(pod),
      table.activeBefore(pod).map((other) => allocations.allocated(other)),
    );
    switch (verdict.kind) {
      case 'refuse':
        this.#reject(pod, verdict.refusal);
        break;
      case 'preempt':
        this.#inBackground(this.#startAfterPreemption(pod, verdict), pod, 'Admitting a critical pod');
        break;
      case 'admit':
        this.#start(pod);
        break;
    }
  }

  /**
   * Preempts the victims and then starts the pod. The pod counts as under admission meanwhile, so that no other pod takes the
   * place of the victims.
   */
  async #startAfterPreemption(pod: Pod, { victims, resource }: Extract<Verdict, { kind: 'preempt' }>): Promise<void> {
    const { preemption, table } = this.#options;
    if (!table.isAdmitting(pod.metadata.uid)) table.beginAdmission(pod);
    await preemption.preempt(pod, victims, resource);
    this.#start(pod);
  }

  #start(pod: Pod): void {
    const { table, workers } = this.#options;
    const newest = table.isAdmitting(pod.metadata.uid) ? this.#endAdmission(pod) : pod;
    if (newest !== undefined) workers.update(newest);
  }

  /**
   * Ends the admission of a pod and returns its newest form. If the pod was removed in the meantime, releases its resources and
   * returns `undefined`.
   */
  #endAdmission({ metadata: { uid } }: Pod): Pod | undefined {
    const { resources, table } = this.#options;
    const newest = table.endAdmission(uid);
    if (newest === undefined) resources.release(uid);
    return newest;
  }

  /**
   * Rejects a pod with the reason of the refusal, and ends its admission. A pod that has run terminates with its own grace
   * period, as in the kubelet.
   */
  #reject(pod: Pod, refusal: Refusal): void {
    const { resources, startups, sync, table, workers } = this.#options;
    table.endAdmission(pod.metadata.uid);
    const { containerStatuses = [], initContainerStatuses = [] } = pod.status ?? {};
    const hasRun = [...containerStatuses, ...initContainerStatuses].some(({ containerID = '' }) => containerID !== '');
    startups.rejected(pod.metadata.uid, refusal.reason);
    const status = sync.reject(pod, refusal, { hasRun });
    if (!hasRun) {
      resources.release(pod.metadata.uid);
      return;
    }
    const killed = workers.kill(pod, { gracePeriodSeconds: undefined, status });
    this.#inBackground(killed, pod, 'Terminating a rejected pod');
  }

  async #terminate(pod: Pod): Promise<void> {
    // The mirror pod of a static pod gets the last status. Then housekeeping deletes it.
    await this.#options.workers.kill(pod, { gracePeriodSeconds: undefined, status: undefined });
  }

  /**
   * Deletes a mirror pod whose static pod is gone, unless a source has not sent its pods or a container of the static pod
   * may run. Logs a failure.
   */
  async deleteMirror(mirror: Pod): Promise<void> {
    const { logger, mirrors, table, workers } = this.#options;
    if (!table.sourcesReady() || workers.mayStaticPodRun(mirror)) return;
    try {
      await mirrors?.delete(mirror);
    } catch (error) {
      logger.debug({ err: error, pod: formatPod(mirror) }, 'Cannot delete a mirror pod without a static pod yet');
    }
  }

  #inBackground(work: Promise<unknown>, pod: Pod, description: string): void {
    background(work, { logger: this.#options.logger, what: description, fields: { pod: formatPod(pod) } });
  }
}

/** Returns the refusal for a manager that fails: a pod that stayed under admission would never start nor terminate. */
function unexpectedRefusal(error: unknown): Refusal {
  const why = errorMessage(error);
  return { reason: 'UnexpectedAdmissionError', message: `Allocate failed due to ${why}, which is unexpected` };
}
