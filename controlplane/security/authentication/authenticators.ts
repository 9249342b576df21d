/** Builds the authenticators of a control plane from its options, in order, and has the rows of the documentation's table. */
import { readFile } from 'node:fs/promises';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { RequestObserver } from '../../../api/client/request-observer.ts';
import type { Logger } from '../../../api/component/logger.ts';
import type { Secret } from '../../../api/kinds/kinds.ts';
import { nodes, pods, secrets, serviceAccounts } from '../../../api/client/resources.ts';
import type { Listers } from '../../model/listers.ts';
import { FRONT_PROXY_CLIENT, KUBELET_CLIENT } from '../pki/pki.ts';
import type { JwtSettings } from './authentication-config.ts';
import type { AuthenticationMetrics } from './authentication-metrics.ts';
import { ANONYMOUS, anonymousAuthenticator } from './anonymous.ts';
import { bearerAuthenticator } from './bearer.ts';
import { bootstrapTokenAuthenticator } from './bootstrap-token.ts';
import type { CaBundle } from '../files/ca-bundle.ts';
import { cachedTokens } from './cached-token.ts';
import { clientCertificateAuthenticator, PeerVerifier } from './client-certificate.ts';
import { Issuers } from './issuers.ts';
import { requestHeaderAuthenticator, type RequestHeaderOptions } from './request-header.ts';
import {
  serviceAccountTokenAuthenticator,
  type ServiceAccountLookups,
  type VerificationKey,
} from './service-account.ts';
import { tokenFileAuthenticator } from './token-file.ts';
import { groupAdder, tokenGroupAdder, unionAuthenticator, unionTokens } from './union.ts';
import { WebhookClient } from '../webhooks/webhook-client.ts';
import { webhookFromFile } from '../webhooks/webhook-file.ts';
import { webhookTokenAuthenticator } from './webhook-token.ts';
import type { Authenticated, Authenticator, TokenAuthenticator } from './authentication.ts';
import { SYSTEM_NAMESPACE } from '../../../api/meta/system-namespaces.ts';

/** A row of a table of `docs/security.md`; `flags` enable and configure the part. */
export interface SecurityPart {
  readonly name: string;
  readonly flags: readonly string[];
}

const SERVICE_ACCOUNT_FLAGS = [
  'key-file',
  'issuer',
  'lookup',
  'signing-key-file',
  'extend-token-expiration',
  'max-token-expiration',
  'jwks-uri',
];
const OIDC_FLAGS = [
  'issuer-url',
  'client-id',
  'username-claim',
  'username-prefix',
  'groups-claim',
  'groups-prefix',
  'required-claim',
  'ca-file',
  'signing-algs',
];
const PROXY_FLAGS = [
  'client-ca-file',
  'allowed-names',
  'username-headers',
  'uid-headers',
  'group-headers',
  'extra-headers-prefix',
];

/** The rows, in the order in which they are tried. */
export const AUTHENTICATORS: readonly SecurityPart[] = [
  {
    name: 'Authenticating proxy',
    flags: PROXY_FLAGS.map((flag) => `--requestheader-${flag}`),
  },
  { name: 'Client certificate', flags: ['--client-ca-file'] },
  { name: 'Static token file', flags: ['--token-auth-file'] },
  {
    name: 'Service-account token',
    flags: [...SERVICE_ACCOUNT_FLAGS.map((flag) => `--service-account-${flag}`), '--api-audiences'],
  },
  { name: 'Bootstrap token', flags: ['--enable-bootstrap-token-auth'] },
  {
    name: 'OpenID Connect',
    flags: [...OIDC_FLAGS.map((flag) => `--oidc-${flag}`), '--authentication-config'],
  },
  {
    name: 'Webhook',
    flags: ['config-file', 'cache-ttl', 'version'].map((flag) => `--authentication-token-webhook-${flag}`),
  },
  { name: 'Anonymous', flags: ['--anonymous-auth', '--authentication-config'] },
];

