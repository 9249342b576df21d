/** Registers the availability of APIServices as metrics, with kube-apiserver's names. */
import type { MetricsRegistry } from '../../../api/component/metrics.ts';

/** Receives whether each APIService is available, by its name. An APIService of this server itself is always available. */
export interface AggregationMetrics {
  /**
   * Records the availability of an APIService. `reason` is the reason of its condition, and `undefined` for an available one.
   */
  observed(name: string, reason: string | undefined): void;
  removed(name: string): void;
}

/** Registers the gauge of unavailable APIServices and the counter of how often each became unavailable. */
export function aggregationMetrics(registry: MetricsRegistry): AggregationMetrics {
  const states = registry.gauge({
    name: 'aggregator_unavailable_apiservice',
    help: '1 for an API service that is not available, 0 for one that is.',
    labels: ['name'],
  });
  const failures = registry.counter({
    name: 'aggregator_unavailable_apiservice_total',
    help: 'How often an API service became unavailable.',
    labels: ['name', 'reason'],
  });
  const unavailable = new Set<string>();
  return {
    observed(name, reason) {
      states.with(name).set(reason === undefined ? 0 : 1);
      if (reason === undefined) unavailable.delete(name);
      else if (!unavailable.has(name)) {
        unavailable.add(name);
        failures.with(name, reason).inc();
      }
    },
    removed(name) {
      unavailable.delete(name);
      states.delete(name);
    },
  };
}
