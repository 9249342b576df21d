/**
 * Authenticates the identity tokens of one OpenID Connect issuer, with keys that are fetched from it over TLS and cached.
 *
 * The issuer is not called while a cached key verifies a token.
 */
import { errorMessage } from '../../../api/meta/error-message.ts';
import { isJsonObject } from '../../../api/meta/json-object.ts';
import { createPublicKey, type JsonWebKeyInput, type KeyObject } from 'node:crypto';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { Logger } from '../../../api/component/logger.ts';
import { background } from '../../../api/machinery/background.ts';
import { verifiesInTime } from '../../../api/pki/signing.ts';
import { parseJwt, verifyJwt, type Jwt } from './jwt.ts';
import { withTimeout, type WebhookClient } from '../webhooks/webhook-client.ts';
import type { Authenticated, TokenAuthenticator } from './authentication.ts';
import type { UserInfo } from '../../model/user-info.ts';
import { CREDENTIAL_ID_EXTRA } from '../../../api/meta/system-users.ts';
import { SIGNING_ALGORITHMS } from './signing-algorithms.ts';

/** An issuer with its mapping of claims to a user. */
export interface OidcOptions {
  /** An https URL, equal to the claim `iss` of the tokens. */
  readonly issuerUrl: string;
  readonly clientId: string;
  /** The accepted audiences, in place of the client id: one of them must be in the token. */
  readonly audiences?: readonly string[];
  /** The URL of the discovery document, if it is not below the issuer's URL. */
  readonly discoveryUrl?: string;
  /** Maps the claims to a user, in place of the claims and prefixes below. Throws if it refuses the claims. */
  readonly userOf?: (claims: Readonly<Record<string, unknown>>) => UserInfo;
  readonly usernameClaim: string;
  /** The prefix of user names. By default it is the issuer and `#`, unless the claim is `email`. `-` means no prefix. */
  readonly usernamePrefix: string | undefined;
  readonly groupsClaim: string;
  readonly groupsPrefix: string;
  readonly requiredClaims: Readonly<Record<string, string>>;
  readonly signingAlgorithms: readonly string[];
  /** PEM; the system's root CAs if it is absent. */
  readonly ca?: string;
  readonly client: WebhookClient;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Called for each key of the issuer that cannot be read. */
  readonly onUnreadableKey?: (() => void) | undefined;
}

const REFRESH_AT_MOST_EVERY_MS = 10_000;
const FETCH_TIMEOUT_MS = 10_000;
/** The limit of keys of one issuer. A token without a key id is verified with all of them in one turn of the event loop. */
const MAX_KEYS = 128;
/** The limit of Go for the keys of TLS. */
const MAX_MODULUS_BITS = 8192;
const MAX_SHOWN_ID = 64;

class OidcError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(`oidc: ${message}`, options);
    this.name = 'OidcError';
  }
}

interface IssuerKey {
  readonly id: string;
  readonly algorithm: string | undefined;
  readonly key: KeyObject;
}

/** Throws if the options are invalid. */
function checkOidcOptions(options: OidcOptions): void {
  const url = URL.parse(options.issuerUrl);
  if (url === null || url.protocol !== 'https:')
    throw new OidcError(`--oidc-issuer-url must be an https URL, not "${options.issuerUrl}"`);
  if (url.username !== '' || url.search !== '' || url.hash !== '') {
    throw new OidcError('--oidc-issuer-url may not contain user information, a query or a fragment');
  }
  if (options.clientId === '') throw new OidcError('--oidc-client-id is required with --oidc-issuer-url');
  for (const algorithm of options.signingAlgorithms) {
    if (!SIGNING_ALGORITHMS.includes(algorithm)) throw new OidcError(`unsupported signing alg: "${algorithm}"`);
  }
}

/** The token authenticator of one issuer. */
export interface OidcAuthenticator extends TokenAuthenticator {
  readonly issuerUrl: string;
  /** Whether the keys of the issuer are cached; fetches them if not. */
  ready(): Promise<boolean>;
}

/**
 * Creates the authenticator, which begins to fetch the keys of the issuer at once. Throws if the options are invalid. The
 * authenticator returns `undefined` for tokens of other issuers, and rejects for invalid tokens of this one.
 */
export function oidcAuthenticator(options: OidcOptions): OidcAuthenticator {
  checkOidcOptions(options);
  const keys = new IssuerKeys(options);
  return {
    issuerUrl: options.issuerUrl,
    ready: () => keys.ready(),
    authenticateToken(token) {
      const jwt = parseJwt(token);
      if (jwt === undefined || jwt.claims['iss'] !== options.issuerUrl) return undefined;
      return verifyToken(jwt, keys, options);
    },
  };
}

