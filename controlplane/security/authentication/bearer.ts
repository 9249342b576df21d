/**
 * Reads the token from the `Authorization: Bearer` header, or from the WebSocket sub-protocol that browsers use, for the token
 * authenticators.
 */
import { trim, trimEnd } from '../../../api/component/trim.ts';
import { AuthenticationError } from './union.ts';
import type { Authenticated, Authenticator, Credentials, TokenAuthenticator } from './authentication.ts';

/** The message of kube-apiserver for a token that no authenticator knows. */
export const INVALID_BEARER_TOKEN = 'invalid bearer token';
const NO_AUDIENCES: readonly string[] = [];
const WEBSOCKET_PREFIX = 'base64url.bearer.authorization.k8s.io.';

const PREFIX = 'Bearer ';

/** Whether the header has the usual prefix and no other blanks, so that it need not be split. */
const isUsual = (header: string): boolean =>
  header.startsWith(PREFIX) &&
  header.length > PREFIX.length &&
  !header.includes(' ', PREFIX.length) &&
  !header.includes('\t', PREFIX.length);

/**
 * Returns the bearer token of a request, and `undefined` if it has none. If blanks precede the token, it is ignored with a
 * warning.
 */
function bearerToken(credentials: Credentials): string | undefined {
  const header = credentials.headers['authorization'];
  if (typeof header !== 'string') return websocketToken(credentials);
  if (isUsual(header)) return header.slice(PREFIX.length);
  // Only the white space of HTTP is trimmed: any other character is part of the token.
  const [scheme = '', token, ...more] = trim(header, ' \t').split(' ');
  if (token === undefined || scheme.toLowerCase() !== 'bearer') return websocketToken(credentials);
  if (token !== '') return token;
  if (more.length > 0) {
    credentials.warn?.(
      'the provided Authorization header contains extra space before the bearer token, and is ignored',
    );
  }
  return undefined;
}

/** The white space of Unicode. */
const WHITE_SPACE =
  '\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000';

/**
 * Returns the token of a TokenReview. kube-apiserver reads it like the header of a request: up to the first blank, without
 * white space at the end. It is `undefined` if nothing precedes the first blank.
 */
export function reviewedToken(text: string): string | undefined {
  const [token = ''] = trimEnd(text, WHITE_SPACE).split(' ');
  return token === '' ? undefined : token;
}

function websocketToken(credentials: Credentials): string | undefined {
  if (String(credentials.headers['upgrade'] ?? '').toLowerCase() !== 'websocket') return undefined;
  const header = credentials.headers['sec-websocket-protocol'];
  const protocols = (Array.isArray(header) ? header.join(',') : (header ?? '')).split(',').map((text) => text.trim());
  const found = protocols.filter((text) => text.startsWith(WEBSOCKET_PREFIX));
  // Without another sub-protocol to select, the handshake would send the token back.
  if (found.length !== 1 || protocols.length < 2) return undefined;
  const token = Buffer.from(found[0]?.slice(WEBSOCKET_PREFIX.length) ?? '', 'base64url').toString('utf8');
  return token === '' ? undefined : token;
}

/**
 * Authenticates by the bearer token of a request. Returns `undefined` for a request without one. Throws, or rejects with,
 * `AuthenticationError` for a token that no authenticator accepts.
 */
export function bearerAuthenticator(tokens: TokenAuthenticator): Authenticator {
  const refused = (error?: unknown): never => {
    const more = error instanceof AuthenticationError ? error.messages : error instanceof Error ? [error.message] : [];
    throw new AuthenticationError([INVALID_BEARER_TOKEN, ...more]);
  };
  return {
    authenticate(credentials): Authenticated | undefined | Promise<Authenticated | undefined> {
      const token = bearerToken(credentials);
      if (token === undefined) return undefined;
      let answer;
      try {
        answer = tokens.authenticateToken(token, NO_AUDIENCES, credentials.connection);
      } catch (error) {
        return refused(error);
      }
      if (!(answer instanceof Promise)) return announce(answer ?? refused(), credentials);
      return answer.then((authenticated) => announce(authenticated ?? refused(), credentials), refused);
    },
  };
}

/** Adds the warnings and audit annotations of the token authenticator's result to the request, and returns the result. */
function announce(authenticated: Authenticated, credentials: Credentials): Authenticated {
  if (authenticated.warnings !== undefined) for (const text of authenticated.warnings) credentials.warn?.(text);
  if (authenticated.annotations !== undefined)
    for (const [key, value] of Object.entries(authenticated.annotations)) credentials.annotate?.(key, value);
  return authenticated;
}
