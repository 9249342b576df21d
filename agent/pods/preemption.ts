/**
 * Terminates pods to make room for a critical pod. The critical pod starts when they have finished, or after a limit, since
 * a container that cannot be stopped must not keep a critical pod from starting.
 */
import type { Logger } from '../../api/component/logger.ts';
import { type Clock, pause } from '../../api/machinery/clock.ts';
import type { PodEventRecorder } from '../model/pod-events.ts';
import type { Pod } from '../model/pod.ts';
import { formatPod } from '../runtime/kuberuntime/pod-containers.ts';
import type { PodWorkers } from './workers/pod-workers.ts';

interface PreemptionOptions {
  readonly workers: Pick<PodWorkers, 'kill' | 'finished' | 'state'>;
  readonly events: PodEventRecorder;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Called once for each pod that leaves because of the resource. */
  readonly onPreempted: (resource: string) => void;
}

/** Makes room for critical pods. */
export interface Preemption {
  /** Resolves when the critical pod may start. Never rejects. */
  preempt(critical: Pod, victims: readonly Pod[], resource: string): Promise<void>;
}

const STATUS = {
  reason: 'Preempting',
  message: 'Preempted in order to admit critical pod',
  disruption: 'Pod was preempted by Kubelet to accommodate a critical pod.',
};
/** The default of `terminationGracePeriodSeconds`. */
const DEFAULT_GRACE_SECONDS = 30;
/** The least time for which a critical pod waits for a victim that does not terminate. */
const SHORTEST_LIMIT_MS = 10_000;

/** Victims terminate with their own grace periods, and get the status of the kubelet's preemption. */
export function createPreemption({ workers, events, clock, logger, onPreempted }: PreemptionOptions): Preemption {
  const terminate = async (victim: Pod, resource: string): Promise<void> => {
    const { uid } = victim.metadata;
    // A pod that is terminating already leaves for an earlier reason.
    const isLeaving = workers.state(uid)?.kind !== 'syncing';
    if (!isLeaving) events.event(victim, 'Warning', STATUS.reason, STATUS.message);
    await workers.kill(victim, { gracePeriodSeconds: undefined, status: STATUS });
    // Exclusive CPUs, memory and devices are free after the clean-up.
    await workers.finished(uid);
    if (!isLeaving) onPreempted(resource);
  };
  const terminateInTime = async (victim: Pod, resource: string): Promise<void> => {
    const limit = new AbortController();
    const graceMs = (victim.spec.terminationGracePeriodSeconds ?? DEFAULT_GRACE_SECONDS) * 1000;
    const late = pause(clock, Math.max(graceMs * 1.5, SHORTEST_LIMIT_MS), limit.signal).then(() => {
      if (limit.signal.aborted) return;
      const message = 'Container runtime did not kill the pod within specified grace period.';
      events.event(victim, 'Warning', 'ExceededGracePeriod', message);
    });
    try {
      await Promise.race([terminate(victim, resource), late]);
    } catch (error) {
      logger.error({ err: error, pod: formatPod(victim) }, 'Cannot terminate a pod to make room for a critical pod');
    } finally {
      limit.abort();
    }
  };
  return {
    async preempt(critical, victims, resource) {
      const pods = victims.map(formatPod);
      logger.info({ pod: formatPod(critical), resource, victims: pods }, 'Preempting pods for a critical pod');
      await Promise.all(victims.map((victim) => terminateInTime(victim, resource)));
    },
  };
}
