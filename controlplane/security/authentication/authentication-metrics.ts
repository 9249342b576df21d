/** Registers the metrics of authentication, with kube-apiserver's names. */
import {
  certificateExpirations,
  type TokenCacheMetrics,
  tokenCacheMetrics,
} from '../../../api/component/authentication-metrics.ts';
import { onFirstUse } from '../../../api/component/by-labels.ts';
import type { Counter, MetricsRegistry } from '../../../api/component/metrics.ts';
import type { Authenticated, Authenticator } from './authentication.ts';

const doublingFrom = (first: number, count: number): number[] =>
  Array.from({ length: count }, (_, i) => first * 2 ** i);
/** User names that may be a label value. All e-mail addresses share one value, and all other names another. */
const SHOWN_USERS: ReadonlySet<string> = new Set([
  'admin',
  'client',
  'kube_proxy',
  'kubelet',
  'system:serviceaccount:kube-system:default',
]);

/** The kinds of service account tokens, each of which has a counter. */
export type TokenKind = 'valid' | 'stale' | 'legacy' | 'legacy-auto' | 'legacy-manual' | 'invalid-legacy-auto';

/** The observers of all authenticators. */
export interface AuthenticationMetrics {
  readonly tokenCache: TokenCacheMetrics;
  serviceAccountToken(kind: TokenKind): void;
  /** Receives the remaining lifetime, in seconds, of an accepted client certificate's chain. */
  certificate(expiresInSeconds: number): void;
  /** Counts a key of an OpenID issuer that cannot be read. */
  readonly unreadableKey: () => void;
  /** Counts and times the attempts of the whole union. */
  measured(authenticator: Authenticator, monotonic: () => number): Authenticator;
}

/** Registers the metrics at once, except those of `measured`, which are registered when it is called. */
export function authenticationMetrics(registry: MetricsRegistry): AuthenticationMetrics {
  const certificates = certificateExpirations(registry);
  const unreadableKeys = registry
    .counter({
      name: 'orchlet_authentication_unreadable_issuer_keys_total',
      help: 'Keys of OpenID issuers that could not be read, by which no token is accepted.',
      labels: [],
    })
    .with();
  return {
    tokenCache: tokenCacheMetrics(registry),
    serviceAccountToken: serviceAccountCounters(registry),
    certificate: (seconds) => certificates.observe(seconds),
    unreadableKey: () => unreadableKeys.inc(),
    measured: (authenticator, monotonic) => measured(registry, authenticator, monotonic),
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
    'invalid-legacy-auto': counter(
      'invalid_legacy_auto_token_uses',
      'Uses of invalidated tokens of Secrets that an account lists.',
    ),
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
    buckets: doublingFrom(0.001, 15),
  });
  const users = registry.counter({
    name: 'authenticated_user_requests',
    help: 'Requests by user.',
    labels: ['username'],
  });
  const seriesOf = onFirstUse((result) => ({ count: attempts.with(result), time: durations.with(result) }));
  const ended = (result: 'success' | 'failure' | 'error', startMs: number): void => {
    const { count, time } = seriesOf(result);
    count.inc();
    time.observe((monotonic() - startMs) / 1000);
  };
  const userCounter = onFirstUse((label) => users.with(label));
  const answered = (authenticated: Authenticated | undefined, startMs: number): Authenticated | undefined => {
    if (authenticated !== undefined) userCounter(userLabel(authenticated.user.name)).inc();
    ended(authenticated === undefined ? 'failure' : 'success', startMs);
    return authenticated;
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
        (authenticated) => answered(authenticated, startMs),
        (error: unknown) => failed(error, startMs),
      );
    },
  };
}

function userLabel(name: string): string {
  if (SHOWN_USERS.has(name)) return name;
  return name.includes('@') && /^[^@\s]+@[^@\s]+\.[a-z]{2,}$/i.test(name) ? 'email_id' : 'other';
}
