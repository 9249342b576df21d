/**
 * The results of probes, from which the runtime decides on restarts and computes readiness. The prober implements
 * `ProbeResults`.
 */

export type ProbeKind = 'liveness' | 'readiness' | 'startup';
export type ProbeResult = 'success' | 'failure' | 'unknown';

/** The results that the prober has now. */
export interface ProbeResults {
  /** Returns `undefined` if the container has no such probe, or none that has run. */
  result(kind: ProbeKind, containerId: string): ProbeResult | undefined;
}
