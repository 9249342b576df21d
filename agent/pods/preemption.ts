/**
 * Terminates pods to make room for a critical pod. The critical pod starts when they have finished, or after a limit, since
 * a container that cannot be stopped must not keep a critical pod from starting.
 */
import type { Logger } from '../../api/component/logger.ts';
import type { PodEventRecorder } from '../base/model/pod-events.ts';
import type { Pod } from '../base/model/pod.ts';
import { formatPod } from '../runtime/kuberuntime/pod-containers.ts';
import type { PodKiller } from './workers/kill-pod.ts';
import type { PodWorkers } from './workers/pod-workers.ts';

interface PreemptionOptions {
  readonly workers: Pick<PodWorkers, 'state'>;
  readonly killer: PodKiller;
  readonly events: PodEventRecorder;
  readonly logger: Logger;
  /** Called for each pod that was terminated to free the resource, after the wait for its clean-up. */
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
/** How long the critical pod waits for the clean-up after a victim. */
const CLEANUP_WAIT_MS = 10_000;

/**
 * Creates the preemption of pods. Victims terminate with their own grace periods, and get the status of the kubelet's
 * preemption.
 */
export function createPreemption({ workers, killer, events, logger, onPreempted }: PreemptionOptions): Preemption {
  const terminate = async (victim: Pod, resource: string): Promise<void> => {
    // A pod that is terminating already does so for an earlier reason.
    const isPreempted = workers.state(victim.metadata.uid)?.kind === 'syncing';
    if (isPreempted) events.event(victim, 'Warning', STATUS.reason, STATUS.message);
    await killer.kill(victim, { gracePeriodSeconds: undefined, status: STATUS });
    // Exclusive CPUs, memory and devices are free after the clean-up.
    await killer.cleanedUp(victim, { withinMs: CLEANUP_WAIT_MS });
    if (isPreempted) onPreempted(resource);
  };
  const attempt = async (victim: Pod, resource: string): Promise<void> => {
    try {
      await terminate(victim, resource);
    } catch (error) {
      logger.error({ err: error, pod: formatPod(victim) }, 'Cannot terminate a pod to make room for a critical pod');
    }
  };
  return {
    async preempt(critical, victims, resource) {
      const pods = victims.map(formatPod);
      logger.info({ pod: formatPod(critical), resource, victims: pods }, 'Preempting pods for a critical pod');
      await Promise.all(victims.map((victim) => attempt(victim, resource)));
    },
  };
}
