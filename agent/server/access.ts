/**
 * Authenticates requests to the agent's server by client certificates of `--client-ca-file`, by bearer tokens through
 * TokenReview, or as anonymous. Authorizes them by AlwaysAllow, or by SubjectAccessReview on `nodes/<subresource>`. Decisions
 * are cached, denials included.
 */
import type { TLSSocket } from 'node:tls';
import type { IncomingMessage } from 'node:http';
import { createHash } from 'node:crypto';
import type { Client } from '../../api/client/client.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { ExpiringCache } from '../../api/machinery/expiring-cache.ts';
import { subjectAccessReviews, tokenReviews } from '../../api/client/resources.ts';
import { clientKey } from '../../api/http/connection-limit.ts';
import { FairTurns, TooManyWaiting } from '../../api/machinery/fair-turns.ts';
import { parseCertificate } from '../../api/pki/certificate.ts';
import { newStatusError, StatusError } from '../../api/meta/status-error.ts';
import {
  ANONYMOUS_USER,
  AUTHENTICATED_GROUP,
  UNAUTHENTICATED_GROUP,
  CREDENTIAL_ID_EXTRA,
} from '../../api/meta/system-users.ts';
import type { AccessObserver } from './access-metrics.ts';

interface AgentUser {
  readonly name: string;
  readonly uid: string;
  readonly groups: readonly string[];
  readonly extra: Readonly<Record<string, readonly string[]>>;
}

/** The settings of authentication and authorization; durations are in milliseconds. */
export interface AccessOptions {
  /** Sends the reviews. Its rate limit is its own: reviews for clients of the agent must not delay the agent's requests. */
  readonly client: Client | undefined;
  readonly clock: Clock;
  readonly nodeName: string;
  readonly hasClientCa: boolean;
  /** The requests without credentials that reach authorization: none, those for the health of the agent, or all. */
  readonly anonymous: 'none' | 'health' | 'any';
  /** The value of `--authentication-token-webhook`. */
  readonly tokenWebhook: boolean;
  readonly tokenTtlMs: number;
  readonly authorization: 'AlwaysAllow' | 'Webhook';
  readonly allowedTtlMs: number;
  readonly refusedTtlMs: number;
  readonly observe?: AccessObserver;
}

/** Whether the certificate of a connection, if it has one, is still trusted. */
interface CertificateTrust {
  readonly isTrusted: boolean;
}

/**
 * Authenticates and authorizes requests. Both methods reject with the error of the client if the API server does not
 * decide.
 */
export interface Access {
  /**
   * Resolves to `undefined` if the client is not authenticated (401). A certificate that is no longer trusted is refused,
   * although the handshake of its connection has accepted it. Rejects with a `StatusError` of code 429 if too many tokens wait
   * for their reviews.
   */
  authenticate(request: IncomingMessage, connection?: CertificateTrust): Promise<AgentUser | undefined>;
  /** Resolves to an empty string if the request is allowed, else to the message of the 403. */
  refusal(user: AgentUser, method: string, path: string): Promise<string>;
}

/** The maximum number of entries of each cache. The oldest entry is removed first. */
const MAX_CACHED = 4096;
/**
 * The maximum number of tokens that are reviewed at once, and of those that wait for their reviews: once for addresses that
 * have sent a valid token before, and once for all others.
 */
const REVIEWS = { mostAtOnce: 16, mostWaiting: 256 };

