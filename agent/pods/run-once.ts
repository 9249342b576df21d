/** Waits for the pods of `--runonce`: until all pods of files and URLs have been started. */
import { type Clock, pause } from '../../api/machinery/clock.ts';
import type { Pod } from '../base/model/pod.ts';

const POLL_MS = 200;
/** How long to wait for a source without pods. */
const NO_PODS_MS = 1000;

interface RunOnceHost {
  pods(): readonly Pod[];
  sourcesReady(): boolean;
}

/** The sum of the kubelet's ten waits between eleven attempts, of which each is twice as long as the one before. */
const MAX_MS = 1_023_000;

/**
 * Resolves with a message for the log when every pod runs or has terminated, or when the signal aborts. Throws if a pod does
 * not start in time.
 */
export async function waitForPods(host: RunOnceHost, clock: Clock, signal: AbortSignal): Promise<string> {
  const startedAtMs = clock.monotonic();
  while (!signal.aborted) {
    const pods = host.pods();
    const areKnown = host.sourcesReady() && (pods.length > 0 || clock.monotonic() - startedAtMs >= NO_PODS_MS);
    const waiting = pods.filter((pod) => !['Running', 'Succeeded', 'Failed'].includes(pod.status?.phase ?? ''));
    if (areKnown && waiting.length === 0) return `ran ${pods.length} ${pods.length === 1 ? 'pod' : 'pods'} once`;
    if (clock.monotonic() - startedAtMs >= MAX_MS) {
      const names = waiting.map(({ metadata }) => `${metadata.namespace}/${metadata.name}`);
      const problem =
        names.length === 0
          ? 'the pods could not be read, check --pod-manifest-path and --manifest-url'
          : `pods are not started: ${names.join(', ')}; --v=4 logs their events`;
      throw new Error(`runonce failed after ${MAX_MS / 1000} s: ${problem}`);
    }
    await pause(clock, POLL_MS, signal);
  }
  return 'stopped before all pods ran';
}
