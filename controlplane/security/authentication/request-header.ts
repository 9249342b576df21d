/**
 * Implements the authenticating proxy: it reads the identity from headers, but only from a peer with a certificate of the
 * front-proxy CA and an allowed common name. Header names are compared exactly: `_` never matches `-`.
 */
import { headerValues } from './header-values.ts';
import { AuthenticationError } from './union.ts';
import type { PeerVerifier } from './client-certificate.ts';
import type { Authenticated, Authenticator, Credentials } from './authentication.ts';

/**
 * The flags `--requestheader-*`. The first header with a value counts for the name, and so for the uid. All values of the
 * headers for groups count.
 */
export interface RequestHeaderOptions {
  readonly verifier: PeerVerifier;
  /** The accepted common names. An empty list accepts every name. */
  readonly allowedNames: readonly string[];
  readonly usernameHeaders: readonly string[];
  readonly uidHeaders: readonly string[];
  readonly groupHeaders: readonly string[];
  readonly extraHeadersPrefixes: readonly string[];
}

/**
 * Creates the authenticator of users that a front proxy names in headers. It returns `undefined` without a name header or
 * without a client certificate. It throws an `AuthenticationError` for an invalid certificate, and for one whose common name is
 * not allowed.
 */
export function requestHeaderAuthenticator(options: RequestHeaderOptions): Authenticator {
  const usernameHeaders = options.usernameHeaders.map(lower);
  const uidHeaders = options.uidHeaders.map(lower);
  const groupHeaders = options.groupHeaders.map(lower);
  const prefixes = options.extraHeadersPrefixes.map(lower);
  return {
    authenticate(credentials): Authenticated | undefined {
      const name = first(credentials, usernameHeaders);
      if (name === '') return undefined;
      const peer = options.verifier.verify(credentials);
      if (peer === undefined) return undefined;
      const { commonName } = peer.leaf.subject;
      if (options.allowedNames.length > 0 && !options.allowedNames.includes(commonName)) {
        throw new AuthenticationError([`x509: subject with cn=${commonName} is not in the allowed list`]);
      }
      const uid = first(credentials, uidHeaders);
      const groups = groupHeaders.flatMap((header) => headerValues(credentials, header));
      const extra = extraOf(credentials, prefixes);
      return {
        user: {
          name,
          groups,
          ...(uid === '' ? {} : { uid }),
          ...(Object.keys(extra).length === 0 ? {} : { extra }),
        },
      };
    },
  };
}

const lower = (text: string): string => text.toLowerCase();

function first(credentials: Credentials, headers: readonly string[]): string {
  for (const header of headers) {
    const [text] = headerValues(credentials, header);
    if (text !== undefined && text !== '') return text;
  }
  return '';
}

function extraOf(credentials: Credentials, prefixes: readonly string[]): Record<string, string[]> {
  const extra: Record<string, string[]> = Object.create(null) as Record<string, string[]>;
  for (const prefix of prefixes) {
    for (const header of Object.keys(credentials.headers)) {
      if (!header.startsWith(prefix)) continue;
      const key = unescapeKey(header.slice(prefix.length));
      (extra[key] ??= []).push(...headerValues(credentials, header));
    }
  }
  return { ...extra };
}

/** Percent-decodes the key if possible, and converts it to lower case. */
export function unescapeKey(encoded: string): string {
  try {
    return decodeURIComponent(encoded).toLowerCase();
  } catch (error) {
    if (error instanceof URIError) return encoded.toLowerCase();
    throw error;
  }
}
