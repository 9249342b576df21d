/** Metrics of the authentication and authorization of requests to the agent's server, under the kubelet's names. */
import {
  certificateExpirations,
  type TokenCacheMetrics,
  tokenCacheMetrics,
} from '../../api/component/authentication-metrics.ts';
import type { MetricsRegistry } from '../../api/component/metrics.ts';

/** What a review decides on. */
type ReviewKind = 'authn' | 'authz';

/** Receives the measurements of authentication and authorization. All durations are in seconds. */
export interface AccessObserver {
  readonly tokenCache: TokenCacheMetrics;
  certificate(expiresInSeconds: number): void;
  /** The API server has answered a review with an HTTP status, or with `<error>` it has not answered. */
  reviewed(kind: ReviewKind, code: string, seconds: number): void;
}

const REVIEW_BUCKETS = [0.25, 0.5, 0.7, 1, 1.5, 3, 5, 10];

/** Registers the metrics. */
export function accessMetrics(metrics: MetricsRegistry): AccessObserver {
  const reviews = (kind: ReviewKind, title: string) => ({
    total: metrics.counter({
      name: `apiserver_delegated_${kind}_request_total`,
      help: `${title} reviews that were requested of the API server, by the status code of its response.`,
      labels: ['code'],
    }),
    seconds: metrics.histogram({
      name: `apiserver_delegated_${kind}_request_duration_seconds`,
      help: `Duration in seconds of ${title.toLowerCase()} reviews, by the status code of the response.`,
      labels: ['code'],
      buckets: REVIEW_BUCKETS,
    }),
  });
  const kinds = { authn: reviews('authn', 'Token'), authz: reviews('authz', 'Subject access') };
  const expirations = certificateExpirations(metrics);
  return {
    tokenCache: tokenCacheMetrics(metrics),
    certificate: (seconds) => expirations.observe(seconds),
    reviewed(kind, code, seconds) {
      kinds[kind].total.with(code).inc();
      kinds[kind].seconds.with(code).observe(seconds);
    },
  };
}
