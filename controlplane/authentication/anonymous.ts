/** Implements the anonymous authenticator, which is the last one: a request without credentials is `system:anonymous`. */
import type { Authenticator } from './authentication.ts';
import { ANONYMOUS_USER, UNAUTHENTICATED_GROUP } from '../../api/meta/system-users.ts';

/** Creates the authenticator. `paths` are those that allow anonymous requests: all of them if it is absent. */
export function anonymousAuthenticator(paths?: readonly string[]): Authenticator {
  const anonymous = { user: { name: ANONYMOUS_USER, groups: [UNAUTHENTICATED_GROUP] } };
  return {
    authenticate: (credentials) =>
      paths === undefined || paths.includes(credentials.path ?? '') ? anonymous : undefined,
  };
}
