/** What an authenticator is. Each stands in a file of its own; `union.ts` tries them until one knows the caller. */
import type { UserInfo } from '../model/user-info.ts';
import type { X509Certificate } from 'node:crypto';

export type { UserInfo };

export interface Credentials {
  /** Lower-case names, as node:http gives them. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  /** Names and values alternating, as they came: keeps repeated headers apart where `headers` joins them. */
  readonly rawHeaders?: readonly string[];
  /** What the TLS handshake gave; not verified by it. The first is the leaf. */
  readonly peerCertificate: (() => X509Certificate | undefined) | undefined;
  /** Address of the peer. */
  readonly remoteAddress: string;
  /** Path of the request, without its query: anonymous access may be limited to some. */
  readonly path?: string;
  /** Adds a `Warning: 299` header. */
  readonly warn?: (text: string) => void;
  /** Adds an audit annotation. */
  readonly annotate?: (key: string, value: string) => void;
}

export interface Authenticated {
  readonly user: UserInfo;
  /** Audiences that the token is good for; absent where the method has none. */
  readonly audiences?: readonly string[];
  /** Texts for `Warning: 299` headers of the answer. */
  readonly warnings?: readonly string[];
  /** Audit annotations. */
  readonly annotations?: Readonly<Record<string, string>>;
}

/** `undefined`: not mine, ask the next. An error: mine, and refused (the answer is 401 all the same unless another knows the caller). */
export interface Authenticator {
  authenticate(credentials: Credentials): Authenticated | undefined | Promise<Authenticated | undefined>;
}

/** Authenticates a bearer token alone (TokenReview asks the same). `audiences` empty: those of the API server. */
export interface TokenAuthenticator {
  authenticateToken(
    token: string,
    audiences: readonly string[],
  ): Authenticated | undefined | Promise<Authenticated | undefined>;
}
