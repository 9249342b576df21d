/** The pods of this node: the desired ones, those under admission, and the states of their workers with their statuses. */
import type { Pod } from '../base/model/pod.ts';
import type { PodConfig } from '../sources/pod-config.ts';
import type { StatusManager } from './status/status-manager.ts';
import type { PodManager } from './workers/pod-manager.ts';
import { isEnded, type PodWorkers } from './workers/pod-workers.ts';

interface PodTableOptions {
  readonly desired: PodManager;
  readonly workers: PodWorkers;
  readonly statuses: Pick<StatusManager, 'get'>;
  readonly sources: Pick<PodConfig, 'allSourcesReady'>;
}

/** The common view of all pods. Returned pods are shared and must not be changed. */
export class PodTable {
  readonly #options: PodTableOptions;
  /** Pods under admission in their newest form, by uid; `undefined` if the pod was removed in the meantime. */
  readonly #admitting = new Map<string, Pod | undefined>();

  constructor(options: PodTableOptions) {
    this.#options = options;
  }

  /** Whether every source of pods has sent its first full set. */
  sourcesReady(): boolean {
    return this.#options.sources.allSourcesReady();
  }

  /** Returns the desired pods with their current statuses, without mirror pods. */
  pods(): readonly Pod[] {
    return this.#options.desired.list().map((pod) => this.#withStatus(pod));
  }

  /** Returns the desired pod of this name with its current status, or `undefined` if there is none. */
  byName(namespace: string, name: string): Pod | undefined {
    const pod = this.#options.desired.byName(namespace, name);
    return pod === undefined ? undefined : this.#withStatus(pod);
  }

  /**
   * Returns the desired pod with this uid, or the static pod whose mirror pod has it, with its current status. Returns
   * `undefined` if there is none.
   */
  byUid(uid: string): Pod | undefined {
    const pod = this.#options.desired.byAnyUid(uid);
    return pod === undefined ? undefined : this.#withStatus(pod);
  }

  /**
   * Returns the desired pods that use resources of the node: those under admission, and those that have an unfinished worker
   * and whose phase is not final.
   */
  active(): readonly Pod[] {
    return this.#options.desired
      .list()
      .filter(
        ({ metadata, status }) =>
          this.#admitting.has(metadata.uid) || (!this.isFinished(metadata.uid) && !isEnded(status)),
      );
  }

  /**
   * Returns the other active pods that count when the admission of this pod is decided. Those whose admission began later do
   * not count, because this pod counts for them.
   */
  activeBefore({ metadata: { uid } }: Pod): readonly Pod[] {
    const uids = [...this.#admitting.keys()];
    const later = new Set(this.#admitting.has(uid) ? uids.slice(uids.indexOf(uid) + 1) : []);
    return this.active().filter(({ metadata: other }) => other.uid !== uid && !later.has(other.uid));
  }

  /** Returns the uids of desired pods and of pods that have a worker, finished or not. Valid until the next `await`. */
  uids(): ReadonlySet<string> {
    const { desired, workers } = this.#options;
    return new Set([...desired.list().map((pod) => pod.metadata.uid), ...workers.pods().keys()]);
  }

  /** Whether the pod has no worker, or its worker has finished. */
  isFinished(uid: string): boolean {
    const state = this.#options.workers.state(uid);
    return state === undefined || state.kind === 'finished';
  }

  /** Whether the admission of the pod has begun and not ended. */
  isAdmitting(uid: string): boolean {
    return this.#admitting.has(uid);
  }

  /** Counts the pod among those whose admission has begun. */
  beginAdmission(pod: Pod): void {
    this.#admitting.set(pod.metadata.uid, pod);
  }

  /** Stores the newest form of a pod under admission; `undefined` if the pod was removed. */
  updateAdmission(uid: string, newest: Pod | undefined): void {
    this.#admitting.set(uid, newest);
  }

  /** Returns the newest form of a pod under admission, or `undefined` if it was removed or is not under admission. */
  underAdmission(uid: string): Pod | undefined {
    return this.#admitting.get(uid);
  }

  /** Ends the admission. Returns the newest form of the pod, or `undefined` if it was removed or was not under admission. */
  endAdmission(uid: string): Pod | undefined {
    const newest = this.underAdmission(uid);
    this.#admitting.delete(uid);
    return newest;
  }

  #withStatus(pod: Pod): Pod {
    const status = this.#options.statuses.get(pod.metadata.uid);
    return status === undefined ? pod : { ...pod, status };
  }
}
