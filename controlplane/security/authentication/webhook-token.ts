/** Authenticates a bearer token with a TokenReview of a remote service. */
import { isJsonObject } from '../../../api/meta/json-object.ts';
import { stringifyJson } from '../../../api/codec/json.ts';
import { clientKey } from '../../../api/http/connection-limit.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { FairTurns } from '../../../api/machinery/fair-turns.ts';
import { AuthenticationError } from './union.ts';
import { WebhookCallError, withTimeout, type WebhookClient, type WebhookEndpoint } from '../webhooks/webhook-client.ts';
import type { Authenticated, TokenAuthenticator } from './authentication.ts';

interface WebhookTokenOptions {
  readonly endpoint: () => Promise<WebhookEndpoint>;
  readonly client: WebhookClient;
  readonly version: 'v1' | 'v1beta1';
  /** The audiences of the API server. */
  readonly apiAudiences: readonly string[];
  readonly clock: Clock;
}

const GROUP = 'authentication.k8s.io';
/**
 * The limits of calls: `mostAtOnce` run, as many as the client has connections for one webhook. `mostWaiting` wait of addresses
 * that have sent a valid token before, and as many of all other addresses.
 */
const CALLS = { mostAtOnce: 64, mostWaiting: 1024 };
const CALL_TIMEOUT_MS = 30_000;
const BACKOFF_MS = [500, 750, 1125, 1690];

/**
 * Creates the authenticator that calls a webhook with a TokenReview. Resolves to `undefined` for a token that the service does
 * not know, or not for the audiences. Rejects if the service reports an error or gives no usable answer, and with
 * `TooManyWaiting` if it is not called.
 */
export function webhookTokenAuthenticator(options: WebhookTokenOptions): TokenAuthenticator {
  const turns = new FairTurns(CALLS);
  return {
    async authenticateToken(token, audiences, connection): Promise<Authenticated | undefined> {
      const wanted = audiences.length > 0 ? audiences : options.apiAudiences;
      const review = {
        kind: 'TokenReview',
        apiVersion: `${GROUP}/${options.version}`,
        metadata: { creationTimestamp: null },
        spec: { token, ...(wanted.length === 0 ? {} : { audiences: wanted }) },
        status: { user: {} },
      };
      // Anybody can send tokens, so calls for addresses that have sent a valid one do not wait behind those for others.
      const client = clientKey(connection?.remoteAddress ?? '');
      return turns.run(
        client,
        async () => {
          const answer = await post(stringifyJson(review), options);
          if (!isJsonObject(answer) || answer['apiVersion'] !== review.apiVersion || answer['kind'] !== review.kind) {
            throw new AuthenticationError([
              'the token webhook answered with something else than the TokenReview it was asked for',
            ]);
          }
          return resultOf(answer['status'], wanted, options.apiAudiences);
        },
        (found) => found !== undefined,
      );
    },
  };
}

async function post(body: string, options: WebhookTokenOptions): Promise<unknown> {
  for (let attempt = 0; ; attempt++) {
    const pauseMs = BACKOFF_MS[attempt];
    try {
      const answer = await options.client.call(await options.endpoint(), {
        method: 'POST',
        body,
        signal: withTimeout(CALL_TIMEOUT_MS),
      });
      if (answer.status === 200 || answer.status === 201) return JSON.parse(answer.body.toString('utf8')) as unknown;
      if (pauseMs === undefined || answer.status < 500)
        throw new AuthenticationError([`the token webhook answered ${answer.status}`]);
    } catch (error) {
      const isTransient = error instanceof WebhookCallError && error.code === 'unreachable';
      if (!isTransient || pauseMs === undefined) throw error;
    }
    await options.clock.sleep(pauseMs);
  }
}

const strings = (value: unknown): string[] =>
  Array.isArray(value) ? value.filter((item): item is string => typeof item === 'string') : [];

function resultOf(
  status: unknown,
  wanted: readonly string[],
  apiAudiences: readonly string[],
): Authenticated | undefined {
  if (!isJsonObject(status)) return undefined;
  if (status['authenticated'] !== true) {
    const { error } = status;
    if (typeof error === 'string' && error !== '') throw new AuthenticationError([error]);
    return undefined;
  }
  const user = isJsonObject(status['user']) ? status['user'] : {};
  const { username, uid } = user;
  if (typeof username !== 'string' || username === '') return undefined;
  const answered = strings(status['audiences']);
  // A service that returns no audiences authenticates for the audiences of the API server only.
  const accepted = answered.length === 0 ? apiAudiences : answered;
  const audiences = wanted.filter((audience) => accepted.includes(audience));
  if (wanted.length > 0 && audiences.length === 0) return undefined;
  const extraEntries = isJsonObject(user['extra']) ? Object.entries(user['extra']) : [];
  const extra = Object.fromEntries(extraEntries.map(([key, values]) => [key, strings(values)]));
  return {
    audiences,
    user: {
      name: username,
      groups: strings(user['groups']),
      ...(typeof uid === 'string' && uid !== '' ? { uid } : {}),
      ...(Object.keys(extra).length === 0 ? {} : { extra }),
    },
  };
}
