/**
 * Evicts the victims of preemptions, one after the other. The pod for which they are evicted is not tried meanwhile, because
 * the node would still lack room for it, and it would preempt other pods.
 */
import type { Logger } from '../../api/component/logger.ts';
import { referenceTo } from '../../api/client/event-recorder.ts';
import type { EventRecorder } from '../../api/client/event-report.ts';
import { pods } from '../../api/client/resources.ts';
import { nameOf, type PodInfo } from './pod-info.ts';
import type { PodWrites } from './pod-writes.ts';
import type { Preemption } from './preemption.ts';

interface EvictionsOptions {
  readonly logger: Logger;
  readonly recorder: EventRecorder;
  readonly writes: Pick<PodWrites, 'evict'>;
  /** Called with the pod for which a victim could not be evicted. The victims after it are left alone. */
  readonly onFailure: (pod: PodInfo) => void;
  /** Called with a pod that was held back until the evictions were written. */
  readonly onWritten: (pod: PodInfo) => void;
}

/** The evictions that are running. */
export class Evictions {
  readonly #options: EvictionsOptions;
  /** The UIDs of the pods whose victims are being evicted. The value is whether the pod was held back meanwhile. */
  readonly #preempting = new Map<string, boolean>();

  constructor(options: EvictionsOptions) {
    this.#options = options;
  }

  /** Whether the pod must not be tried yet. */
  holdsBack({ uid }: PodInfo): boolean {
    if (!this.#preempting.has(uid)) return false;
    this.#preempting.set(uid, true);
    return true;
  }

  /** Evicts the victims of a preemption for a pod. Never rejects. */
  async evict(pod: PodInfo, preemption: Preemption): Promise<void> {
    this.#preempting.set(pod.uid, false);
    const areWritten = await this.#evictAll(pod, preemption);
    const wasHeldBack = this.#preempting.get(pod.uid) === true;
    this.#preempting.delete(pod.uid);
    if (!areWritten) this.#options.onFailure(pod);
    else if (wasHeldBack) this.#options.onWritten(pod);
  }

  async #evictAll(pod: PodInfo, { node, victims }: Preemption): Promise<boolean> {
    const { logger, recorder, writes } = this.#options;
    for (const victim of victims) {
      try {
        await writes.evict(victim);
        const message = `Preempted by pod ${pod.uid} on node ${node.name}`;
        recorder.event(referenceTo(victim.pod, pods), 'Normal', 'Preempted', message, { action: 'Preempting' });
      } catch (error) {
        logger.warn({ err: error, pod: nameOf(victim) }, 'A pod could not be preempted');
        return false;
      }
    }
    return true;
  }
}
