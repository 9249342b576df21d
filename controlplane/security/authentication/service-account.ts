/** Authenticates service account tokens: JWTs that are signed with a key of this cluster, or with another configured key. */
import { quoteText } from '../../../api/meta/quote.ts';
import { createHash, createPublicKey, verify, type KeyObject } from 'node:crypto';
import { formatTime, type Clock } from '../../../api/machinery/clock.ts';
import type { Node, Pod, Secret, ServiceAccount } from '../../../api/kinds/kinds.ts';
import { isJsonObject } from '../../../api/meta/json-object.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { parseJwt, verifyJwt, type Jwt } from './jwt.ts';
import { sameText } from './bootstrap-token.ts';
import type { Authenticated, TokenAuthenticator } from './authentication.ts';
import type { TokenKind } from './authentication-metrics.ts';
import { TOKEN_INVALID_SINCE_LABEL, TOKEN_LAST_USED_LABEL } from '../../../api/meta/well-known-labels.ts';

/** The issuer of tokens in Secrets of type `kubernetes.io/service-account-token`. */
export const LEGACY_ISSUER = 'kubernetes/serviceaccount';
const EXTRA = 'authentication.kubernetes.io/';
/** How long a bound token stays valid after the deletion timestamp of the object that it is bound to, or of its account. */
const DELETION_LEEWAY_MS = 60_000;

/** Looks up objects; `undefined` if they do not exist. */
export interface ServiceAccountLookups {
  serviceAccount(namespace: string, name: string): Promise<ServiceAccount | undefined> | ServiceAccount | undefined;
  secret(namespace: string, name: string): Promise<Secret | undefined> | Secret | undefined;
  pod(namespace: string, name: string): Promise<Pod | undefined> | Pod | undefined;
  node(name: string): Promise<Node | undefined> | Node | undefined;
}

/** A public key with the key id and the one algorithm of its tokens. */
export interface VerificationKey {
  readonly id: string;
  readonly key: KeyObject;
  readonly algorithm: string;
}

interface ServiceAccountTokenOptions {
  /** The accepted values of the claim `iss`, in addition to that of legacy tokens. */
  readonly issuers: readonly string[];
  /** The keys that tokens may be signed with. */
  readonly keys: readonly VerificationKey[];
  /** The audiences of the API server. */
  readonly apiAudiences: readonly string[];
  /** The value of `--service-account-lookup`. */
  readonly lookup: boolean;
  readonly lookups: ServiceAccountLookups;
  readonly clock: Clock;
  /** Called with `lookup` when a legacy token is used whose Secret has no label with the current day. The callee adds it. */
  readonly onLegacyToken?: (secret: Secret) => void;
  /** Counts tokens by kind. */
  readonly onToken?: (kind: TokenKind) => void;
}

/**
 * Reads a public key from PEM: a public or private key, or a certificate. Its id is the SHA-256 of its SPKI, as in
 * kube-apiserver. Throws if the text or the type of the key is unknown.
 */
export function verificationKey(pem: string): VerificationKey {
  const key = createPublicKey(pem);
  const id = createHash('sha256')
    .update(key.export({ type: 'spki', format: 'der' }))
    .digest('base64url');
  return { id, key, algorithm: algorithmFor(key) };
}

function algorithmFor(key: KeyObject): string {
  if (key.asymmetricKeyType === 'rsa') return 'RS256';
  const curve = key.asymmetricKeyDetails?.namedCurve;
  const found = { prime256v1: 'ES256', secp384r1: 'ES384', secp521r1: 'ES512' }[curve ?? ''];
  if (key.asymmetricKeyType === 'ec' && found !== undefined) return found;
  throw new TypeError(`a ${key.asymmetricKeyType} key cannot sign service-account tokens`);
}

class TokenError extends Error {
  override readonly name = 'TokenError';
}

/**
 * Authenticates tokens of service accounts. Resolves to `undefined` for tokens that are not JWTs or have another issuer, and
 * rejects for invalid tokens of this cluster.
 */
export function serviceAccountTokenAuthenticator(options: ServiceAccountTokenOptions): TokenAuthenticator {
  return {
    async authenticateToken(token, audiences): Promise<Authenticated | undefined> {
      const jwt = parseJwt(token);
      if (jwt === undefined) return undefined;
      const issuer = jwt.claims['iss'];
      const isLegacy = issuer === LEGACY_ISSUER;
      // A token of another issuer is no error: another authenticator may accept it.
      if (typeof issuer !== 'string' || (!isLegacy && !options.issuers.includes(issuer))) return undefined;
      verifySignature(jwt, options.keys);
      return isLegacy ? legacy(jwt, token, audiences, options) : bound(jwt, audiences, options);
    },
  };
}

