/** The anonymous authenticator, the last one: a request without credentials is `system:anonymous`. */
import type { Authenticator } from './authentication.ts';
import { ANONYMOUS_USER, UNAUTHENTICATED_GROUP } from '../../api/meta/system-users.ts';

/** The paths that allow anonymous requests; all paths if it is absent. */
export function anonymousAuthenticator(paths?: readonly string[]): Authenticator {
  const anonymous = { user: { name: ANONYMOUS_USER, groups: [UNAUTHENTICATED_GROUP] } };
  return {
    authenticate: (credentials) =>
      paths === undefined || paths.includes(credentials.path ?? '') ? anonymous : undefined,
  };
}