/** Creates the access to the server. Its caches are empty at first, and bounded. */
export function createAccess(options: AccessOptions): Access {
  const reviewed = tokenReviewer(options);
  const decisions = new ExpiringCache<boolean>({ clock: options.clock, most: MAX_CACHED });
  return {
    async authenticate(request, connection = { isTrusted: true }) {
      const byCertificate = options.hasClientCa ? certificateUser(request, connection, options) : 'none';
      if (typeof byCertificate === 'object') return byCertificate;
      const header = request.headers.authorization ?? '';
      const token = /^Bearer +(\S+)$/i.exec(header)?.[1];
      if (token !== undefined && options.tokenWebhook && options.client !== undefined) {
        const user = await reviewed(token, request.socket.remoteAddress ?? '');
        return user === 'refused' ? undefined : user;
      }
      // A request with wrong credentials is not anonymous.
      if (header !== '' || byCertificate === 'refused' || options.anonymous === 'none') return undefined;
      return { name: ANONYMOUS_USER, uid: '', groups: [UNAUTHENTICATED_GROUP], extra: {} };
    },
    async refusal(user, method, path) {
      const verb = verbOf(method);
      if (user.name === ANONYMOUS_USER && options.anonymous === 'health' && subresourcesOf(path)[0] !== 'healthz')
        return forbidden(user, verb, path);
      if (options.authorization === 'AlwaysAllow') return '';
      // The most specific subresource is tried first. The permission for `proxy`, which old roles grant, suffices as well.
      const [narrow, ...wider] = subresourcesOf(path);
      for (const subresource of [narrow ?? 'proxy', ...wider]) {
        if (await allowed(user, { verb, subresource }, options, decisions)) return '';
      }
      return forbidden(user, verb, path);
    },
  };
}

function forbidden(user: AgentUser, verb: string, path: string): string {
  return `Forbidden (user=${user.name}, verb=${verb}, resource=nodes, subresource(s)=[${subresourcesOf(path).join(' ')}])\n`;
}

/**
 * Returns the user of the client certificate: `none` for no certificate or one without a name, and `refused` for one that the
 * current CA has not signed or that has expired.
 */
function certificateUser(
  request: IncomingMessage,
  { isTrusted }: CertificateTrust,
  { clock, observe }: AccessOptions,
): AgentUser | 'none' | 'refused' {
  const socket = request.socket as TLSSocket;
  const raw = socket.getPeerX509Certificate()?.raw;
  if (raw === undefined) return 'none';
  if (socket.authorized !== true || !isTrusted) return 'refused';
  // The API server reads subjects with the same function. Of several common names the last one counts.
  const { subject, notAfterMs } = parseCertificate(raw);
  // The certificate may have expired after the handshake.
  if (clock.now() > notAfterMs) return 'refused';
  observe?.certificate((notAfterMs - clock.now()) / 1000);
  const { commonName: name, organizations } = subject;
  if (name === '') return 'none';
  const credential = `X509SHA256=${createHash('sha256').update(raw).digest('hex')}`;
  return {
    name,
    uid: '',
    groups: [...organizations, AUTHENTICATED_GROUP],
    extra: { [CREDENTIAL_ID_EXTRA]: [credential] },
  };
}

/**
 * Returns the function that authenticates a token of a client with this address. Concurrent requests with one token share its
 * review. Anybody can send tokens. So refused tokens have a cache of their own, and addresses that have sent a valid token
 * before get every other turn, however many others wait. Rejects with 429 if too many wait.
 */
function tokenReviewer(options: AccessOptions): (token: string, address: string) => Promise<AgentUser | 'refused'> {
  const { clock, observe } = options;
  const users = new ExpiringCache<AgentUser>({ clock, most: MAX_CACHED });
  const refused = new ExpiringCache<'refused'>({ clock, most: MAX_CACHED });
  const turns = new FairTurns(REVIEWS);
  const running = new Map<string, Promise<AgentUser | 'refused'>>();
  const review = async (token: string, key: string, address: string): Promise<AgentUser | 'refused'> => {
    observe?.tokenCache.active('in_flight', 1);
    let outcome: 'ok' | 'error' = 'error';
    try {
      const user = await turns.run(
        clientKey(address),
        () => reviewToken(token, options),
        (found) => found !== 'refused',
      );
      outcome = 'ok';
      if (user === 'refused') refused.set(key, user, options.tokenTtlMs);
      else users.set(key, user, options.tokenTtlMs);
      return user;
    } catch (error) {
      if (!(error instanceof TooManyWaiting)) throw error;
      throw newStatusError(429, 'TooManyRequests', 'too many tokens are being verified, please try again', {
        cause: error,
      });
    } finally {
      observe?.tokenCache.fetched(outcome);
      observe?.tokenCache.active('in_flight', -1);
      running.delete(key);
    }
  };
  return async (token, address) => {
    const startMs = clock.monotonic();
    const looked = (status: 'hit' | 'miss'): void =>
      observe?.tokenCache.looked(status, (clock.monotonic() - startMs) / 1000);
    const key = createHash('sha256').update(token).digest('base64');
    const cached = users.get(key) ?? refused.get(key);
    if (cached !== undefined) {
      looked('hit');
      return cached.value;
    }
    const shared = running.get(key) ?? review(token, key, address);
    running.set(key, shared);
    observe?.tokenCache.active('blocked', 1);
    try {
      return await shared;
    } finally {
      observe?.tokenCache.active('blocked', -1);
      looked('miss');
    }
  };
}

