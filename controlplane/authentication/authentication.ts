/**
 * Defines the interface of authenticators. Each has its own file; `union.ts` tries them in order until one authenticates the
 * request.
 */
import type { UserInfo } from '../model/user-info.ts';
import type { X509Certificate } from 'node:crypto';

export type { UserInfo };

export interface Credentials {
  /** Names are in lower case, as in node:http. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  /**
   * Names and values alternate, in the order of the request. Repeated headers are separate here, while `headers` joins them.
   */
  readonly rawHeaders?: readonly string[];
  /** The certificates of the TLS handshake, which did not verify them. The first is the leaf. */
  readonly peerCertificate: (() => X509Certificate | undefined) | undefined;
  /** The address of the peer. */
  readonly remoteAddress: string;
  /** The path without its query: anonymous access can be limited to some paths. */
  readonly path?: string;
  /** Adds a `Warning: 299` header. */
  readonly warn?: (text: string) => void;
  /** Adds an audit annotation. */
  readonly annotate?: (key: string, value: string) => void;
}

export interface Authenticated {
  readonly user: UserInfo;
  /** The audiences that the token is valid for; absent if the method has none. */
  readonly audiences?: readonly string[];
  /** Texts for `Warning: 299` headers of the response. */
  readonly warnings?: readonly string[];
  /** Audit annotations. */
  readonly annotations?: Readonly<Record<string, string>>;
}

/**
 * Returns `undefined` if the request has no credentials of this kind: the next authenticator is tried. Throws if the
 * credentials are invalid: the response is 401 unless another authenticator accepts the request.
 */
export interface Authenticator {
  authenticate(credentials: Credentials): Authenticated | undefined | Promise<Authenticated | undefined>;
}

/** Authenticates a bearer token, also for TokenReview. Empty `audiences` stand for those of the API server. */
export interface TokenAuthenticator {
  authenticateToken(
    token: string,
    audiences: readonly string[],
  ): Authenticated | undefined | Promise<Authenticated | undefined>;
}
