/**
 * Signs service account tokens, and builds the issuer's discovery document and key set, with which others verify them.
 *
 * The claims are those of kube-apiserver.
 */
import { stringifyJson } from '../../../api/codec/json.ts';
import { createPrivateKey, randomUUID, type KeyObject } from 'node:crypto';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { ServiceAccount } from '../../../api/kinds/kinds.ts';
import { signJwt } from './jwt.ts';
import { LEGACY_ISSUER, verificationKey, type VerificationKey } from './service-account.ts';

/**
 * The lifetime of the token that every pod gets by default. With `--service-account-extend-token-expiration`, tokens of this
 * lifetime are extended, so that clients that do not reload the file keep working.
 */
export const WARN_ONLY_EXPIRATION_SECONDS = 3600 + 7;
/** The lifetime of an extended token. */
export const EXTENDED_EXPIRATION_SECONDS = 365 * 24 * 3600;

/** The object that a token is bound to. */
export interface ObjectIdentity {
  readonly name: string;
  readonly uid: string;
}

interface TokenRequestClaims {
  readonly namespace: string;
  readonly account: ObjectIdentity;
  readonly pod?: ObjectIdentity;
  readonly secret?: ObjectIdentity;
  readonly node?: ObjectIdentity;
  readonly audiences: readonly string[];
  readonly expirationSeconds: number;
  /** How many seconds after its issue the client should request a new token. The token itself lives longer. */
  readonly warnAfterSeconds?: number;
}

interface TokenIssuerOptions {
  readonly privateKeyPem: string;
  /** Further keys that are published beside the signing key. */
  readonly verificationKeys: readonly VerificationKey[];
  readonly issuer: string;
  /** `--service-account-jwks-uri`, or a URL of this server without the flag. */
  readonly jwksUri: string;
  readonly clock: Clock;
}

/** Issues tokens that one private key signs. */
export class TokenIssuer {
  readonly issuer: string;
  readonly #key: KeyObject;
  readonly #public: VerificationKey;
  readonly #options: TokenIssuerOptions;

  constructor(options: TokenIssuerOptions) {
    this.#options = options;
    this.issuer = options.issuer;
    this.#key = createPrivateKey(options.privateKeyPem);
    this.#public = verificationKey(options.privateKeyPem);
  }

  /**
   * Returns the token, its identifier (the claim `jti`), and the time at which it was issued, in seconds since 1970. It expires
   * `expirationSeconds` later.
   */
  issue(claims: TokenRequestClaims): { readonly token: string; readonly id: string; readonly issuedAtSeconds: number } {
    const id = randomUUID();
    const now = Math.floor(this.#options.clock.now() / 1000);
    const claimOf = (identity: ObjectIdentity | undefined) =>
      identity === undefined
        ? undefined
        : { name: identity.name, ...(identity.uid === '' ? {} : { uid: identity.uid }) };
    const payload = {
      aud: claims.audiences,
      exp: now + claims.expirationSeconds,
      iat: now,
      iss: this.issuer,
      jti: id,
      'kubernetes.io': {
        namespace: claims.namespace,
        node: claimOf(claims.node),
        pod: claimOf(claims.pod),
        secret: claimOf(claims.secret),
        serviceaccount: claimOf(claims.account),
        warnafter: claims.warnAfterSeconds === undefined ? undefined : now + claims.warnAfterSeconds,
      },
      nbf: now,
      sub: `system:serviceaccount:${claims.namespace}:${claims.account.name}`,
    };
    return { token: this.#sign(payload), id, issuedAtSeconds: now };
  }

  /** Issues the token of a Secret of type `kubernetes.io/service-account-token`: without expiry, revoked with the Secret. */
  issueLegacy(account: ServiceAccount, secretName: string): string {
    const prefix = 'kubernetes.io/serviceaccount/';
    const { namespace = '', name = '', uid = '' } = account.metadata;
    return this.#sign({
      iss: LEGACY_ISSUER,
      [`${prefix}namespace`]: namespace,
      [`${prefix}secret.name`]: secretName,
      [`${prefix}service-account.name`]: name,
      [`${prefix}service-account.uid`]: uid,
      sub: `system:serviceaccount:${namespace}:${name}`,
    });
  }

  #sign(payload: object): string {
    return signJwt(payload, this.#key, { alg: this.#public.algorithm, kid: this.#public.id });
  }

  /** Returns the document of `/.well-known/openid-configuration`, as JSON of the type `application/json`. */
  discoveryDocument(): string {
    const algorithms = [
      ...new Set([this.#public, ...this.#options.verificationKeys].map((key) => key.algorithm)),
    ].sort();
    return stringifyJson({
      issuer: this.issuer,
      jwks_uri: this.#options.jwksUri,
      response_types_supported: ['id_token'],
      subject_types_supported: ['public'],
      id_token_signing_alg_values_supported: algorithms,
    });
  }

  /** Returns the document of `/openid/v1/jwks`, as JSON of the type `application/jwk-set+json`. */
  keySet(): string {
    const keys = new Map([this.#public, ...this.#options.verificationKeys].map((key) => [key.id, key]));
    return stringifyJson({
      keys: [...keys.values()].map(({ id, key, algorithm }) => ({
        use: 'sig',
        kid: id,
        alg: algorithm,
        ...key.export({ format: 'jwk' }),
      })),
    });
  }
}