async function verifyToken(jwt: Jwt, keys: IssuerKeys, options: OidcOptions): Promise<Authenticated> {
  const algorithm = jwt.header['alg'];
  if (typeof algorithm !== 'string' || !options.signingAlgorithms.includes(algorithm)) {
    throw new OidcError('verify token: the signing algorithm is not accepted');
  }
  checkClaims(jwt, options);
  if (!(await keys.verify(jwt, algorithm))) throw new OidcError('verify token: failed to verify signature');
  return { user: options.userOf === undefined ? userOf(jwt.claims, options) : mappedUser(jwt.claims, options.userOf) };
}

function checkClaims({ claims }: Jwt, options: OidcOptions): void {
  const nowSeconds = options.clock.now() / 1000;
  const { exp, nbf, aud } = claims;
  if (typeof exp !== 'number' || nowSeconds > exp) throw new OidcError('verify token: token is expired');
  if (typeof nbf === 'number' && nowSeconds + 300 < nbf) throw new OidcError('verify token: token is not valid yet');
  const audiences: unknown[] = Array.isArray(aud) ? aud : [aud];
  const wanted = options.audiences ?? [options.clientId];
  if (!wanted.some((one) => audiences.includes(one)))
    throw new OidcError(`verify token: the token is for none of the audiences [${wanted.join(' ')}]`);
  for (const [name, wanted] of Object.entries(options.requiredClaims)) {
    if (!Object.hasOwn(claims, name)) throw new OidcError(`required claim ${name} not present in ID token`);
    if (claims[name] !== wanted) throw new OidcError(`required claim ${name} value does not match`);
  }
}

function userOf(claims: Readonly<Record<string, unknown>>, options: OidcOptions): Authenticated['user'] {
  const { usernameClaim, groupsClaim } = options;
  const name = Object.hasOwn(claims, usernameClaim) ? claims[usernameClaim] : undefined;
  if (typeof name !== 'string' || name === '')
    throw new OidcError(`parse username claims "${usernameClaim}": claim not present`);
  if (usernameClaim === 'email') {
    const verified = claims['email_verified'];
    if (verified !== undefined && verified !== true) throw new OidcError('email not verified');
  }
  const groups: string[] = [];
  const listed = groupsClaim !== '' && Object.hasOwn(claims, groupsClaim) ? claims[groupsClaim] : undefined;
  if (listed !== undefined && listed !== null) {
    const list: unknown[] = Array.isArray(listed) ? listed : [listed];
    for (const group of list) {
      if (typeof group !== 'string')
        throw new OidcError(`parse groups claim "${groupsClaim}": not an array of strings`);
      groups.push(`${options.groupsPrefix}${group}`);
    }
  }
  const { jti } = claims;
  return {
    name: `${usernamePrefix(options)}${name}`,
    groups,
    ...(typeof jti === 'string' && jti !== '' ? { extra: { [CREDENTIAL_ID_EXTRA]: [`JTI=${jti}`] } } : {}),
  };
}

function mappedUser(claims: Jwt['claims'], map: NonNullable<OidcOptions['userOf']>): UserInfo {
  let user: UserInfo;
  try {
    user = map(claims);
  } catch (error) {
    throw new OidcError(errorMessage(error), { cause: error });
  }
  const { jti } = claims;
  if (typeof jti !== 'string' || jti === '') return user;
  return { ...user, extra: { ...user.extra, [CREDENTIAL_ID_EXTRA]: [`JTI=${jti}`] } };
}

function usernamePrefix(options: OidcOptions): string {
  const { usernamePrefix: prefix } = options;
  if (prefix === '-') return '';
  if (prefix !== undefined && prefix !== '') return prefix;
  return options.usernameClaim === 'email' ? '' : `${options.issuerUrl}#`;
}

/** Reads a JSON web key. Throws if it cannot be read, or if a verification with it takes too long. */
function issuerKey(jwk: unknown): IssuerKey {
  if (!isJsonObject(jwk)) throw new OidcError('the key is no JSON object');
  const { kid, alg } = jwk;
  const key = createPublicKey({ key: jwk as JsonWebKeyInput['key'], format: 'jwk' });
  const { modulusLength = 0 } = key.asymmetricKeyDetails ?? {};
  if (modulusLength > MAX_MODULUS_BITS || !verifiesInTime(key))
    throw new OidcError(`the key (${modulusLength} bits) takes too long to verify a signature`);
  return {
    id: typeof kid === 'string' ? kid : '',
    algorithm: typeof alg === 'string' ? alg : undefined,
    key,
  };
}

/** Returns the id of the key that signed a token. `undefined` without one, and for an empty one, as go-oidc has it. */
function keyIdOf({ header: { kid } }: Jwt): string | undefined {
  return typeof kid === 'string' && kid !== '' ? kid : undefined;
}

class IssuerKeys {
  readonly #options: OidcOptions;
  #keys: readonly IssuerKey[] = [];
  #isLoaded = false;
  #nextRefreshMs = 0;
  #refresh: Promise<void> | undefined;