/** Measures the request of a review, as the kubelet does: a request that gets no response has the code `<error>`. */
async function measured<T>({ clock, observe }: AccessOptions, kind: 'authn' | 'authz', request: () => Promise<T>) {
  const startMs = clock.monotonic();
  let code = '<error>';
  try {
    const answer = await request();
    // An answered review is a created object.
    code = '201';
    return answer;
  } catch (error) {
    if (error instanceof StatusError) code = String(error.code);
    throw error;
  } finally {
    observe?.reviewed(kind, code, (clock.monotonic() - startMs) / 1000);
  }
}

async function reviewToken(token: string, options: AccessOptions): Promise<AgentUser | 'refused'> {
  const answer = await measured(options, 'authn', async () =>
    options.client?.create(tokenReviews, '', {
      apiVersion: 'authentication.k8s.io/v1',
      kind: 'TokenReview',
      metadata: {},
      spec: { token },
    }),
  );
  const status = answer?.['status'] as
    | {
        authenticated?: boolean;
        user?: { username?: string; uid?: string; groups?: string[]; extra?: Record<string, string[]> };
      }
    | undefined;
  if (status?.authenticated !== true || status.user?.username === undefined) return 'refused';
  const { username, uid = '', groups = [], extra = {} } = status.user;
  return { name: username, uid, groups, extra };
}

function verbOf(method: string): string {
  switch (method) {
    case 'POST':
      return 'create';
    case 'PUT':
      return 'update';
    case 'PATCH':
      return 'patch';
    case 'DELETE':
      return 'delete';
    case 'GET':
      return 'get';
    default:
      // Other methods (HEAD, OPTIONS) need a permission for all verbs.
      return '';
  }
}

/** Returns the subresources of a path: `nodes/<subresource>`, the most specific first. */
export function subresourcesOf(path: string): string[] {
  const under = (prefix: string): boolean => path === prefix || path.startsWith(`${prefix}/`);
  if (under('/stats')) return ['stats'];
  if (under('/metrics')) return ['metrics'];
  if (under('/logs')) return ['log'];
  if (under('/checkpoint')) return ['checkpoint'];
  if (under('/configz')) return ['configz', 'proxy'];
  // As in the kubelet, flags need the permission for the configuration.
  if (under('/flagz')) return ['configz', 'proxy'];
  if (under('/statusz')) return ['statusz', 'proxy'];
  if (under('/healthz')) return ['healthz', 'proxy'];
  if (under('/pods') || under('/runningpods')) return ['pods', 'proxy'];
  return ['proxy'];
}

async function allowed(
  user: AgentUser,
  { verb, subresource }: { readonly verb: string; readonly subresource: string },
  options: AccessOptions,
  cache: ExpiringCache<boolean>,
): Promise<boolean> {
  const key = JSON.stringify([user.name, user.uid, user.groups, user.extra, verb, subresource]);
  const cached = cache.get(key);
  if (cached !== undefined) return cached.value;
  const answer = await measured(options, 'authz', async () =>
    options.client?.create(subjectAccessReviews, '', {
      apiVersion: 'authorization.k8s.io/v1',
      kind: 'SubjectAccessReview',
      metadata: {},
      spec: {
        user: user.name,
        ...(user.uid === '' ? {} : { uid: user.uid }),
        groups: [...user.groups],
        extra: Object.fromEntries(Object.entries(user.extra).map(([name, values]) => [name, [...values]])),
        resourceAttributes: { verb, group: '', version: 'v1', resource: 'nodes', subresource, name: options.nodeName },
      },
    }),
  );
  const decision = (answer?.['status'] as { allowed?: boolean } | undefined)?.allowed === true;
  cache.set(key, decision, decision ? options.allowedTtlMs : options.refusedTtlMs);
  return decision;
}
