/** The anonymous authenticator, the last one: a request without credentials is `system:anonymous`. */
import { UNAUTHENTICATED_GROUP } from './union.ts';
import type { Authenticator } from './authentication.ts';

const ANONYMOUS_USER = 'system:anonymous';

/** The paths that allow anonymous requests; all paths if it is absent. */
export function anonymousAuthenticator(paths?: readonly string[]): Authenticator {
  const anonymous = { user: { name: ANONYMOUS_USER, groups: [UNAUTHENTICATED_GROUP] } };
  return {
    authenticate: (credentials) =>
      paths === undefined || paths.includes(credentials.path ?? '') ? anonymous : undefined,
  };
}