interface AuthenticatorsOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly listers: Listers;
  /** `--client-ca-file`: `fileCaBundle`, or `fixedCaBundle` of the cluster's own CA. */
  readonly clientCa?: CaBundle;
  readonly requestHeader?: Omit<RequestHeaderOptions, 'verifier'> & { readonly ca: CaBundle };
  readonly tokenFile?: string;
  readonly bootstrapTokens: boolean;
  readonly serviceAccounts?: {
    readonly issuers: readonly string[];
    readonly keys: readonly VerificationKey[];
    readonly lookup: boolean;
    readonly onLegacyToken?: (secret: Secret) => void;
  };
  /** `--api-audiences`; by default the issuer. */
  readonly apiAudiences: readonly string[];
  /** Issuers of identity tokens. */
  readonly oidc: readonly JwtSettings[];
  readonly webhook?: { readonly configFile: string; readonly version: 'v1' | 'v1beta1'; readonly cacheTtlMs: number };
  readonly anonymous: boolean;
  /** All paths if it is absent. */
  readonly anonymousPaths?: readonly string[];
  readonly metrics?: AuthenticationMetrics;
  /** Is notified of calls of webhooks and of issuers. */
  readonly requests?: RequestObserver;
}

/** The authenticators of a control plane. */
export interface Authenticators {
  readonly authenticator: Authenticator;
  /** The authenticator of tokens, for TokenReview. */
  readonly tokens: TokenAuthenticator;
  /** The user of a request without credentials, for TokenReview; `undefined` if there is none or it depends on the path. */
  readonly anonymous: Authenticated | undefined;
  /**
   * Replaces the issuers and empties the token cache. Rejects and keeps the old ones if the keys of a new issuer cannot be
   * fetched within a minute.
   */
  replaceIssuers(settings: readonly JwtSettings[], signal: AbortSignal): Promise<void>;
  close(): void;
}

/** The names by which the control plane authenticates to kubelets and to aggregated API servers, but never to an API server. */
const OWN_IDENTITIES: ReadonlySet<string> = new Set([KUBELET_CLIENT, FRONT_PROXY_CLIENT]);

const TOKEN_SUCCESS_TTL_MS = 10_000;

/**
 * Connects the authenticators in the order in which kube-apiserver tries them. Rejects if the token file or the kubeconfig of
 * the webhook cannot be read or is invalid, and if the options of an issuer are invalid.
 */
export async function buildAuthenticators(options: AuthenticatorsOptions): Promise<Authenticators> {
  const { clock, logger, metrics } = options;
  const client = new WebhookClient('kube-apiserver', {
    measured: options.requests && { observer: options.requests, clock },
  });
  const list: Authenticator[] = [];
  if (options.requestHeader !== undefined) {
    const verifier = new PeerVerifier(options.requestHeader.ca, clock);
    list.push(requestHeaderAuthenticator({ ...options.requestHeader, verifier }));
  }
  if (options.clientCa !== undefined) {
    const onAccepted = (untilMs: number): void => metrics?.certificate((untilMs - clock.now()) / 1000);
    const verifier = new PeerVerifier(options.clientCa, clock);
    list.push(clientCertificateAuthenticator({ verifier, refusedNames: OWN_IDENTITIES, onAccepted }));
  }
  const issuers = new Issuers(options.oidc, { client, clock, logger, onUnreadableKey: metrics?.unreadableKey });
  const tokens = unionTokens(await tokenAuthenticators(options, issuers, client));
  const cache = cachedTokens(withImplicitAudiences(tokens, options.apiAudiences), {
    clock,
    successTtlMs: TOKEN_SUCCESS_TTL_MS,
    failureTtlMs: 0,
    implicitAudiences: options.apiAudiences,
    ...(metrics === undefined ? {} : { metrics: metrics.tokenCache }),
  });
  const cached = tokenGroupAdder(cache);
  list.push(bearerAuthenticator(cached));
  const identified = groupAdder(unionAuthenticator(list));
  const authenticator = options.anonymous ? orAnonymous(identified, options.anonymousPaths) : identified;
  return {
    authenticator: metrics?.measured(authenticator, () => clock.monotonic()) ?? authenticator,
    tokens: cached,
    anonymous: options.anonymous && options.anonymousPaths === undefined ? ANONYMOUS : undefined,
    async replaceIssuers(settings, signal) {
      await issuers.replace(settings, signal);
      cache.forget();
    },
    close: () => client.close(),
  };
}

