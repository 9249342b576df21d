/**
 * Terminates pods for evictions, preemptions and shutdowns of the host. The wait is bounded, because a container that cannot be
 * stopped must not hold up the node.
 */
import { type Clock, pause } from '../../../api/machinery/clock.ts';
import type { PodEventRecorder } from '../../base/model/pod-events.ts';
import type { Pod } from '../../base/model/pod.ts';
import type { Ending, PodWorkers } from './pod-workers.ts';

interface KillOptions {
  readonly workers: Pick<PodWorkers, 'kill' | 'finished'>;
  readonly events: PodEventRecorder;
  readonly clock: Clock;
}

/** Terminates pods and waits for them. */
export interface PodKiller {
  /**
   * Resolves when none of the pod's containers is running. Rejects after one and a half grace periods, at least ten seconds,
   * and records that as an event. The pod goes on terminating.
   */
  kill(pod: Pod, ending: Ending): Promise<void>;
  /** Resolves when the pod's volumes and cgroup are removed too, after `withinMs`, or when the signal aborts. Never rejects. */
  cleanedUp(pod: Pod, limits: { readonly withinMs: number; readonly signal?: AbortSignal }): Promise<void>;
}

const MIN_LIMIT_SECONDS = 10;

/** Returns the functions that terminate pods through their workers. */
export function createPodKiller({ workers, events, clock }: KillOptions): PodKiller {
  return {
    async kill(pod, ending) {
      const graceSeconds = ending.gracePeriodSeconds ?? pod.spec.terminationGracePeriodSeconds ?? 0;
      const limitSeconds = Math.max(Math.floor(graceSeconds * 1.5), MIN_LIMIT_SECONDS);
      const limit = new AbortController();
      const late = pause(clock, limitSeconds * 1000, limit.signal).then(() => {
        if (limit.signal.aborted) return;
        const message = 'Container runtime did not kill the pod within specified grace period.';
        events.event(pod, 'Warning', 'ExceededGracePeriod', message);
        throw new Error('timeout waiting to kill pod');
      });
      try {
        await Promise.race([workers.kill(pod, ending), late]);
      } finally {
        limit.abort();
      }
    },
    async cleanedUp({ metadata }, { withinMs, signal }) {
      const limit = new AbortController();
      const over = signal === undefined ? limit.signal : AbortSignal.any([signal, limit.signal]);
      await Promise.race([workers.finished(metadata.uid), pause(clock, withinMs, over)]);
      limit.abort();
    },
  };
}