function verifySignature(jwt: Jwt, keys: readonly VerificationKey[]): void {
  const id = jwt.header['kid'];
  const named = typeof id === 'string' && id !== '' ? keys.filter((key) => key.id === id) : [];
  for (const { key, algorithm } of named.length > 0 ? named : keys) {
    if (verifyJwt(jwt, key, algorithm, verify)) return;
  }
  throw new TokenError('invalid signature');
}

interface ObjectClaim {
  readonly name: string;
  readonly uid: string;
}

function objectClaim(value: unknown): ObjectClaim | undefined {
  if (!isJsonObject(value)) return undefined;
  const { name, uid } = value;
  return { name: typeof name === 'string' ? name : '', uid: typeof uid === 'string' ? uid : '' };
}

function checkTimes(jwt: Jwt, nowMs: number): void {
  const { exp, nbf } = jwt.claims;
  const nowSeconds = nowMs / 1000;
  if (typeof exp !== 'number' || nowSeconds > exp) throw new TokenError('service account token has expired');
  if (typeof nbf === 'number' && nowSeconds < nbf) throw new TokenError('service account token is not valid yet');
}

/** Returns the token's audiences among the requested ones; throws if there are none. */
function commonAudiences(jwt: Jwt, wanted: readonly string[]): string[] {
  const { aud } = jwt.claims;
  const has = Array.isArray(aud)
    ? aud.filter((item): item is string => typeof item === 'string')
    : typeof aud === 'string'
      ? [aud]
      : [];
  const common = wanted.filter((audience) => has.includes(audience));
  if (common.length > 0) return common;
  const show = (list: readonly string[]): string => `[${list.map((item) => quoteText(item)).join(' ')}]`;
  throw new TokenError(`token audiences ${show(has)} is invalid for the target audiences ${show(wanted)}`);
}

/** Authenticates a token of the TokenRequest API whose signature is verified. Throws a `TokenError` if it is invalid. */
async function bound(
  jwt: Jwt,
  audiences: readonly string[],
  options: ServiceAccountTokenOptions,
): Promise<Authenticated> {
  const nowMs = options.clock.now();
  const common = commonAudiences(jwt, audiences.length > 0 ? audiences : options.apiAudiences);
  checkTimes(jwt, nowMs);
  const claims = jwt.claims['kubernetes.io'];
  if (!isJsonObject(claims)) throw new TokenError('service account token has no private claims');
  const namespace = typeof claims['namespace'] === 'string' ? claims['namespace'] : '';
  const account = objectClaim(claims['serviceaccount']);
  if (account === undefined) throw new TokenError('service account token has no service account');
  const pod = objectClaim(claims['pod']);
  const secret = objectClaim(claims['secret']);
  const node = objectClaim(claims['node']);
  let deadlineMs = Number.POSITIVE_INFINITY;
  const check = (object: KubeObject | undefined, claim: ObjectClaim): void => {
    if (object === undefined || object.metadata.uid !== claim.uid)
      throw new TokenError('service account token has been invalidated');
    if (object.metadata.deletionTimestamp === undefined) return;
    deadlineMs = Math.min(deadlineMs, Date.parse(object.metadata.deletionTimestamp) + DELETION_LEEWAY_MS);
    if (nowMs > deadlineMs) throw new TokenError('service account token has been invalidated');
  };
  if (options.lookup) {
    const found = await options.lookups.serviceAccount(namespace, account.name);
    if (found === undefined) throw new TokenError(`serviceaccounts "${account.name}" not found`);
    if (found.metadata.uid !== account.uid)
      throw new TokenError(`service account UID (${found.metadata.uid}) does not match claim (${account.uid})`);
    if (found.metadata.deletionTimestamp !== undefined) check(found, account);
    if (secret !== undefined) check(await options.lookups.secret(namespace, secret.name), secret);
    if (pod !== undefined) check(await options.lookups.pod(namespace, pod.name), pod);
    // The node of a pod's token is informational; only a token that is bound to the node itself depends on it.
    if (node !== undefined && pod === undefined) check(await options.lookups.node(node.name), node);
  }
  const extra: Record<string, string[]> = {};
  const { jti } = jwt.claims;
  if (typeof jti === 'string' && jti !== '') extra[`${EXTRA}credential-id`] = [`JTI=${jti}`];
  if (node !== undefined) {
    extra[`${EXTRA}node-name`] = [node.name];
    if (node.uid !== '') extra[`${EXTRA}node-uid`] = [node.uid];
  }
  if (pod !== undefined) {
    extra[`${EXTRA}pod-name`] = [pod.name];
    extra[`${EXTRA}pod-uid`] = [pod.uid];
  }
  const authenticated = identity(namespace, account, extra, common);
  const warnAfter = claims['warnafter'];
  if (typeof warnAfter !== 'number') return authenticated;
  const isStale = nowMs / 1000 > warnAfter;
  options.onToken?.(isStale ? 'stale' : 'valid');
  if (!isStale) return authenticated;
  const seconds = Math.round(nowMs / 1000 - warnAfter);
  return {
    ...authenticated,
    annotations: {
      'authentication.k8s.io/stale-token': `subject: ${authenticated.user.name}, seconds after warning threshold: ${seconds}`,
    },
  };
}

