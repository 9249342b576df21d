/** The pages of metrics and usage that the agent's server shows. `statistics.ts` implements them. */

/** What a page of figures says, made when it is asked for. */
export interface StatisticsPages {
  /** `/metrics`: the agent's own. */
  metrics(): Promise<string>;
  /** `/metrics/cadvisor`, `/metrics/resource`, `/metrics/probes`. */
  cadvisor(): Promise<string>;
  resource(): Promise<string>;
  probes(): Promise<string>;
  /** `/stats/summary`, as JSON. */
  summary(onlyCpuAndMemory: boolean): Promise<object>;
}
