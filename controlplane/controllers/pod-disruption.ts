/** Deletes pods that have to leave their node, and writes the reason to their condition `DisruptionTarget`. */
import { formatTime } from '../../api/machinery/clock.ts';
import type { Pod } from '../../api/kinds/kinds.ts';
import { pods } from '../../api/client/resources.ts';
import { isNotFound } from '../../api/meta/status-error.ts';
import type { ControllerEnvironment } from './controller.ts';
import { podCondition } from './pod-state.ts';

/** The fields of the condition. */
interface Disruption {
  readonly reason: string;
  readonly message: string;
  readonly observedGeneration?: number | undefined;
}

/**
 * Sets the condition, unless the pod has the same already, and deletes the pod. A pod that is gone is no error; one that was
 * replaced rejects.
 */
export async function deleteDisrupted(
  { client, clock }: ControllerEnvironment,
  pod: Pod,
  disruption: Disruption,
): Promise<void> {
  const { namespace = '', name = '', uid } = pod.metadata;
  const present = podCondition(pod, 'DisruptionTarget');
  const wasSet = present?.status === 'True';
  try {
    if (!wasSet || present.reason !== disruption.reason || present.message !== disruption.message) {
      const lastTransitionTime = wasSet ? present.lastTransitionTime : formatTime(clock.now());
      const condition = { type: 'DisruptionTarget', status: 'True', ...disruption, lastTransitionTime };
      const body = { metadata: { uid }, status: { conditions: [condition] } };
      await client.patch(pods, namespace, name, { type: 'strategic', body, subresource: 'status' });
    }
    await client.delete(pods, namespace, name, uid === undefined ? {} : { preconditions: { uid } });
  } catch (error) {
    if (!isNotFound(error)) throw error;
  }
}
