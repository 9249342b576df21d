/** Defines the interface of authenticators. */
import type { UserInfo } from '../../model/user-info.ts';
import type { X509Certificate } from 'node:crypto';

/** The TLS connection of a client. All its requests have the same value, by which results can be remembered. */
export interface ClientConnection {
  /** The address of the peer. */
  readonly remoteAddress: string;
  /** The certificate of the client. The handshake proved that the client has its key, and verified no chain. */
  readonly peerCertificate: X509Certificate | undefined;
  /** Called when a request has proved who the client is: from then on, other connections are closed before this one. */
  accepted?(): void;
}

/** What a request shows about its client. */
export interface Credentials {
  /** Names are in lower case, as in node:http. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  /**
   * Names and values alternate, in the order of the request. Repeated headers are separate here, while `headers` joins them.
   */
  readonly rawHeaders?: readonly string[] | undefined;
  readonly connection: ClientConnection;
  /** The path without its query: anonymous access can be limited to some paths. */
  readonly path?: string;
  /** Adds a `Warning: 299` header. */
  readonly warn?: (text: string) => void;
  /** Adds an audit annotation. */
  readonly annotate?: (key: string, value: string) => void;
}

/** A client that an authenticator knows. */
export interface Authenticated {
  readonly user: UserInfo;
  /** The audiences that the token is valid for; absent if the method has none. */
  readonly audiences?: readonly string[];
  /** Texts for `Warning: 299` headers of the response. */
  readonly warnings?: readonly string[];
  /** The annotations for the audit event. */
  readonly annotations?: Readonly<Record<string, string>>;
}

/** Authenticates requests by one kind of credentials. */
export interface Authenticator {
  /**
   * Returns `undefined` if the request has no credentials that this authenticator knows: the next one is tried. Throws if the
   * credentials are invalid: the response is 401 unless another authenticator accepts the request.
   */
  authenticate(credentials: Credentials): Authenticated | undefined | Promise<Authenticated | undefined>;
}

/**
 * Authenticates a bearer token, also for TokenReview. Empty `audiences` stand for those of the API server. `connection` is the
 * one that sent the token, if there is one.
 */
export interface TokenAuthenticator {
  authenticateToken(
    token: string,
    audiences: readonly string[],
    connection?: ClientConnection,
  ): Authenticated | undefined | Promise<Authenticated | undefined>;
}
