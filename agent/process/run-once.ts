/** `--runonce`: when the pods of files and URL have been started. */
import type { Clock } from '../../api/machinery/clock.ts';
import type { Pod } from '../core-types.ts';

const LOOK_MS = 200;
/** How long a source without any pod is waited for: folders are read at once, URLs answer in a moment. */
const NO_PODS_MS = 1000;

export interface RunOnceHost {
  pods(): readonly Pod[];
  sourcesReady(): boolean;
}

/** Resolves with a sentence when each pod runs or has ended, or the signal aborts. */
export async function waitForPods(host: RunOnceHost, clock: Clock, signal: AbortSignal): Promise<string> {
  const startedAtMs = clock.monotonic();
  while (!signal.aborted) {
    const pods = host.pods();
    const isOver = host.sourcesReady() && (pods.length > 0 || clock.monotonic() - startedAtMs >= NO_PODS_MS);
    if (isOver && pods.every((pod) => ['Running', 'Succeeded', 'Failed'].includes(pod.status?.phase ?? ''))) {
      return `ran ${pods.length} ${pods.length === 1 ? 'pod' : 'pods'} once`;
    }
    await clock.sleep(LOOK_MS, signal).catch(() => undefined);
  }
  return 'stopped before all pods ran';
}
