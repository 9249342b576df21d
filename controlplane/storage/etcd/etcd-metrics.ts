/**
 * Measures the requests to etcd with the metrics of kube-apiserver: durations, requests and failures by operation and resource.
 *
 * What belongs to no single resource has empty labels: reading the state of all (`list`), and asking for the newest revision
 * (`get`).
 */
import type { Counter, Family, Histogram, MetricsRegistry } from '../../../api/component/metrics.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { resourceOf } from '../version-store.ts';

/** The values of the label `operation`. */
export type EtcdOperation = 'create' | 'delete' | 'get' | 'list' | 'update';

/** The buckets of kube-apiserver, in seconds. */
const SECONDS = [0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60];
const LEASED_OBJECTS = [10, 50, 100, 500, 1000, 2500, 5000];
const LABELS = ['operation', 'group', 'resource'];

/** Registers the metrics in its constructor. Durations are in seconds. */
export class EtcdMetrics {
  readonly #clock: Clock;
  readonly #durations: Family<Histogram>;
  readonly #requests: Family<Counter>;
  readonly #errors: Family<Counter>;
  readonly #leased: Family<Histogram>;

  constructor(registry: MetricsRegistry, clock: Clock) {
    this.#clock = clock;
    this.#durations = registry.histogram({
      name: 'etcd_request_duration_seconds',
      help: 'Etcd request latency in seconds for each operation and object type.',
      labels: LABELS,
      buckets: SECONDS,
    });
    this.#requests = registry.counter({
      name: 'etcd_requests_total',
      help: 'Etcd request counts for each operation and object type.',
      labels: LABELS,
    });
    this.#errors = registry.counter({
      name: 'etcd_request_errors_total',
      help: 'Etcd failed request counts for each operation and object type.',
      labels: LABELS,
    });
    this.#leased = registry.histogram({
      name: 'etcd_lease_object_counts',
      help: 'Number of objects attached to a single etcd lease.',
      buckets: LEASED_OBJECTS,
    });
  }

  /** Measures a request with its repetitions. A comparison of a transaction that does not hold is no failure. */
  async measure<T>(operation: EtcdOperation, key: string, request: () => Promise<T>): Promise<T> {
    const startMs = this.#clock.monotonic();
    const labels = [operation, ...labelsOf(key)] as const;
    try {
      return await request();
    } catch (error) {
      this.#errors.with(...labels).inc();
      throw error;
    } finally {
      this.#requests.with(...labels).inc();
      this.#durations.with(...labels).observe((this.#clock.monotonic() - startMs) / 1000);
    }
  }

  /** Called when no more objects are attached to a lease. */
  leaseFilled(objects: number): void {
    this.#leased.with().observe(objects);
  }
}

function labelsOf(key: string): readonly [group: string, resource: string] {
  if (key === '') return ['', ''];
  const [, group = '', resource = ''] = resourceOf(key).split('/');
  return [group === 'core' ? '' : group, resource];
}
