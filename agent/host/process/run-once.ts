/** `--runonce`: when the pods of files and URL have been started. */
import { type Clock, pause } from '../../../api/machinery/clock.ts';
import type { Pod } from '../../model/core-types.ts';

const LOOK_MS = 200;
/** How long a source without any pod is waited for: folders are read at once, URLs answer in a moment. */
const NO_PODS_MS = 1000;

export interface RunOnceHost {
  pods(): readonly Pod[];
  sourcesReady(): boolean;
}

/** As long as the kubelet tries: eleven times, each wait twice the one before. */
const LONGEST_MS = 1_023_000;

/** Resolves with a sentence when each pod runs or has ended, or the signal aborts; throws where one never does. */
export async function waitForPods(host: RunOnceHost, clock: Clock, signal: AbortSignal): Promise<string> {
  const startedAtMs = clock.monotonic();
  while (!signal.aborted) {
    const pods = host.pods();
    const isOver = host.sourcesReady() && (pods.length > 0 || clock.monotonic() - startedAtMs >= NO_PODS_MS);
    const waiting = pods.filter((pod) => !['Running', 'Succeeded', 'Failed'].includes(pod.status?.phase ?? ''));
    if (isOver && waiting.length === 0) return `ran ${pods.length} ${pods.length === 1 ? 'pod' : 'pods'} once`;
    if (clock.monotonic() - startedAtMs >= LONGEST_MS) {
      const names = waiting.map(({ metadata }) => `${metadata.namespace}/${metadata.name}`);
      throw new Error(
        `runonce failed: after ${LONGEST_MS / 1000} s there is no start of ${names.join(', ') || 'any pod'}`,
      );
    }
    await pause(clock, LOOK_MS, signal);
  }
  return 'stopped before all pods ran';
}