  constructor(options: OidcOptions) {
    this.#options = options;
    background(this.#fetchOnce(), { logger: options.logger, what: 'Fetching the keys of the OpenID issuer' });
  }

  async ready(): Promise<boolean> {
    if (!this.#isLoaded) await this.#fetchOnce();
    return this.#isLoaded;
  }

  async verify(jwt: Jwt, algorithm: string): Promise<boolean> {
    if (this.#verifyNow(jwt, algorithm)) return true;
    const id = keyIdOf(jwt);
    // The key is cached and does not verify the token; another fetch would not change that.
    if (id !== undefined && this.#keys.some((key) => key.id === id)) return false;
    await this.#fetchOnce();
    return this.#verifyNow(jwt, algorithm);
  }

  #verifyNow(jwt: Jwt, algorithm: string): boolean {
    const id = keyIdOf(jwt);
    const candidates = id === undefined ? this.#keys : this.#keys.filter((key) => key.id === id);
    return candidates.some(
      (key) => (key.algorithm === undefined || key.algorithm === algorithm) && verifyJwt(jwt, key.key, algorithm),
    );
  }

  /**
   * Fetches the keys, but not within ten seconds of the last attempt. Never rejects: a failure is logged, and the keys from
   * before stay in use.
   */
  #fetchOnce(): Promise<void> {
    const { clock, logger, issuerUrl } = this.#options;
    if (this.#refresh !== undefined) return this.#refresh;
    if (clock.monotonic() < this.#nextRefreshMs) return Promise.resolve();
    this.#refresh = this.#fetch()
      .then((keys) => {
        this.#keys = keys;
        this.#isLoaded = true;
      })
      .catch((error: unknown) =>
        logger.warn({ err: error, issuer: issuerUrl }, 'The keys of the OpenID issuer cannot be fetched'),
      )
      .finally(() => {
        this.#refresh = undefined;
        this.#nextRefreshMs = clock.monotonic() + REFRESH_AT_MOST_EVERY_MS;
      });
    return this.#refresh;
  }

  async #fetch(): Promise<IssuerKey[]> {
    const { issuerUrl, discoveryUrl } = this.#options;
    const discovery = discoveryUrl ?? `${issuerUrl.replace(/\/$/, '')}/.well-known/openid-configuration`;
    const document = await this.#get(discovery, 'configured');
    if (document['issuer'] !== issuerUrl)
      throw new OidcError(`the issuer in ${discovery} must be ${issuerUrl}, but is ${String(document['issuer'])}`);
    const uri = document['jwks_uri'];
    if (typeof uri !== 'string' || URL.parse(uri)?.protocol !== 'https:')
      throw new OidcError(`jwks_uri in ${discovery} is no https URL`);
    const isOwnHost = new URL(uri).host === new URL(discovery).host;
    const { keys } = await this.#get(uri, isOwnHost ? 'configured' : 'issuer-keys');
    if (!Array.isArray(keys)) throw new OidcError(`the key set ${uri} has no list of keys`);
    if (keys.length > MAX_KEYS)
      throw new OidcError(`the key set ${uri} has ${keys.length} keys, more than ${MAX_KEYS}`);
    return (keys as unknown[]).flatMap((jwk) => this.#readKey(jwk) ?? []);
  }

  /**
   * Returns `undefined` for a key that is not for signatures, is neither RSA nor EC, or cannot be read. The other keys of the
   * issuer stay usable.
   */
  #readKey(jwk: unknown): IssuerKey | undefined {
    const { logger, issuerUrl, onUnreadableKey } = this.#options;
    if (isJsonObject(jwk) && jwk['use'] !== undefined && jwk['use'] !== 'sig') return undefined;
    if (isJsonObject(jwk) && jwk['kty'] !== 'RSA' && jwk['kty'] !== 'EC') return undefined;
    try {
      return issuerKey(jwk);
    } catch (error) {
      const id = isJsonObject(jwk) && typeof jwk['kid'] === 'string' ? jwk['kid'].slice(0, MAX_SHOWN_ID) : '';
      logger.warn({ err: error, issuer: issuerUrl, key: id }, 'A key of the OpenID issuer cannot be read');
      onUnreadableKey?.();
      return undefined;
    }
  }

  async #get(url: string, purpose: 'configured' | 'issuer-keys'): Promise<Record<string, unknown>> {
    const { client, ca } = this.#options;
    const endpoint = { url: new URL(url), purpose, ...(ca === undefined ? {} : { ca }) };
    const answer = await client.call(endpoint, {
      method: 'GET',
      signal: withTimeout(FETCH_TIMEOUT_MS),
      maxBytes: 1024 * 1024,
    });
    if (answer.status !== 200) throw new OidcError(`${url} answered ${answer.status}`);
    const value: unknown = JSON.parse(answer.body.toString('utf8'));
    if (!isJsonObject(value)) throw new OidcError(`${url} is no JSON object`);
    return value;
  }
}
