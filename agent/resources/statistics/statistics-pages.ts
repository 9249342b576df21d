/** The pages of metrics and usage that the agent's server shows. */

/** Computes the content of the metrics pages on request. */
export interface StatisticsPages {
  /** Returns the page `/metrics`: the metrics of the agent. */
  metrics(): Promise<string>;
  /** Returns the page `/metrics/cadvisor`. `resource` and `probes` return the pages below `/metrics` of those names. */
  cadvisor(): Promise<string>;
  resource(): Promise<string>;
  probes(): Promise<string>;
  /** Returns `/stats/summary`, as JSON. */
  summary(onlyCpuAndMemory: boolean): Promise<object>;
}
