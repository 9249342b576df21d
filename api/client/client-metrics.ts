/** Registers the metrics of requests to other servers, under the names of Kubernetes' Go client (client-go). */
import type { ObservedRequest, RequestObserver } from './request-observer.ts';
import type { MetricsRegistry } from '../component/metrics.ts';

const SECONDS = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60];
const BYTES = [64, 256, 512, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216];
/** Hosts of webhooks are chosen by clients. Those beyond this number share one series. */
const MAX_HOSTS = 256;
const OTHER_HOSTS = '<other>';

/** Returns the observer that clients call for each request. */
export function clientMetrics(metrics: MetricsRegistry): RequestObserver {
  const histogram = (name: string, help: string, buckets: readonly number[]) =>
    metrics.histogram({ name, help, labels: ['host', 'verb'], buckets });
  const total = metrics.counter({
    name: 'rest_client_requests_total',
    help: 'Number of HTTP requests, partitioned by status code, method, and host.',
    labels: ['code', 'host', 'method'],
  });
  const retries = metrics.counter({
    name: 'rest_client_request_retries_total',
    help: 'Number of request retries, partitioned by status code, verb, and host.',
    labels: ['code', 'host', 'verb'],
  });
  const durations = histogram(
    'rest_client_request_duration_seconds',
    'Request latency in seconds. Broken down by verb, and host.',
    SECONDS,
  );
  const waits = histogram(
    'rest_client_rate_limiter_duration_seconds',
    'Client side rate limiter latency in seconds. Broken down by verb, and host.',
    SECONDS,
  );
  const requests = histogram(
    'rest_client_request_size_bytes',
    'Request size in bytes. Broken down by verb and host.',
    BYTES,
  );
  const responses = histogram(
    'rest_client_response_size_bytes',
    'Response size in bytes. Broken down by verb and host.',
    BYTES,
  );
  const hosts = new Map<string, string>();
  const hostOf = ({ server }: ObservedRequest): string => {
    const knownHost = hosts.get(server);
    if (knownHost !== undefined) return knownHost;
    if (hosts.size >= MAX_HOSTS) return OTHER_HOSTS;
    const host = URL.parse(server)?.host || server;
    hosts.set(server, host);
    return host;
  };
  return {
    limited: (request, tookMs) => waits.with(hostOf(request), request.method).observe(tookMs / 1000),
    sent: (request, { status, tookMs, bytes, isRetry }) => {
      const [host, code] = [hostOf(request), status === undefined ? '<error>' : String(status)];
      total.with(code, host, request.method).inc();
      if (isRetry) retries.with(code, host, request.method).inc();
      durations.with(host, request.method).observe(tookMs / 1000);
      requests.with(host, request.method).observe(bytes);
    },
    received: (request, bytes) => responses.with(hostOf(request), request.method).observe(bytes),
  };
}
