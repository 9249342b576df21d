/**
 * Tries authenticators in order until one authenticates the request.
 *
 * An authenticator's error is kept while the others are tried: it counts only if none of them accepts the request.
 */
import { errorMessage } from '../../../api/meta/error-message.ts';
import type { Authenticated, Authenticator, Credentials, TokenAuthenticator } from './authentication.ts';
import { AUTHENTICATED_GROUP, UNAUTHENTICATED_GROUP } from '../../../api/meta/system-users.ts';

/**
 * The error of a request whose credentials at least one authenticator refused and none accepted. `messages` never contain a
 * secret.
 */
export class AuthenticationError extends Error {
  readonly messages: readonly string[];

  constructor(messages: readonly string[], options?: ErrorOptions) {
    super(messages.length === 1 ? messages[0] : `[${messages.join(', ')}]`, options);
    this.name = 'AuthenticationError';
    this.messages = messages;
  }
}

/** Returns the texts of an error of an authenticator; a union of several has several. */
export function messagesOf(error: unknown): readonly string[] {
  if (error instanceof AuthenticationError) return error.messages;
  return [errorMessage(error)];
}

const NO_MESSAGES: readonly string[] = [];

/**
 * Returns the first result of the authenticators, and `undefined` if none has one. Throws an `AuthenticationError` with all
 * messages if none has one and any of them threw. It is synchronous as long as they are.
 */
function firstAuthenticated<T>(
  list: readonly T[],
  authenticate: (one: T) => Authenticated | undefined | Promise<Authenticated | undefined>,
): Authenticated | undefined | Promise<Authenticated | undefined> {
  let messages: readonly string[] = NO_MESSAGES;
  let tried = 0;
  for (const one of list) {
    tried += 1;
    try {
      const answer = authenticate(one);
      if (answer instanceof Promise)
        return firstAuthenticatedLater(answer, list.slice(tried), authenticate, [...messages]);
      if (answer !== undefined) return answer;
    } catch (error) {
      messages = [...messages, ...messagesOf(error)];
    }
  }
  if (messages.length > 0) throw new AuthenticationError([...new Set(messages)]);
  return undefined;
}

async function firstAuthenticatedLater<T>(
  first: Promise<Authenticated | undefined>,
  others: readonly T[],
  authenticate: (one: T) => Authenticated | undefined | Promise<Authenticated | undefined>,
  messages: string[],
): Promise<Authenticated | undefined> {
  const later = others.map((one) => () => authenticate(one));
  for (const next of [() => first, ...later]) {
    try {
      const answer = await next();
      if (answer !== undefined) return answer;
    } catch (error) {
      messages.push(...messagesOf(error));
    }
  }
  if (messages.length > 0) throw new AuthenticationError([...new Set(messages)]);
  return undefined;
}

/**
 * Tries the authenticators in order until one knows the client. Throws, or rejects with, an `AuthenticationError` of all
 * messages if no authenticator knows the client and one of them threw.
 */
export function unionAuthenticator(authenticators: readonly Authenticator[]): Authenticator {
  return {
    authenticate: (credentials: Credentials) =>
      firstAuthenticated(authenticators, (one) => one.authenticate(credentials)),
  };
}

/** Combines authenticators of tokens: the first one that knows the token decides. */
export function unionTokens(authenticators: readonly TokenAuthenticator[]): TokenAuthenticator {
  return {
    authenticateToken: (token, audiences, connection) =>
      firstAuthenticated(authenticators, (one) => one.authenticateToken(token, audiences, connection)),
  };
}

/** Adds `system:authenticated`, unless the user has the group `system:unauthenticated`. */
function withAuthenticatedGroup(result: Authenticated): Authenticated {
  const { groups } = result.user;
  if (groups.includes(AUTHENTICATED_GROUP) || groups.includes(UNAUTHENTICATED_GROUP)) return result;
  return { ...result, user: { ...result.user, groups: [...groups, AUTHENTICATED_GROUP] } };
}

/**
 * Adds `system:authenticated` to the groups of clients that the inner authenticator knows, unless they have the group
 * `system:unauthenticated`.
 */
export function groupAdder(inner: Authenticator): Authenticator {
  return {
    authenticate(credentials) {
      const answer = inner.authenticate(credentials);
      if (answer instanceof Promise)
        return answer.then((authenticated) =>
          authenticated === undefined ? undefined : withAuthenticatedGroup(authenticated),
        );
      return answer === undefined ? undefined : withAuthenticatedGroup(answer);
    },
  };
}

/** Wraps an authenticator of tokens as `groupAdder` wraps one of requests. */
export function tokenGroupAdder(inner: TokenAuthenticator): TokenAuthenticator {
  return {
    authenticateToken(token, audiences, connection) {
      const answer = inner.authenticateToken(token, audiences, connection);
      if (answer instanceof Promise)
        return answer.then((authenticated) =>
          authenticated === undefined ? undefined : withAuthenticatedGroup(authenticated),
        );
      return answer === undefined ? undefined : withAuthenticatedGroup(answer);
    },
  };
}
