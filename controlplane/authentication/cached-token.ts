/**
 * Remembers what token authenticators answered, so that a client that sends its token with each request costs a hash.
 *
 * Successes and refusals are kept apart: any number of wrong tokens can only push out other wrong tokens. Keys are keyed
 * hashes of the token (it is not kept), so that neither a memory dump nor timing of look-ups gives tokens away.
 */
import { hash, randomBytes } from 'node:crypto';
import { quoteText } from '../../api/meta/quote.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import type { Authenticated, TokenAuthenticator } from './authentication.ts';
import type { TokenCacheMetrics } from './authentication-metrics.ts';

export interface CachedTokenOptions {
  readonly clock: Clock;
  readonly successTtlMs: number;
  readonly failureTtlMs: number;
  /** What an empty list of audiences stands for: both spellings share what is remembered. */
  readonly implicitAudiences?: readonly string[];
  readonly maxSuccesses?: number;
  readonly maxFailures?: number;
  readonly metrics?: TokenCacheMetrics;
}

interface Remembered<T> {
  readonly value: T;
  readonly untilMs: number;
}

/** Oldest out first. */
export class ExpiringCache<T> {
  readonly #entries = new Map<string, Remembered<T>>();
  readonly #max: number;
  readonly #clock: Clock;

  constructor(clock: Clock, max: number) {
    this.#clock = clock;
    this.#max = max;
  }

  get(key: string): { readonly value: T } | undefined {
    const found = this.#entries.get(key);
    if (found === undefined) return undefined;
    if (found.untilMs > this.#clock.monotonic()) return found;
    this.#entries.delete(key);
    return undefined;
  }

  set(key: string, value: T, ttlMs: number): void {
    if (ttlMs <= 0) return;
    this.#entries.delete(key);
    if (this.#entries.size >= this.#max) {
      for (const oldest of this.#entries.keys()) {
        this.#entries.delete(oldest);
        break;
      }
    }
    this.#entries.set(key, { value, untilMs: this.#clock.monotonic() + ttlMs });
  }

  get size(): number {
    return this.#entries.size;
  }

  clear(): void {
    this.#entries.clear();
  }
}

export interface CachedTokens extends TokenAuthenticator {
  /** Everything is looked at anew, also what is being looked at. */
  forget(): void;
}

export function cachedTokens(inner: TokenAuthenticator, options: CachedTokenOptions): CachedTokens {
  const { clock, metrics } = options;
  const secret = randomBytes(32).toString('base64');
  const successes = new ExpiringCache<Authenticated>(clock, options.maxSuccesses ?? 8192);
  const failures = new ExpiringCache<undefined>(clock, options.maxFailures ?? 4096);
  /** The same token asked for at the same time is looked at once. */
  const underWay = new Map<string, Promise<Authenticated | undefined>>();
  let generation = 0;

  const authenticate = async (token: string, audiences: readonly string[], key: string) => {
    const startedIn = generation;
    metrics?.active('in_flight', 1);
    try {
      const result = await inner.authenticateToken(token, audiences);
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
    authenticateToken(token, audiences) {
      const startMs = metrics === undefined ? 0 : clock.monotonic();
      const meant = audiences.length > 0 ? audiences : (options.implicitAudiences ?? []);
      // The secret stands first and only the whole digest is ever compared, here: one call is a third of an HMAC's cost.
      // Quotes keep the parts apart: a token that contains a separator must not read as another token with an audience.
      const key = hash('sha256', secret + [token, ...meant].map(quoteText).join(','), 'base64');
      const success = successes.get(key);
      if (success !== undefined || failures.get(key) !== undefined) {
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
      const answer = authenticate(token, audiences, key).finally(() => {
        if (underWay.get(key) === answer) underWay.delete(key);
        looked();
      });
      underWay.set(key, answer);
      return answer;
    },
  };
}
