/**
 * Metrics of authentication, with kube-apiserver's names. Each part receives the functions that it needs; all are optional in
 * tests.
 */
import type { Counter, Histogram, MetricsRegistry } from '../../api/component/metrics.ts';
import type { Authenticated, Authenticator } from './authentication.ts';

const DOUBLING = (first: number, count: number): number[] => Array.from({ length: count }, (_, i) => first * 2 ** i);
const HOUR = 3600;
const DAY = 24 * HOUR;
const EXPIRATIONS = [0, HOUR / 2, HOUR, 2 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 4 * DAY, 7 * DAY, 30 * DAY].concat(
  [3, 6, 12].map((months) => months * 30 * DAY),
);
/** User names that may be a label value. All e-mail addresses share one value, and all other names another. */
const SHOWN_USERS: ReadonlySet<string> = new Set([
  'admin',
  'client',
  'kube_proxy',
  'kubelet',
  'system:serviceaccount:kube-system:default',
]);

/** Receives lookups (durations in seconds) and validations of the token cache. */
export interface TokenCacheMetrics {
  looked(status: 'hit' | 'miss', seconds: number): void;
  fetched(status: 'ok' | 'error'): void;
  /** A token validation began (1) or ended (-1). `blocked`: it waits for a validation of the same token. */
  active(status: 'blocked' | 'in_flight', by: 1 | -1): void;
}

/** Counts service account tokens by their kind. */
export type TokenKind = 'valid' | 'stale' | 'legacy' | 'legacy-auto' | 'legacy-manual' | 'invalid-legacy-auto';

/** The observers of all authenticators. */
export interface AuthenticationMetrics {
  readonly tokenCache: TokenCacheMetrics;
  serviceAccountToken(kind: TokenKind): void;
  /** Receives the remaining lifetime, in seconds, of an accepted client certificate's chain. */
  certificate(expiresInSeconds: number): void;
  /** Counts and times the attempts of the whole union. */
  measured(authenticator: Authenticator, monotonic: () => number): Authenticator;
}

/** Registers the metrics at once, except those of `measured`, which are registered when it is called. */
export function authenticationMetrics(registry: MetricsRegistry): AuthenticationMetrics {
  const certificates = registry.histogram({
    name: 'apiserver_client_certificate_expiration_seconds',
    help: 'Remaining lifetime in seconds of the client certificates of requests.',
    buckets: EXPIRATIONS,
  });
  certificates.with();
  return {
    tokenCache: tokenCacheMetrics(registry),
    serviceAccountToken: serviceAccountCounters(registry),
    certificate: (seconds) => certificates.with().observe(seconds),
    measured: (authenticator, monotonic) => measured(registry, authenticator, monotonic),
  };
}

function tokenCacheMetrics(registry: MetricsRegistry): TokenCacheMetrics {
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
  const series = (status: string) => ({ total: requests.with(status), seconds: durations.with(status) });
  const looked = { hit: series('hit'), miss: series('miss') };
  for (const status of ['blocked', 'in_flight']) active.with(status).set(0);
  return {
    looked(status, seconds) {
      looked[status].total.inc();
      looked[status].seconds.observe(seconds);
    },
    fetched: (status) => fetches.with(status).inc(),
    active: (status, by) => active.with(status).inc(by),
  };
}

function serviceAccountCounters(registry: MetricsRegistry): AuthenticationMetrics['serviceAccountToken'] {
  const counter = (name: string, help: string): Counter =>
    registry.counter({ name: `serviceaccount_${name}_total`, help, labels: [] }).with();
  const counters: Readonly<Record<TokenKind, Counter>> = {
    valid: counter('valid_tokens', 'Projected tokens that were used in time.'),
    stale: counter('stale_tokens', 'Projected tokens that were used after they should have been renewed.'),
    legacy: counter('legacy_tokens', 'Tokens of Secrets that were used.'),
    'legacy-auto': counter('legacy_auto_token_uses', 'Uses of tokens of Secrets that an account lists.'),
    'legacy-manual': counter('legacy_manual_token_uses', 'Uses of tokens of Secrets that were made by hand.'),
    'invalid-legacy-auto': counter('invalid_legacy_auto_token_uses', 'Uses of tokens of Secrets that were given up.'),
  };
  return (kind) => counters[kind].inc();
}

function measured(registry: MetricsRegistry, inner: Authenticator, monotonic: () => number): Authenticator {
  const attempts = registry.counter({
    name: 'authentication_attempts',
    help: 'Authentication attempts by result.',
    labels: ['result'],
  });
  const durations = registry.histogram({
    name: 'authentication_duration_seconds',
    help: 'Duration of the authentication of requests in seconds, by result.',
    labels: ['result'],
    buckets: DOUBLING(0.001, 15),
  });
  const users = registry.counter({
    name: 'authenticated_user_requests',
    help: 'Requests by user.',
    labels: ['username'],
  });
  const series = new Map<string, { readonly count: Counter; readonly time: Histogram }>();
  const ended = (result: 'success' | 'failure' | 'error', startMs: number): void => {
    let found = series.get(result);
    if (found === undefined)
      series.set(result, (found = { count: attempts.with(result), time: durations.with(result) }));
    found.count.inc();
    found.time.observe((monotonic() - startMs) / 1000);
  };
  const answered = (known: Authenticated | undefined, startMs: number): Authenticated | undefined => {
    if (known !== undefined) users.with(userLabel(known.user.name)).inc();
    ended(known === undefined ? 'failure' : 'success', startMs);
    return known;
  };
  const failed = (error: unknown, startMs: number): never => {
    ended('error', startMs);
    throw error;
  };
  return {
    authenticate(credentials) {
      const startMs = monotonic();
      let answer;
      try {
        answer = inner.authenticate(credentials);
      } catch (error) {
        return failed(error, startMs);
      }
      if (!(answer instanceof Promise)) return answered(answer, startMs);
      return answer.then(
        (known) => answered(known, startMs),
        (error: unknown) => failed(error, startMs),
      );
    },
  };
}

function userLabel(name: string): string {
  if (SHOWN_USERS.has(name)) return name;
  return name.includes('@') && /^[^@\s]+@[^@\s]+\.[a-z]{2,}$/i.test(name) ? 'email_id' : 'other';
}
