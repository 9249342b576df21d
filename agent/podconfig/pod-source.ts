/** What a source of pods is: it tells its full set, again and again; the mux finds what changed. */
import type { Pod, PodSourceName } from '../core-types.ts';

export interface PodSource {
  readonly name: PodSourceName;
  /** Runs until the signal aborts. `onPods` takes the full set of this source. */
  run(signal: AbortSignal, onPods: (pods: readonly Pod[]) => void): Promise<void>;
}
