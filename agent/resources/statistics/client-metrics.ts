/** Registers the metrics of requests to the kube-apiserver, under the names of Kubernetes' Go client (client-go). */
import type { MetricsRegistry } from '../../../api/component/metrics.ts';
import type { RequestObserver } from '../../../api/machinery/http-client.ts';

export function clientMetrics(metrics: MetricsRegistry): RequestObserver {
  const total = metrics.counter({
    name: 'rest_client_requests_total',
    help: 'Number of HTTP requests, partitioned by status code, method, and host.',
    labels: ['code', 'host', 'method'],
  });
  const durations = metrics.histogram({
    name: 'rest_client_request_duration_seconds',
    help: 'Request latency in seconds. Broken down by verb, and host.',
    labels: ['host', 'verb'],
    buckets: [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60],
  });
  return ({ method, server, status, tookMs }) => {
    const host = URL.parse(server)?.host ?? server;
    total.with(status === undefined ? '<error>' : String(status), host, method).inc();
    durations.with(host, method).observe(tookMs / 1000);
  };
}
