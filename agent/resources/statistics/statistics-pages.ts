/** The pages of metrics and usage that the agent's server shows. `statistics.ts` implements them. */

/** Computes the content of the metrics pages on request. */
export interface StatisticsPages {
  /** `/metrics`: the metrics of the agent. */
  metrics(): Promise<string>;
  /** `/metrics/cadvisor`, `/metrics/resource`, `/metrics/probes`. */
  cadvisor(): Promise<string>;
  resource(): Promise<string>;
  probes(): Promise<string>;
  /** `/stats/summary`, as JSON. */
  summary(onlyCpuAndMemory: boolean): Promise<object>;
}
