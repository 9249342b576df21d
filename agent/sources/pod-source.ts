/** Defines a source of pods. It reports its full set with each change, and the mux computes the differences. */
import type { Pod } from '../model/pod.ts';

export type PodSourceName = 'api' | 'file' | 'http' | 'submitted';

export interface PodSource {
  readonly name: PodSourceName;
  /** Runs until the signal aborts. Calls `onPods` with the full set of this source. */
  run(signal: AbortSignal, onPods: OnPods): Promise<void>;
}

/**
 * `provisional` marks the last known set of a source that does not answer yet. Its pods run, but pods that it lacks are neither
 * terminated nor cleaned up.
 */
export type OnPods = (pods: readonly Pod[], options?: { readonly provisional: boolean }) => void;