/** Returns the enabled authenticators of tokens, in the order in which they are tried. */
async function tokenAuthenticators(
  options: AuthenticatorsOptions,
  issuers: Issuers,
  client: WebhookClient,
): Promise<TokenAuthenticator[]> {
  const { clock, logger, listers, metrics, apiAudiences } = options;
  const tokens: TokenAuthenticator[] = [];
  if (options.tokenFile !== undefined) {
    const path = options.tokenFile;
    tokens.push(tokenFileAuthenticator(await readFile(path, 'utf8'), path, logger));
  }
  if (options.serviceAccounts !== undefined) {
    tokens.push(
      serviceAccountTokenAuthenticator({
        ...options.serviceAccounts,
        apiAudiences,
        lookups: lookupsOf(listers),
        clock,
        onToken: (kind) => metrics?.serviceAccountToken(kind),
      }),
    );
  }
  if (options.bootstrapTokens) {
    const lister = listers.of(secrets);
    tokens.push(bootstrapTokenAuthenticator({ clock, secret: (name) => lister.get(SYSTEM_NAMESPACE, name) }));
  }
  tokens.push(issuers);
  if (options.webhook !== undefined) {
    const { configFile, version, cacheTtlMs } = options.webhook;
    const endpoint = await webhookFromFile(configFile, clock);
    const webhook = webhookTokenAuthenticator({ endpoint, client, version, apiAudiences, clock });
    tokens.push(cachedTokens(webhook, { clock, successTtlMs: cacheTtlMs, failureTtlMs: cacheTtlMs }));
  }
  return tokens;
}

/** Lets requests without credentials be anonymous. A request with invalid credentials is refused. */
function orAnonymous(inner: Authenticator, paths: readonly string[] | undefined): Authenticator {
  const anonymous = anonymousAuthenticator(paths);
  return {
    authenticate(credentials) {
      const answer = inner.authenticate(credentials);
      if (answer instanceof Promise) return answer.then((result) => result ?? anonymous.authenticate(credentials));
      return answer ?? anonymous.authenticate(credentials);
    },
  };
}

/** Lets methods without audiences authenticate for the API server's own audiences only. */
function withImplicitAudiences(inner: TokenAuthenticator, apiAudiences: readonly string[]): TokenAuthenticator {
  return {
    async authenticateToken(token, audiences, connection) {
      const authenticated = await inner.authenticateToken(token, audiences, connection);
      if (authenticated === undefined || authenticated.audiences !== undefined) return authenticated;
      const wanted = audiences.length > 0 ? audiences : apiAudiences;
      const common = wanted.filter((audience) => apiAudiences.includes(audience));
      return common.length === 0 && wanted.length > 0 ? undefined : { ...authenticated, audiences: common };
    },
  };
}

/**
 * Reads from the informers first. They lag behind, so objects that they do not have are read from the registry.
 */
function lookupsOf(listers: Listers): ServiceAccountLookups {
  const accounts = listers.of(serviceAccounts);
  const secretSource = listers.of(secrets);
  const podSource = listers.of(pods);
  const nodeSource = listers.of(nodes);
  return {
    serviceAccount: (namespace, name) => accounts.get(namespace, name) ?? accounts.live(namespace, name),
    secret: (namespace, name) => secretSource.get(namespace, name) ?? secretSource.live(namespace, name),
    pod: (namespace, name) => podSource.get(namespace, name) ?? podSource.live(namespace, name),
    node: (name) => nodeSource.get('', name) ?? nodeSource.live('', name),
  };
}
