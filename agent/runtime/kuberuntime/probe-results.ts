/** The results of probes, from which the runtime decides on restarts and computes readiness. */

export type ProbeKind = 'liveness' | 'readiness' | 'startup';
/** The result of the last executions, after the thresholds of the probe. Before the first execution, an initial result. */
export type ProbeResult = 'success' | 'failure' | 'unknown';

/** The results that the prober has now. */
export interface ProbeResults {
  /** Returns `undefined` if the container has no such probe, or the prober does not follow the container yet. */
  result(kind: ProbeKind, containerId: string): ProbeResult | undefined;
}