/** Authenticates a token of a Secret whose signature is verified. Throws a `TokenError` if it is invalid. */
async function legacy(
  jwt: Jwt,
  token: string,
  audiences: readonly string[],
  options: ServiceAccountTokenOptions,
): Promise<Authenticated> {
  const claim = (name: string): string => {
    const value = jwt.claims[`kubernetes.io/serviceaccount/${name}`];
    return typeof value === 'string' ? value : '';
  };
  const namespace = claim('namespace');
  const account = { name: claim('service-account.name'), uid: claim('service-account.uid') };
  const secretName = claim('secret.name');
  if (namespace === '') throw new TokenError('namespace claim is missing');
  if (secretName === '') throw new TokenError('secretName claim is missing');
  if (account.name === '') throw new TokenError('serviceAccountName claim is missing');
  if (account.uid === '') throw new TokenError('serviceAccountUID claim is missing');
  if (jwt.claims['sub'] !== userName(namespace, account.name))
    throw new TokenError('the subject of the token is not its service account');
  // A legacy token has no audience, so it is valid for the API server only.
  const wanted = audiences.length > 0 ? audiences : options.apiAudiences;
  const common = wanted.filter((audience) => options.apiAudiences.includes(audience));
  if (common.length === 0) throw new TokenError('token audiences [] is invalid for the target audiences');
  let warnings: string[] = [];
  let annotations: Record<string, string> = {};
  if (options.lookup) {
    const secret = await options.lookups.secret(namespace, secretName);
    if (secret === undefined) throw new TokenError('Token has been invalidated');
    if (secret.metadata.deletionTimestamp !== undefined) throw new TokenError('Token has been invalidated');
    if (!sameText(Buffer.from(secret.data?.['token'] ?? '', 'base64').toString('utf8'), token)) {
      throw new TokenError("Token does not match server's copy");
    }
    const found = await options.lookups.serviceAccount(namespace, account.name);
    if (found === undefined || found.metadata.deletionTimestamp !== undefined)
      throw new TokenError('ServiceAccount has been deleted');
    if (found.metadata.uid !== account.uid)
      throw new TokenError(`ServiceAccount UID (${found.metadata.uid}) does not match claim (${account.uid})`);
    const isAuto = (found.secrets ?? []).some((reference) => reference.name === secretName);
    if (secret.metadata.labels?.[TOKEN_INVALID_SINCE_LABEL] !== undefined) {
      if (isAuto) options.onToken?.('invalid-legacy-auto');
      throw new TokenError('the token in the secret is invalidated');
    }
    options.onToken?.(isAuto ? 'legacy-auto' : 'legacy-manual');
    annotations = { [`authentication.k8s.io/legacy-token-${isAuto ? 'autogenerated' : 'manual'}-secret`]: secretName };
    if (isAuto)
      warnings = [
        'Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated secret-based tokens.',
      ];
    const today = formatTime(options.clock.now()).slice(0, 10);
    if (secret.metadata.labels?.[TOKEN_LAST_USED_LABEL] !== today) options.onLegacyToken?.(secret);
  }
  options.onToken?.('legacy');
  return { ...identity(namespace, account, {}, common), warnings, annotations };
}

const userName = (namespace: string, name: string): string => `system:serviceaccount:${namespace}:${name}`;

function identity(
  namespace: string,
  account: ObjectClaim,
  extra: Record<string, string[]>,
  audiences: readonly string[],
): Authenticated {
  return {
    audiences,
    user: {
      name: userName(namespace, account.name),
      uid: account.uid,
      groups: ['system:serviceaccounts', `system:serviceaccounts:${namespace}`],
      ...(Object.keys(extra).length === 0 ? {} : { extra }),
    },
  };
}
