/** What a source of pods is: it tells its full set, again and again; the mux finds what changed. */
import type { Pod, PodSourceName } from '../model/core-types.ts';

export interface PodSource {
  readonly name: PodSourceName;
  /** Runs until the signal aborts. `onPods` takes the full set of this source. */
  run(signal: AbortSignal, onPods: OnPods): Promise<void>;
}

/**
 * `provisional`: the last known set, as the source cannot be asked yet. Its pods run, but that a pod is not in it says nothing:
 * nothing is ended or cleaned up for it.
 */
export type OnPods = (pods: readonly Pod[], options?: { readonly provisional: boolean }) => void;
