/** The interface through which the parts of the agent record events of pods. */
import type { Pod } from './pod.ts';

/** Records events that `kubectl describe pod` shows. */
export interface PodEventRecorder {
  /**
   * Records an event. `fieldPath` names the container, for example `spec.containers{main}`. Events are bounded and rate
   * limited. Never throws.
   */
  event(
    pod: Pod,
    type: 'Normal' | 'Warning',
    reason: string,
    message: string,
    options?: { readonly fieldPath?: string; readonly annotations?: Readonly<Record<string, string>> },
  ): void;
}
