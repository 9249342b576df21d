/**
 * Caches the results of token authenticators, so that a client that sends its token with each request costs one hash for each
 * connection.
 *
 * Successes and refusals have separate caches: invalid tokens can only evict other invalid tokens. Keys are keyed hashes of the
 * token, so that neither a memory dump nor the timing of lookups reveals tokens of clients that are disconnected.
 */
import { hash, randomBytes } from 'node:crypto';
import type { TokenCacheMetrics } from '../../../api/component/authentication-metrics.ts';
import { quoteText } from '../../../api/meta/quote.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { ExpiringCache } from '../../../api/machinery/expiring-cache.ts';
import type { Authenticated, ClientConnection, TokenAuthenticator } from './authentication.ts';

interface CachedTokenOptions {
  readonly clock: Clock;
  readonly successTtlMs: number;
  readonly failureTtlMs: number;
  /** The audiences that an empty list stands for: both forms share their cache entries. */
  readonly implicitAudiences?: readonly string[];
  readonly maxSuccesses?: number;
  readonly maxFailures?: number;
  readonly metrics?: TokenCacheMetrics;
}

interface CachedTokens extends TokenAuthenticator {
  /** Discards all results, including those of validations that are running. */
  forget(): void;
}

/**
 * Wraps a token authenticator, and caches for which tokens it knows a user and for which it knows none. Errors are not cached.
 */
export function cachedTokens(inner: TokenAuthenticator, options: CachedTokenOptions): CachedTokens {
  const { clock, metrics } = options;
  const keyOf = tokenKeys(options.implicitAudiences ?? []);
  const successes = new ExpiringCache<Authenticated>({ clock, most: options.maxSuccesses ?? 8192 });
  const failures = new ExpiringCache<undefined>({ clock, most: options.maxFailures ?? 4096 });
  /** Concurrent requests with the same token share one validation. */
  const underWay = new Map<string, Promise<Authenticated | undefined>>();
  let generation = 0;

  const authenticate = async (key: string, ...credentials: Parameters<TokenAuthenticator['authenticateToken']>) => {
    const startedIn = generation;
    metrics?.active('in_flight', 1);
    try {
      const result = await inner.authenticateToken(...credentials);
      metrics?.fetched('ok');
      if (generation !== startedIn) return result;
      if (result === undefined) failures.set(key, undefined, options.failureTtlMs);
      else successes.set(key, result, options.successTtlMs);
      return result;
    } catch (error) {
      metrics?.fetched('error');
      throw error;
    } finally {
      metrics?.active('in_flight', -1);
    }
  };

  return {
    forget() {
      generation++;
      successes.clear();
      failures.clear();
      underWay.clear();
    },
    authenticateToken(token, audiences, connection) {
      const startMs = clock.monotonic();
      const key = keyOf(token, audiences, connection);
      const success = successes.get(key, startMs);
      if (success !== undefined || failures.get(key, startMs) !== undefined) {
        metrics?.looked('hit', (clock.monotonic() - startMs) / 1000);
        return success?.value;
      }
      const looked = (): void => metrics?.looked('miss', (clock.monotonic() - startMs) / 1000);
      const running = underWay.get(key);
      if (running !== undefined) {
        metrics?.active('blocked', 1);
        return running.finally(() => {
          metrics?.active('blocked', -1);
          looked();
        });
      }
      const answer = authenticate(key, token, audiences, connection).finally(() => {
        if (underWay.get(key) === answer) underWay.delete(key);
        looked();
      });
      underWay.set(key, answer);
      return answer;
    },
  };
}

/**
 * Returns the function that computes the key of a token for its audiences. It remembers the last token of each connection,
 * because most clients send one token with all their requests.
 */
function tokenKeys(
  implicitAudiences: readonly string[],
): (token: string, audiences: readonly string[], connection: ClientConnection | undefined) => string {
  const secret = randomBytes(32).toString('base64');
  const last = new WeakMap<ClientConnection, { readonly token: string; readonly key: string }>();
  // The secret is the first part of the input, and only whole digests are compared in this process, so that a plain hash
  // suffices. The parts are quoted, so that a token that contains a separator differs from another token with an audience.
  const digest = (token: string, audiences: readonly string[]): string =>
    hash('sha256', secret + [token, ...audiences].map(quoteText).join(','), 'base64');
  return (token, audiences, connection) => {
    if (audiences.length > 0) return digest(token, audiences);
    if (connection === undefined) return digest(token, implicitAudiences);
    let cached = last.get(connection);
    if (cached?.token !== token) {
      cached = { token, key: digest(token, implicitAudiences) };
      last.set(connection, cached);
    }
    return cached.key;
  };
}
