/**
 * Registers the metrics of authentication that the API server and the agent share, with the names of Kubernetes' API server
 * library.
 */
import { onFirstUse } from './by-labels.ts';
import type { Histogram, MetricsRegistry } from './metrics.ts';

const HOUR = 3600;
const DAY = 24 * HOUR;
const EXPIRATIONS = [0, HOUR / 2, HOUR, 2 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 4 * DAY, 7 * DAY, 30 * DAY].concat(
  [3, 6, 12].map((months) => months * 30 * DAY),
);

/** Receives lookups in the token cache, with their durations in seconds, and token validations. */
export interface TokenCacheMetrics {
  looked(status: 'hit' | 'miss', seconds: number): void;
  fetched(status: 'ok' | 'error'): void;
  /** A token validation began (1) or ended (-1). `blocked`: it waits for a validation of the same token. */
  active(status: 'blocked' | 'in_flight', by: 1 | -1): void;
}

/** Registers and returns the histogram of the remaining lifetimes, in seconds, of accepted client certificates. */
export function certificateExpirations(registry: MetricsRegistry): Histogram {
  return registry
    .histogram({
      name: 'apiserver_client_certificate_expiration_seconds',
      help: 'Remaining lifetime in seconds of the client certificates of requests.',
      buckets: EXPIRATIONS,
    })
    .with();
}

/** Registers the metrics of the token cache. */
export function tokenCacheMetrics(registry: MetricsRegistry): TokenCacheMetrics {
  const prefix = 'authentication_token_cache';
  const labels = ['status'];
  const requests = registry.counter({ name: `${prefix}_request_total`, help: 'Lookups in the token cache.', labels });
  const durations = registry.histogram({
    name: `${prefix}_request_duration_seconds`,
    help: 'Duration of the authentication of a token in seconds.',
    labels,
  });
  const fetches = registry.counter({ name: `${prefix}_fetch_total`, help: 'Tokens that were verified.', labels });
  const active = registry.gauge({
    name: `${prefix}_active_fetch_count`,
    help: 'Tokens that are being verified, or wait for the verification of the same token.',
    labels,
  });
  const seriesOf = onFirstUse((status) => ({ count: requests.with(status), time: durations.with(status) }));
  for (const status of ['blocked', 'in_flight']) active.with(status).set(0);
  return {
    looked(status, seconds) {
      const { count, time } = seriesOf(status);
      count.inc();
      time.observe(seconds);
    },
    fetched: (status) => fetches.with(status).inc(),
    active: (status, by) => active.with(status).inc(by),
  };
}
