/** Defines a source of pods. */
import type { Pod } from '../base/model/pod.ts';

/** The name in the annotation `kubernetes.io/config.source`; submitted pods have a source of their own. */
export type PodSourceName = 'api' | 'file' | 'http' | 'submitted';

/** A source. A failing one keeps its last set and tries again. */
export interface PodSource {
  readonly name: PodSourceName;
  /** Runs until the signal aborts. Calls `onPods` with the full set of this source. */
  run(signal: AbortSignal, onPods: OnPods): Promise<void>;
  /** Receives the pods of a set that is not provisional, as far as the agent can run them. */
  accepted?(pods: readonly Pod[]): void;
}

/**
 * `provisional` marks the last known set of a source that does not answer yet. Its pods run, but pods that it lacks are neither
 * terminated nor cleaned up.
 */
export type OnPods = (pods: readonly Pod[], options?: { readonly provisional: boolean }) => void;
