/** Counts the results of health checks as the metrics that every component of Kubernetes serves at `/metrics/slis`. */
import { MetricsRegistry } from './metrics.ts';
import { registerStart } from './process-metrics.ts';

/** The results of one process. `observe` sets the newest result of a check, and counts it. */
export class HealthResults {
  #registry = new MetricsRegistry();

  /** Starts with the time of the process, which the page shows until the first reset. */
  constructor() {
    registerStart(this.#registry, performance.timeOrigin);
  }

  /** Counts a result. `type` is the path that ran the check, without its slash (`healthz`, `livez`, `readyz`). */
  observe(name: string, type: string, succeeded: boolean): void {
    this.#registry
      .gauge({
        name: 'kubernetes_healthcheck',
        help: 'This metric records the result of a single healthcheck.',
        labels: ['name', 'type'],
      })
      .with(name, type)
      .set(succeeded ? 1 : 0);
    this.#registry
      .counter({
        name: 'kubernetes_healthchecks_total',
        help: 'This metric records the results of all healthcheck.',
        labels: ['name', 'status', 'type'],
      })
      .with(name, succeeded ? 'success' : 'error', type)
      .inc();
  }

  /** Returns the page in Prometheus' text format. */
  text(): string {
    return this.#registry.text();
  }

  /** Removes all results, and the series of their metrics. */
  reset(): void {
    this.#registry = new MetricsRegistry();
  }
}
