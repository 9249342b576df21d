/** Implements the anonymous authenticator: the user of a request is `system:anonymous`. */
import type { Authenticated, Authenticator } from './authentication.ts';
import { ANONYMOUS_USER, UNAUTHENTICATED_GROUP } from '../../../api/meta/system-users.ts';

/** A caller without credentials. */
export const ANONYMOUS: Authenticated = { user: { name: ANONYMOUS_USER, groups: [UNAUTHENTICATED_GROUP] } };

/**
 * Creates the authenticator. `paths` are those that allow anonymous requests: all of them if it is absent. Other paths get
 * `undefined`.
 */
export function anonymousAuthenticator(paths?: readonly string[]): Authenticator {
  return {
    authenticate: (credentials) =>
      paths === undefined || paths.includes(credentials.path ?? '') ? ANONYMOUS : undefined,
  };
}
